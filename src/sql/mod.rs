//! Looks at a task's command before anything runs, with PostgreSQL's own lexer and grammar (libpg_query,
//! PostgreSQL 18).
//!
//! Called at submission (job files: [`inspect`]) and before an attempt ([`inspect_lenient`]). Pure: text in,
//! verdict out.
//!
//! Invariants
//! - No text makes it panic, and its time grows with the length of the text only.
//! - Transaction control and client COPY are found by the lexer's tokens, so no depth of nesting and no
//!   syntax newer than our grammar hides them. Text that our lexer cannot read is refused.
//! - The verdicts assume `standard_conforming_strings = on`, which the sessions set as a start-up option. A
//!   command cannot change it in time: PostgreSQL lexes the whole string before it runs the first statement.

mod control;
mod grammar;
mod kinds;
mod locate;
mod tokens;

use crate::sql::grammar::Verdict;
use crate::sql::kinds::Kind;
use crate::sql::tokens::Statement;

/// How a command must be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inspection {
    /// Inside a transaction block, together with its completion record.
    Transactional,
    /// Outside a transaction block: a single statement that PostgreSQL refuses inside one, such as `VACUUM`.
    NonTransactional,
    /// Inside first; outside after SQLSTATE 2D000 (a procedure that commits) or 25001 (a statement of which
    /// only the server knows, such as `REINDEX TABLE` of a partitioned table). Neither leaves an effect
    /// behind.
    RetryOutside,
    /// There is no statement at all: white space or comments only. Whether it is [`is_blank`] decides if it
    /// is welcome.
    Empty,
}

/// Why a command is not run. Positions count characters from 1, as PostgreSQL does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A statement begins or ends a transaction; every task already runs in one of its own.
    #[error("{word} is refused: every task runs in a transaction of its own")]
    TransactionControl {
        /// The statement's leading words, such as `ROLLBACK` or `PREPARE TRANSACTION`.
        word: String,
        /// Where the statement starts.
        position: usize,
    },
    /// A COPY waits for the client's data, or sends data that nobody reads.
    #[error("COPY {direction} is refused: a background task has no client to copy from or to")]
    ClientCopy {
        /// `FROM STDIN` or `TO STDOUT`.
        direction: String,
        /// Where the statement starts.
        position: usize,
    },
    /// A statement that PostgreSQL refuses in a transaction block stands beside others, which form such a
    /// block.
    #[error("{word} cannot stand beside other statements: PostgreSQL refuses it in a transaction block")]
    MixedNonTransactional {
        /// The statement's kind, such as `VACUUM` or `CREATE INDEX CONCURRENTLY`.
        word: String,
        /// Where the statement starts.
        position: usize,
    },
    /// PostgreSQL's lexer or grammar does not accept the text.
    #[error("{message}")]
    Syntax {
        /// PostgreSQL's own words, such as `syntax error at or near "FORM"`; a long quotation is cut.
        message: String,
        /// Where PostgreSQL stopped.
        position: usize,
    },
    /// PostgreSQL's protocol cannot carry a NUL character.
    #[error("a command cannot hold a NUL character")]
    NulCharacter {
        /// Where the first one is.
        position: usize,
    },
}

impl Refusal {
    /// Where the reason is: characters from 1.
    pub fn position(&self) -> usize {
        match self {
            Refusal::TransactionControl { position, .. }
            | Refusal::ClientCopy { position, .. }
            | Refusal::MixedNonTransactional { position, .. }
            | Refusal::Syntax { position, .. }
            | Refusal::NulCharacter { position } => *position,
        }
    }

    /// What the author can do about it, when there is something to say beyond the message.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Refusal::TransactionControl { .. } => Some(
                "leave it out; to commit in steps, use several tasks, or CALL a procedure that commits as the only statement",
            ),
            Refusal::ClientCopy { direction, .. } if direction == "TO STDOUT" => Some(
                "name a file as the task's `output`, and let it be the only statement; or copy to a file or PROGRAM on the server",
            ),
            Refusal::ClientCopy { .. } => {
                Some("copy from or to a file or PROGRAM on the server, or use INSERT")
            }
            Refusal::MixedNonTransactional { .. } => {
                Some("give it a task of its own and order the tasks with depends_on")
            }
            Refusal::Syntax { .. } => None,
            Refusal::NulCharacter { .. } => Some("remove it, or write bytea data as '\\x00'"),
        }
    }
}

/// An index that a command builds unless one of its name is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIndex {
    /// The schema of table and index, if the command names it.
    pub schema: Option<String>,
    /// The table.
    pub table: String,
    /// The index.
    pub name: String,
}

