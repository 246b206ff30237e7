//! What texts look like: the predicates behind the rules for strings.

use tracing_subscriber::EnvFilter;

/// Log levels that `tracing-subscriber` knows.
pub(super) const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// One line that is safe to show: not empty, no control characters.
pub(super) fn is_line(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_control)
}

/// A PostgreSQL URL, or libpq's `key=value` text. Looks at the shape only: the driver's own parser lives on a higher
/// floor and has the last word.
pub(super) fn is_connection(text: &str) -> bool {
    let is_pairs = || {
        text.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim();
            !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        })
    };
    is_line(text) && (text.starts_with("postgres://") || text.starts_with("postgresql://") || is_pairs())
}

/// Filter directives of `tracing-subscriber`, except that a bare word must be a level: `EnvFilter` takes any other for
/// the name of a target, so that "inof" would mean "everything of crate inof".
pub(super) fn is_directive(text: &str) -> bool {
    let is_level = |part: &str| LEVELS.iter().any(|level| part.trim().eq_ignore_ascii_case(level));
    let is_explicit = |part: &str| part.contains(['=', '[']);
    is_line(text)
        && text.split(',').all(|part| is_level(part) || is_explicit(part))
        && EnvFilter::builder().parse(text).is_ok()
}

/// A SQLSTATE class, such as `42`, or a whole code, such as `0A000`.
pub(super) fn is_sqlstate(text: &str) -> bool {
    matches!(text.len(), 2 | 5) && text.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
}
