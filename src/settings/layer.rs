//! One source's values, checked key by key, in the form in which the crate `config` lays sources over one another.

use config::{ConfigError, Map, Source, Value};

/// The values of one source; only what its key's rule accepted goes in.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    root: toml::Table,
}

impl Layer {
    /// Sets a key by its dotted path.
    pub(super) fn set(&mut self, path: &str, value: toml::Value) {
        let (tables, name) =
            path.rsplit_once('.').map_or((None, path), |(tables, name)| (Some(tables), name));
        let table = match tables {
            Some(tables) => self.table(tables),
            None => &mut self.root,
        };
        table.insert(name.to_owned(), value);
    }

    /// Declares a table that may stay empty, such as that of a node without keys.
    pub(super) fn declare(&mut self, path: &str) {
        self.table(path);
    }

    /// The text at a dotted path, if there is one.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        let mut names = path.split('.');
        let first = self.root.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))?.as_str()
    }

    fn table(&mut self, path: &str) -> &mut toml::Table {
        path.split('.').fold(&mut self.root, |table, name| {
            let slot = table.entry(name).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            slot.as_table_mut().expect("a path is either a key or a table, by the table of keys")
        })
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        self.root.clone().try_into().map_err(|error| ConfigError::Foreign(Box::new(error)))
    }
}
