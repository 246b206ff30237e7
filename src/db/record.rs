//! The completion record's *ticket*: proof, to `yardmaster.complete`, that the caller runs this very attempt.
//!
//! The Rust twin of the computation in the migration; a test on a real server compares the two. The keys never leave
//! the service; a ticket is sent in a message of its own after the command.

use std::fmt;

use sha2::{Digest, Sha256};

use super::attempt::AttemptName;

/// The length of each key: one block of SHA-256.
pub const KEY_BYTES: usize = 64;

/// Keys that are not of the form the catalog makes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the catalog's secret has keys of {inner} and {outer} bytes instead of {KEY_BYTES} each: restore yardmaster.secret"
)]
pub struct BadKeys {
    inner: usize,
    outer: usize,
}

/// The two keys of a node's catalog.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKeys {
    inner: [u8; KEY_BYTES],
    outer: [u8; KEY_BYTES],
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys(hidden)")
    }
}

impl TicketKeys {
    /// Takes the columns of `yardmaster.secret`.
    ///
    /// # Errors
    /// If one has not [`KEY_BYTES`] bytes.
    pub fn new(inner_key: &[u8], outer_key: &[u8]) -> Result<Self, BadKeys> {
        match (inner_key.try_into(), outer_key.try_into()) {
            (Ok(inner), Ok(outer)) => Ok(Self { inner, outer }),
            _ => Err(BadKeys { inner: inner_key.len(), outer: outer_key.len() }),
        }
    }

    /// The ticket of one attempt, run in a session logged in as `owner`.
    pub fn ticket(&self, attempt: &AttemptName, owner: &str) -> Vec<u8> {
        let AttemptName { task, task_key, series, attempt, .. } = attempt;
        let text = format!("{task}/{task_key}/{series}/{attempt}/{owner}");
        let inner = Sha256::new().chain_update(self.inner).chain_update(text).finalize();
        Sha256::new().chain_update(self.outer).chain_update(inner).finalize().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_another_length_are_refused_and_debug_hides_them() {
        assert_eq!(TicketKeys::new(&[1; 64], &[2; 32]), Err(BadKeys { inner: 64, outer: 32 }));
        assert_eq!(format!("{:?}", TicketKeys::new(&[1; 64], &[2; 64]).unwrap()), "TicketKeys(hidden)");
    }
}