/// Names the index if the command is a single CREATE INDEX CONCURRENTLY IF NOT EXISTS, whose success does not say that
/// there is an index of use.
pub fn kept_index(command: &str) -> Option<BuiltIndex> {
    kinds::kept_index(&grammar::tree(command)?)
}

/// The text of the only statement of a command, without terminator and comments around it; `None` if it has none or
/// several.
pub fn sole_statement(command: &str) -> Option<&str> {
    if command.contains('\0') {
        return None;
    }
    let tokens = tokens::lex(command).ok()?;
    let [range] = &tokens::terminated(&tokens)[..] else { return None };
    let of_it = tokens.get(range.clone())?;
    let last = of_it.iter().rfind(|token| token.kind != tokens::SEMICOLON)?;
    command.get(of_it.first()?.start..last.end)
}

/// Tells whether a command is white space only, as PostgreSQL's lexer sees it. A blank command is refused at
/// submission; a comment-only one is not blank and succeeds without doing anything.
pub fn is_blank(command: &str) -> bool {
    command.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c))
}

/// Inspects a command strictly: what PostgreSQL 18's grammar does not accept is a [`Refusal::Syntax`].
/// For submission, where a person can still correct the text.
pub fn inspect(command: &str) -> Result<Inspection, Refusal> {
    look(command, OnSyntaxError::Refuse)
}

/// Inspects a command that the server may understand though our grammar does not: a newer release or a fork.
/// Everything else is refused as by [`inspect`]; for run time, where the server has the last word on syntax.
pub fn inspect_lenient(command: &str) -> Result<Inspection, Refusal> {
    look(command, OnSyntaxError::LetServerDecide)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnSyntaxError {
    Refuse,
    LetServerDecide,
}

/// Is it a single statement that copies to the client, and may therefore be streamed to a file?
pub fn copies_out(command: &str) -> bool {
    let Ok(tokens) = tokens::lex(command) else { return false };
    let statements = match grammar::check(command) {
        Verdict::Accepted(texts) => tokens::statements_at(command, &tokens, &texts),
        Verdict::Beyond | Verdict::Refused(_) => tokens::statements(command, &tokens),
    };
    matches!(statements.as_slice(), [only] if control::copies_out(only))
}

fn look(command: &str, on_syntax_error: OnSyntaxError) -> Result<Inspection, Refusal> {
    if let Some(at) = command.find('\0') {
        return Err(Refusal::NulCharacter { position: char_position(command, at) });
    }
    if is_blank(command) {
        return Ok(Inspection::Empty);
    }
    let tokens = tokens::lex(command).map_err(|message| {
        let at = locate::lexer_error(command, &message);
        syntax(command, &message, at)
    })?;
    let statements = match grammar::check(command) {
        Verdict::Accepted(texts) => tokens::statements_at(command, &tokens, &texts),
        Verdict::Beyond => tokens::statements(command, &tokens),
        Verdict::Refused(_) if on_syntax_error == OnSyntaxError::LetServerDecide => {
            tokens::statements(command, &tokens)
        }
        Verdict::Refused(message) => {
            let at = locate::grammar_error(command, &tokens);
            return Err(syntax(command, &message, at));
        }
    };
    if let Some(refusal) = statements.iter().find_map(|statement| control::refusal(command, statement)) {
        return Err(refusal);
    }
    classify(command, &statements)
}

fn classify(command: &str, statements: &[Statement<'_>]) -> Result<Inspection, Refusal> {
    match statements {
        [] => Ok(Inspection::Empty),
        [only] => Ok(match kinds::of(only) {
            Kind::Transactional => Inspection::Transactional,
            Kind::NonTransactional(_) => Inspection::NonTransactional,
            Kind::OnlyServerKnows => Inspection::RetryOutside,
        }),
        several => {
            for statement in several {
                if let Kind::NonTransactional(word) = kinds::of(statement) {
                    let position = char_position(command, statement.start());
                    return Err(Refusal::MixedNonTransactional { word: word.to_owned(), position });
                }
            }
            Ok(Inspection::Transactional)
        }
    }
}

fn syntax(command: &str, message: &str, at: usize) -> Refusal {
    Refusal::Syntax { message: grammar::shorten(message), position: char_position(command, at) }
}

/// Turns a byte offset into PostgreSQL's position: characters from 1.
fn char_position(text: &str, at: usize) -> usize {
    text.get(..at).map_or_else(|| text.chars().count(), |before| before.chars().count()) + 1
}

#[cfg(test)]
mod tests;
