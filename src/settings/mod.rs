//! Owns the settings: their types, defaults, ranges, sources and what a reload may change.
//!
//! `main` and `cli` call [`Settings::load`] at the start, the Reload path calls it again and then asks
//! [`changes`] and [`Settings::reloaded`]. Everyone else only reads the typed values.
//!
//! Invariants:
//! - One table, `keys::KEYS`, says which keys exist, what they accept and whether they reload. A test holds it
//!   against the types, another against the manual (`Settings.toml`), so the three cannot drift apart.
//! - A [`Settings`] that came from `load` is valid; a failed `load` names every mistake and changes nothing.
//! - Passwords inside connection URLs leave this module only in the URL itself: `Debug`, `Serialize`, errors and
//!   changes show `***`.
//!
//! Precedence, weakest first: built-in defaults, libpq's `PG*` and `DATABASE_URL` (the database's URL only), the
//! file, `YARDMASTER__SECTION__KEY` variables, flags.

mod change;
mod document;
mod duration;
mod error;
mod keys;
mod layer;
mod libpq;
mod load;
mod mask;
mod overrides;
mod rule;
mod sections;
mod shape;
#[cfg(test)]
mod tests;
mod values;

pub use change::{Change, changes};
pub use error::{Mistake, Origin, Position, SettingsError};
pub use load::Sources;
pub use mask::mask_url;
pub use sections::{Cancel, Http, Limits, Log, LogFormat, Retention, Retry, Sessions, Shutdown, Tasks, Wait};
pub use values::{Database, Node, Settings};

/// The manual of settings: the repository's `Settings.toml`, in which every value shown is the default.
pub const MANUAL: &str = include_str!("../../Settings.toml");
