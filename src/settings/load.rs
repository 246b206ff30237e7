//! Loads the settings: finds the file, checks every source, lays them over one another.

use std::path::{Path, PathBuf};

use config::{Config, ConfigError};

use super::error::{Mistake, Mistakes, Origin, SettingsError};
use super::layer::Layer;
use super::values::Settings;
use super::{document, libpq, overrides};

/// The variable that names the file when no flag does.
const FILE_VARIABLE: &str = "YARDMASTER_CONFIG";
/// The file that is read, if it exists, when nothing names one.
const SYSTEM_FILE: &str = "/etc/yardmaster/Settings.toml";

/// Where settings come from. The process's surroundings are passed in, so that loading is a function of its input
/// and of the file.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file that `--config` names; it must exist. `None`: the file that `YARDMASTER_CONFIG` names, else
    /// `/etc/yardmaster/Settings.toml` if it exists, else none.
    pub file: Option<PathBuf>,
    /// The environment's variables.
    pub environment: Vec<(String, String)>,
    /// Dotted keys with their values as text, from `--set key=value` and from dedicated flags.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    fn variable(&self, wanted: &str) -> Option<&str> {
        self.environment
            .iter()
            .find(|(name, value)| name == wanted && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    fn file(&self, mistakes: &mut Mistakes) -> Layer {
        let named = self.file.clone().or_else(|| self.variable(FILE_VARIABLE).map(PathBuf::from));
        let path = named.as_deref().unwrap_or(Path::new(SYSTEM_FILE));
        match document::read(path) {
            Ok(document::Found::Bytes(bytes)) => return document::check(path, &bytes, mistakes),
            Ok(document::Found::Missing) if named.is_none() => {}
            Ok(document::Found::Missing) => mistakes.add(|| Mistake {
                origin: Origin::File { path: path.to_owned(), position: None },
                message: format!("no such file: correct --config or {FILE_VARIABLE}, or leave both out"),
            }),
            Err(mistake) => mistakes.add(|| mistake),
        }
        Layer::default()
    }
}

impl Settings {
    /// Loads and checks the settings from all sources, whole: after an error nothing has changed anywhere.
    ///
    /// # Errors
    /// Fails with every mistake of every source: an unreadable or malformed file, unknown keys, wrong types, values
    /// out of range.
    pub fn load(sources: &Sources) -> Result<Settings, SettingsError> {
        let mut mistakes = Mistakes::default();
        let file = sources.file(&mut mistakes);
        let environment = overrides::environment(&sources.environment, &mut mistakes);
        let flags = overrides::flags(&sources.flags, &mut mistakes);
        let is_given = [&file, &environment, &flags].iter().any(|layer| layer.text(libpq::URL).is_some());
        // A variable meant for other programs is not judged unless it is used.
        let ambient =
            if is_given { Layer::default() } else { libpq::layer(&sources.environment, &mut mistakes) };
        mistakes.into_result()?;
        merge([ambient, file, environment, flags]).map_err(|error| {
            // The table of keys accepted what the types refuse: a fault of ours, told as well as can be.
            Mistake { origin: Origin::Merged, message: error.to_string() }.into()
        })
    }
}

/// Lays the layers over the defaults, weakest first.
fn merge(layers: [Layer; 4]) -> Result<Settings, ConfigError> {
    let start = Config::builder();
    layers.into_iter().fold(start, |builder, layer| builder.add_source(layer)).build()?.try_deserialize()
}
