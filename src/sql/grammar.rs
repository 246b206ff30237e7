//! The only door to PostgreSQL's grammar: asks whether it accepts a text, and reads one statement's tree.
//!
//! libpg_query points the *process's* standard error at a pipe while it parses and puts it back afterwards.
//! Two parses at once would leave it pointing nowhere for good, and lines logged meanwhile would be lost.
//! Holding Rust's lock on standard error during each call prevents both: it is process-wide, and whoever logs
//! waits some microseconds.

use std::io;

use pg_query::protobuf::node::Node;

/// What the grammar says of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    /// Valid; the statements' texts, in order, without terminators.
    Accepted(Vec<&'a str>),
    /// Wrong, in PostgreSQL's words.
    Refused(String),
    /// Not decided: too deep or too large for our limits, which need not be the server's.
    Beyond,
}

/// Messages of libpg_query about itself, not about the text: bison's and our own stack limit, memory, file
/// descriptors.
const OWN_LIMITS: [&str; 4] =
    ["memory exhausted", "stack depth limit exceeded", "out of memory", "Failed to open pipe"];

/// Bound of a quotation in a message: an unterminated string would quote the rest of the command.
const MAX_MESSAGE_CHARS: usize = 160;

/// Asks the grammar about a whole command. Builds no tree on our side, so deep expressions pass.
pub(super) fn check(text: &str) -> Verdict<'_> {
    let _stderr = io::stderr().lock();
    match pg_query::split_with_parser(text) {
        Ok(statements) => Verdict::Accepted(statements),
        Err(error) => {
            let message = words_of(error);
            if OWN_LIMITS.iter().any(|limit| message.starts_with(limit)) {
                Verdict::Beyond
            } else {
                Verdict::Refused(message)
            }
        }
    }
}

/// Reads the tree of one statement; `None` if the grammar does not know it, or its nesting is beyond the
/// decoder.
pub(super) fn tree(statement: &str) -> Option<Node> {
    let _stderr = io::stderr().lock();
    let parsed = pg_query::parse(statement, 0).ok()?;
    parsed.protobuf.stmts.into_iter().next()?.stmt?.node
}

/// Takes PostgreSQL's words out of the crate's error.
pub(super) fn words_of(error: pg_query::Error) -> String {
    match error {
        pg_query::Error::Parse(message)
        | pg_query::Error::Scan(message)
        | pg_query::Error::Split(message) => message,
        other => other.to_string(),
    }
}

/// Cuts a message that quotes too much.
pub(super) fn shorten(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((cut, _)) => format!("{}…\"", &message[..cut]),
        None => message.to_owned(),
    }
}
