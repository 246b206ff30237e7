//! Owners' passwords from a file in the form of libpq's `.pgpass`: `host:port:database:user:password`, `*` for any.

use std::path::{Path, PathBuf};

use super::target::Target;

/// The prefix of the environment variables that hold owners' passwords: `YARDMASTER_PASSWORD_ALICE`.
const VARIABLE: &str = "YARDMASTER_PASSWORD_";

/// Why a password file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordFileError {
    /// It cannot be read.
    #[error("password file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others could read it too.
    #[error("password file {path} can be read by others: chmod 0600 it")]
    Open {
        /// The file.
        path: PathBuf,
    },
}

/// The environment variable that may hold an owner's password.
pub fn variable(owner: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("{VARIABLE}{}", owner.chars().map(upper).collect::<String>())
}

/// The password that an owner has for a target: of the environment, else of the file.
///
/// # Errors
/// As [`find`].
pub fn of_owner(
    target: &Target,
    owner: &str,
    file: Option<&Path>,
) -> Result<Option<String>, PasswordFileError> {
    if let Ok(password) = std::env::var(variable(owner)) {
        return Ok(Some(password));
    }
    let Some(file) = file else { return Ok(None) };
    let (host, port) = target.host_and_port();
    find(file, &host, port, target.database(), owner)
}

/// Finds the first line that fits; `\:` and `\\` are escapes, as in libpq.
///
/// # Errors
/// When the file cannot be read, or can be read by group or others.
pub fn find(
    path: &Path,
    host: &str,
    port: u16,
    database: &str,
    user: &str,
) -> Result<Option<String>, PasswordFileError> {
    use std::os::unix::fs::PermissionsExt;
    let read = |source| PasswordFileError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(read)?.permissions().mode() & 0o077 != 0 {
        return Err(PasswordFileError::Open { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    Ok(search(&text, [host, &port.to_string(), database, user]))
}

fn search(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line);
        let password = (fields.len() == 5).then(|| fields.pop())??;
        let fits = fields.iter().zip(wanted).all(|(field, value)| field == "*" || field == value);
        fits.then_some(password)
    })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(ch) = chars.next() {
        match ch {
            '\\' => fields.last_mut().expect("never empty").extend(chars.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut().expect("never empty").push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::search;

    #[test]
    fn the_first_line_that_fits_counts_and_escapes_are_read() {
        let text = "# note\nh:5432:db:alice:a\\:b\\\\c\n*:*:*:bob:x:y\n*:*:*:*:any\n";
        assert_eq!(search(text, ["h", "5432", "db", "alice"]).as_deref(), Some("a:b\\c"));
        assert_eq!(search(text, ["g", "1", "db", "bob"]).as_deref(), Some("x:y"));
        assert_eq!(search(text, ["g", "1", "db", "carol"]).as_deref(), Some("any"));
        assert_eq!(search("short:line", ["h", "1", "d", "u"]), None);
    }
}
