//! Finds where PostgreSQL stopped reading. The crate passes on PostgreSQL's message but not its position, so
//! we look for the shortest beginning of the text that fails with the same words: parsing stops at the first
//! error, so every longer beginning fails alike, and halving finds it with a few more parses. Runs for wrong
//! text only.

use crate::sql::grammar::{self, Verdict};
use crate::sql::tokens::{self, Lexeme};

/// Byte offset of a grammar error: the start of the first token at which the grammar gives up, or the end of
/// the text.
pub(super) fn grammar_error(command: &str, tokens: &[Lexeme]) -> usize {
    // Statement by statement first, so that a long script is parsed once more and not at each halving.
    let found = tokens::terminated(tokens).into_iter().find_map(|range| {
        let tokens = &tokens[range];
        let text =
            |end: usize| tokens.first().and_then(|first| command.get(first.start..end)).unwrap_or_default();
        let whole = grammar::check(text(tokens.last()?.end));
        let Verdict::Refused(message) = &whole else { return None };
        if message.ends_with("at end of input") {
            return Some(tokens.last()?.end);
        }
        let at = tokens.partition_point(|token| grammar::check(text(token.end)) != whole);
        tokens.get(at).map(|token| token.start)
    });
    found.or_else(|| tokens.last().map(|token| token.end)).unwrap_or(0)
}

/// Byte offset of a lexer error, such as an unterminated string: where the text quoted in the message starts.
pub(super) fn lexer_error(command: &str, message: &str) -> usize {
    let quoted =
        message.split_once(" at or near \"").map_or("", |(_, near)| near.strip_suffix('"').unwrap_or(near));
    // An unterminated token reaches to the end of the text: no search, which its size would make slow.
    if message.starts_with("unterminated") && command.ends_with(quoted) {
        return command.len() - quoted.len();
    }
    let ends: Vec<usize> = command.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
    let shortest =
        ends.partition_point(|&end| tokens::lex(&command[..end]).err().as_deref() != Some(message));
    ends.get(shortest).map_or(0, |end| end.saturating_sub(quoted.len()))
}
