//! What the settings promise as a whole; each file has one promise. The parts' own tests are beside the parts.

mod file;
mod manual;
mod reload;
mod sources;

use std::path::PathBuf;

use tempfile::TempDir;

use super::{Settings, SettingsError, Sources};

/// A settings file in a folder of its own, gone when dropped.
struct Written {
    folder: TempDir,
}

impl Written {
    fn new(content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("Settings.toml"), content).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("Settings.toml")
    }

    fn sources(&self) -> Sources {
        Sources { file: Some(self.path()), ..Sources::default() }
    }

    /// Loads the file alone; an error comes as text, with the file's folder left out.
    fn load(&self) -> Result<Settings, String> {
        Settings::load(&self.sources()).map_err(|error| self.shorten(&error))
    }

    fn shorten(&self, error: &SettingsError) -> String {
        error.to_string().replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn load(content: impl AsRef<[u8]>) -> Result<Settings, String> {
    Written::new(content).load()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
