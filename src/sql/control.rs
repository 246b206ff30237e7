//! Finds statements that no task may hold, by their tokens: transaction control, and COPY from or to the
//! client.
//!
//! The first token is enough, since no other statement of PostgreSQL's grammar starts with one of these words
//! (`START` and `PREPARE` apart, which need the second).

use pg_query::protobuf::Token;

use crate::sql::tokens::Statement;
use crate::sql::{Refusal, char_position};

const DOT: Token = Token::Ascii46;
const OPEN: Token = Token::Ascii40;
const CLOSE: Token = Token::Ascii41;

/// Tells why a statement is refused, if it is.
pub(super) fn refusal(command: &str, statement: &Statement<'_>) -> Option<Refusal> {
    let position = || char_position(command, statement.start());
    if let Some(word) = transaction_control(statement) {
        return Some(Refusal::TransactionControl { word: word.to_owned(), position: position() });
    }
    let direction = client_copy(statement)?;
    Some(Refusal::ClientCopy { direction: direction.to_owned(), position: position() })
}

/// Is it `COPY … TO STDOUT`?
pub(super) fn copies_out(statement: &Statement<'_>) -> bool {
    client_copy(statement) == Some("TO STDOUT")
}

fn transaction_control(statement: &Statement<'_>) -> Option<&'static str> {
    match (statement.kind(0), statement.kind(1)) {
        (Token::BeginP, _) => Some("BEGIN"),
        (Token::Start, Token::Transaction) => Some("START TRANSACTION"),
        (Token::Commit, Token::Prepared) => Some("COMMIT PREPARED"),
        (Token::Commit, _) => Some("COMMIT"),
        (Token::EndP, _) => Some("END"),
        (Token::Rollback, Token::Prepared) => Some("ROLLBACK PREPARED"),
        (Token::Rollback, _) if statement.kinds().any(|kind| kind == Token::To) => {
            Some("ROLLBACK TO SAVEPOINT")
        }
        (Token::Rollback, _) => Some("ROLLBACK"),
        (Token::AbortP, _) => Some("ABORT"),
        (Token::Savepoint, _) => Some("SAVEPOINT"),
        (Token::Release, _) => Some("RELEASE SAVEPOINT"),
        (Token::Prepare, Token::Transaction) => Some("PREPARE TRANSACTION"),
        _ => None,
    }
}

/// Finds `COPY … FROM STDIN` and `COPY … TO STDOUT`; PostgreSQL takes either word with either direction.
fn client_copy(statement: &Statement<'_>) -> Option<&'static str> {
    if statement.kind(0) != Token::Copy {
        return None;
    }
    // FROM and TO are reserved, so outside parentheses the first one is the direction, unless it follows a
    // dot: `COPY s.to TO …` names a table `to`.
    let (mut depth, mut before) = (0_usize, Token::Copy);
    for (at, kind) in statement.kinds().enumerate() {
        match kind {
            OPEN => depth += 1,
            CLOSE => depth = depth.saturating_sub(1),
            Token::From | Token::To if depth == 0 && before != DOT => {
                // `TO PROGRAM stdout` is no valid SQL; skipping the word costs nothing and overlooks nothing.
                let program = usize::from(statement.kind(at + 1) == Token::Program);
                let is_client = matches!(statement.kind(at + 1 + program), Token::Stdin | Token::Stdout);
                let direction = if kind == Token::From { "FROM STDIN" } else { "TO STDOUT" };
                return is_client.then_some(direction);
            }
            _ => {}
        }
        before = kind;
    }
    None
}
