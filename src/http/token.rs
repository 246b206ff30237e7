//! The token that allows steering.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::HttpError;

/// A shorter one can be guessed.
const SHORTEST: usize = 16;

/// A token, kept as its digest: comparing digests tells nothing by its time.
pub(super) struct Token([u8; 32]);

impl Token {
    /// Reads the file of `[http] token_file`.
    ///
    /// # Errors
    /// [`HttpError::Token`] if it cannot be read or holds no token.
    pub(super) fn read(path: &Path) -> Result<Token, HttpError> {
        let failed = |reason| HttpError::Token { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        let token = text.trim();
        if token.len() < SHORTEST || token.contains(char::is_whitespace) {
            return Err(failed(format!(
                "it must hold one word of at least {SHORTEST} characters, such as `openssl rand -hex 32` prints"
            )));
        }
        Ok(Token(Sha256::digest(token).into()))
    }

    /// Is it this one?
    pub(super) fn is(&self, given: &str) -> bool {
        self.0 == <[u8; 32]>::from(Sha256::digest(given))
    }
}
