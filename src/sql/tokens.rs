//! Flat view of a command: PostgreSQL's lexer tokens, grouped into top-level statements. No recursion, linear
//! time.

use std::ops::Range;

use pg_query::protobuf::Token;

use crate::sql::grammar::words_of;

pub(super) const SEMICOLON: Token = Token::Ascii59;
const OPEN: Token = Token::Ascii40;
const CLOSE: Token = Token::Ascii41;

/// One token that is not a comment; offsets are bytes of the command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lexeme {
    pub(super) kind: Token,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// One top-level statement: never without a token, without its terminating semicolon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Statement<'a> {
    command: &'a str,
    tokens: &'a [Lexeme],
}

impl<'a> Statement<'a> {
    fn new(command: &'a str, tokens: &'a [Lexeme]) -> Option<Self> {
        (!tokens.is_empty()).then_some(Statement { command, tokens })
    }

    /// The kinds of its tokens, in order.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Token> + '_ {
        self.tokens.iter().map(|token| token.kind)
    }

    /// The kind of its `n`th token; [`Token::Nul`] past the end.
    pub(super) fn kind(&self, n: usize) -> Token {
        self.tokens.get(n).map_or(Token::Nul, |token| token.kind)
    }

    /// Byte offset of its first token.
    pub(super) fn start(&self) -> usize {
        self.tokens.first().map_or(0, |token| token.start)
    }

    /// Its text, from the first token to the last.
    pub(super) fn text(&self) -> &'a str {
        let end = self.tokens.last().map_or(0, |token| token.end);
        self.command.get(self.start()..end).unwrap_or_default()
    }
}

/// Splits a command into tokens, comments left out; an error is PostgreSQL's message.
///
/// The command must not be blank: the crate reads a null pointer when there is no token at all.
pub(super) fn lex(command: &str) -> Result<Vec<Lexeme>, String> {
    if super::is_blank(command) {
        return Ok(Vec::new());
    }
    let tokens = pg_query::scan_tokens(command).map_err(words_of)?;
    Ok(tokens
        .iter()
        .map(|token| Lexeme {
            kind: Token::try_from(token.token).unwrap_or(Token::Nul),
            start: usize::try_from(token.start).unwrap_or(0),
            end: usize::try_from(token.end).unwrap_or(0),
        })
        .filter(|token| !matches!(token.kind, Token::SqlComment | Token::CComment))
        .collect())
}

/// Groups tokens by the statements that the grammar found.
pub(super) fn statements_at<'a>(
    command: &'a str,
    tokens: &'a [Lexeme],
    texts: &[&str],
) -> Vec<Statement<'a>> {
    let origin = command.as_ptr() as usize;
    texts
        .iter()
        .filter_map(|text| {
            let start = text.as_ptr() as usize - origin;
            let first = tokens.partition_point(|token| token.start < start);
            let last = tokens.partition_point(|token| token.start < start + text.len());
            Statement::new(command, tokens.get(first..last)?)
        })
        .collect()
}

/// Groups tokens by the lexer alone, for text that the grammar does not know or cannot hold.
pub(super) fn statements<'a>(command: &'a str, tokens: &'a [Lexeme]) -> Vec<Statement<'a>> {
    terminated(tokens)
        .into_iter()
        .filter_map(|range| {
            let tokens = &tokens[range];
            let body = tokens
                .split_last()
                .filter(|(last, _)| last.kind == SEMICOLON)
                .map_or(tokens, |(_, body)| body);
            Statement::new(command, body)
        })
        .collect()
}

/// Token ranges of the top-level statements, each with its semicolon.
///
/// PostgreSQL's grammar has semicolons that do not end a statement in two places only: between parentheses
/// (CREATE RULE) and in `CREATE FUNCTION … BEGIN ATOMIC … END`. The second is believed only right there:
/// `FROM begin atomic` is a table with an alias. A body that ends too early for us can only make us refuse
/// its END, never overlook a statement.
pub(super) fn terminated(tokens: &[Lexeme]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut depth, mut in_body, mut body_statement) = (0, 0_usize, false, false);
    for (at, token) in tokens.iter().enumerate() {
        let fresh = std::mem::replace(&mut body_statement, false);
        match token.kind {
            OPEN => depth += 1,
            CLOSE => depth = depth.saturating_sub(1),
            SEMICOLON if depth > 0 => {}
            SEMICOLON if in_body => body_statement = true,
            SEMICOLON => {
                ranges.push(start..at + 1);
                start = at + 1;
            }
            Token::EndP if in_body && fresh && depth == 0 => in_body = false,
            Token::Atomic
                if depth == 0
                    && at > start
                    && tokens[at - 1].kind == Token::BeginP
                    && creates_routine(&tokens[start..at]) =>
            {
                in_body = true;
                body_statement = true;
            }
            _ => {}
        }
    }
    if start < tokens.len() {
        ranges.push(start..tokens.len());
    }
    ranges
}

fn creates_routine(tokens: &[Lexeme]) -> bool {
    let mut kinds = tokens
        .iter()
        .map(|token| token.kind)
        .take(4)
        .filter(|kind| !matches!(kind, Token::Or | Token::Replace));
    kinds.next() == Some(Token::Create) && matches!(kinds.next(), Some(Token::Function | Token::Procedure))
}
