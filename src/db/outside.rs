//! What is asked around a command that runs outside a transaction: was it done before, and did it leave what it
//! should?
//!
//! An owner's session tells nothing but what the server says of a statement, so each question is one whose command tag
//! is the answer: `SELECT 1` says yes, `SELECT 0` no.

use crate::sql::BuiltIndex;

/// Asks a task's `verify` query, a single SELECT: yes if it yields true.
pub fn is_done(query: &str) -> String {
    // On lines of its own, so that no comment in it hides what follows.
    format!("SELECT WHERE (\n{query}\n)")
}

/// Asks whether there is such an index and it is of no use: a build that was cut short leaves one.
pub fn is_invalid(index: &BuiltIndex) -> String {
    let table = match &index.schema {
        Some(schema) => format!("{}.{}", identifier(schema), identifier(&index.table)),
        None => identifier(&index.table),
    };
    format!(
        "SELECT FROM pg_catalog.pg_class t
           JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) t.relnamespace
           JOIN pg_catalog.pg_index i ON i.indexrelid OPERATOR(pg_catalog.=) c.oid
          WHERE t.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass({}) AND c.relname OPERATOR(pg_catalog.=) {} AND NOT i.indisvalid",
        literal(&table),
        literal(&index.name),
    )
}

/// Reads the answer out of what the server said: its tag comes last.
pub fn says_yes(message: &str) -> bool {
    message.lines().next_back().is_some_and(|tag| tag == "SELECT 1")
}

/// Writes a name so that it is read as it stands.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The sessions read backslashes in plain strings as they stand (`standard_conforming_strings`).
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_in_the_query_hides_nothing() {
        assert_eq!(is_done("SELECT true -- yes"), "SELECT WHERE (\nSELECT true -- yes\n)");
    }

    #[test]
    fn only_the_last_tag_answers() {
        assert!(says_yes("SELECT 1"));
        assert!(says_yes("NOTICE: SELECT 0\nSELECT 1"));
        assert!(!says_yes("NOTICE: x\nSELECT 1\nSELECT 0"));
        assert!(!says_yes(""));
    }

    #[test]
    fn names_are_quoted() {
        let index = BuiltIndex { schema: Some("s\"s".into()), table: "t't".into(), name: "i'x".into() };
        let asked = is_invalid(&index);
        assert!(asked.contains("to_regclass('\"s\"\"s\".\"t''t\"')") && asked.contains("'i''x'"), "{asked}");
    }
}
