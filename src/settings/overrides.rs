//! Settings from the environment (`YARDMASTER__LIMITS__MAX_TASK_EXECUTORS=8`) and from flags
//! (`--set limits.max_task_executors=8`).

use super::error::{self, Mistake, Mistakes, Origin};
use super::keys::{self, NODES, Place};
use super::layer::Layer;

/// What a variable of ours begins with; `__` separates the parts of a key.
pub(super) const PREFIX: &str = "YARDMASTER__";

/// Checks the variables that begin with [`PREFIX`]; an empty one counts as not set, as in libpq.
pub(super) fn environment(variables: &[(String, String)], mistakes: &mut Mistakes) -> Layer {
    let mut layer = Layer::default();
    for (name, value) in variables {
        let Some(key) = name.strip_prefix(PREFIX) else { continue };
        if value.is_empty() {
            continue;
        }
        let path = key.replace("__", ".").to_ascii_lowercase();
        put(&mut layer, &path, value, || Origin::Variable(name.clone()), mistakes);
    }
    layer
}

/// Checks dotted keys with their values from the command line; of a repeated key the last one counts.
pub(super) fn flags(flags: &[(String, String)], mistakes: &mut Mistakes) -> Layer {
    let mut layer = Layer::default();
    for (path, value) in flags {
        put(&mut layer, path, value, || Origin::Flag(path.clone()), mistakes);
    }
    layer
}

/// Puts one text into the layer, or says why not.
pub(super) fn put(
    layer: &mut Layer,
    path: &str,
    text: &str,
    origin: impl Fn() -> Origin,
    mistakes: &mut Mistakes,
) {
    let message = match keys::place(path) {
        Place::Key(key) => {
            let value = key.rule.read(text);
            match key.rule.check(&value) {
                Ok(()) => return layer.set(path, value),
                Err(fault) => error::refused(path, key, &value, &fault),
            }
        }
        Place::Table => format!("{path} is a table of keys: name one of its keys"),
        Place::Unknown => match bad_node(path) {
            Some(name) => error::bad_node_name(name),
            None => error::unknown(path),
        },
    };
    mistakes.add(|| Mistake { origin: origin(), message });
}

/// The name of the node in `nodes.NAME.key`, if it breaks the rule of names.
fn bad_node(path: &str) -> Option<&str> {
    let (section, rest) = path.split_once('.')?;
    let (name, _) = rest.rsplit_once('.')?;
    (section == NODES && !keys::is_node_name(name)).then_some(name)
}
