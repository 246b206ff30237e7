use std::iter;

use proptest::prelude::*;

use super::*;
use Inspection::{Empty, NonTransactional, RetryOutside, Transactional};

#[track_caller]
fn all(expected: Inspection, commands: &[&str]) {
    for command in commands {
        assert_eq!(inspect(command), Ok(expected), "{command}");
        assert_eq!(inspect_lenient(command), Ok(expected), "{command}");
    }
}

#[track_caller]
fn control(word: &str, command: &str) {
    for found in [inspect(command), inspect_lenient(command)] {
        match found {
            Err(Refusal::TransactionControl { word: found, .. }) => assert_eq!(found, word, "{command}"),
            other => panic!("{command}: {other:?}"),
        }
    }
}

#[track_caller]
fn syntax_error(command: &str, message: &str, position: usize) {
    assert_eq!(inspect(command), Err(Refusal::Syntax { message: message.into(), position }), "{command}");
}

#[test]
fn ordinary_statements_run_in_a_transaction() {
    all(
        Transactional,
        &[
            "SELECT 1",
            "INSERT INTO r VALUES (1); SELECT 2;",
            "ANALYZE r",
            "ANALYZE",
            "CREATE INDEX i ON r (a)",
            "CREATE TABLE concurrently_not (a int)",
            "ALTER DATABASE d SET work_mem = '1MB'",
            "ALTER TABLE r DETACH PARTITION p",
            "REFRESH MATERIALIZED VIEW CONCURRENTLY m",
            "DISCARD TEMP",
            "PREPARE p AS SELECT 1",
            "CALL p(); SELECT 1",
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false)",
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (create_slot = off, slot_name = 'x')",
            "ALTER SUBSCRIPTION s SET PUBLICATION p WITH (refresh = false)",
            "ALTER SUBSCRIPTION s DISABLE",
            "ALTER SUBSCRIPTION s SET (binary = true)",
        ],
    );
}

#[test]
fn statements_refused_in_a_block_run_outside() {
    all(
        NonTransactional,
        &[
            "VACUUM",
            "vacuum (analyze) r;",
            "-- nightly\nVACUUM r -- please",
            "CREATE DATABASE d",
            "DROP DATABASE IF EXISTS d",
            "ALTER DATABASE d SET TABLESPACE t",
            "CREATE TABLESPACE t LOCATION '/x'",
            "DROP TABLESPACE t",
            "ALTER SYSTEM SET work_mem = '1MB'",
            "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON r (a)",
            "DROP INDEX CONCURRENTLY i",
            "REINDEX INDEX CONCURRENTLY i",
            "REINDEX (CONCURRENTLY on) TABLE r",
            "REINDEX SCHEMA s",
            "REINDEX DATABASE d",
            "REINDEX SYSTEM d",
            "CLUSTER",
            "CLUSTER (VERBOSE)",
            "ALTER TABLE r DETACH PARTITION p CONCURRENTLY",
            "DISCARD ALL",
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p",
            "ALTER SUBSCRIPTION s REFRESH PUBLICATION",
            "ALTER SUBSCRIPTION s ADD PUBLICATION p",
        ],
    );
}

#[test]
fn what_only_the_server_knows_is_tried_inside_first() {
    all(
        RetryOutside,
        &[
            "CALL p()",
            "DO $$BEGIN COMMIT; END$$",
            "REINDEX TABLE r",
            "REINDEX (CONCURRENTLY false) INDEX i",
            "CLUSTER r USING i",
            "DROP SUBSCRIPTION s",
            "ALTER SUBSCRIPTION s SET (two_phase = false)",
        ],
    );
}

#[test]
fn blank_and_comment_only_are_empty_but_only_one_is_blank() {
    all(Empty, &["", " \t\r\n\x0b\x0c", "-- nothing", "/* a /* b */ c */ ;; -- d", ";"]);
    assert!(is_blank("") && is_blank(" \n"));
    assert!(!is_blank("-- nothing") && !is_blank("\u{a0}"));
}

#[test]
fn transaction_control_is_refused_wherever_it_stands() {
    control("BEGIN", "BEGIN");
    control("BEGIN", "begin isolation level serializable");
    control("START TRANSACTION", "SELECT 1; START TRANSACTION");
    control("COMMIT", "INSERT INTO r VALUES (1);;/* */ CoMmIt AND CHAIN; SELECT 1");
    control("END", "SELECT 1; END");
    control("ROLLBACK", "ROLLBACK");
    control("ABORT", "ABORT WORK");
    control("SAVEPOINT", "SAVEPOINT s");
    control("RELEASE SAVEPOINT", "RELEASE s");
    control("ROLLBACK TO SAVEPOINT", "ROLLBACK TO s");
    control("PREPARE TRANSACTION", "PREPARE TRANSACTION 'x'");
    control("COMMIT PREPARED", "COMMIT PREPARED 'x'");
    control("ROLLBACK PREPARED", "ROLLBACK PREPARED 'x'");
    control("COMMIT", "VACUUM; COMMIT");
}

#[test]
fn the_position_counts_characters() {
    let refusal = inspect("SELECT 'äöü€'; COMMIT").unwrap_err();
    assert_eq!(refusal.position(), 16);
    assert_eq!(refusal.to_string(), "COMMIT is refused: every task runs in a transaction of its own");
}

#[test]
fn words_of_transaction_control_elsewhere_are_welcome() {
    all(
        Transactional,
        &[
            "SELECT 'x; COMMIT'",
            "SELECT $a$; COMMIT; $a$",
            "SELECT 1 AS commit, \"end\" FROM begin atomic",
            "SELECT CASE WHEN true THEN 1 END",
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; SELECT 3",
            "CREATE OR REPLACE PROCEDURE f() BEGIN ATOMIC END",
            "CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2)",
            "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS 'BEGIN COMMIT; END'",
            r"SELECT '\'; SELECT 'x'",
        ],
    );
}

#[test]
fn a_false_function_body_hides_nothing() {
    control("COMMIT", "SELECT * FROM begin atomic; COMMIT; SELECT 1");
    control("COMMIT", "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; COMMIT");
    control("COMMIT", r"SELECT '\'; COMMIT; --'");
    // The same without the grammar, which does not know FROBNICATE.
    for hidden in
        ["SELECT * FROM begin atomic", "CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; END", "SELECT '\\'"]
    {
        let command = format!("FROBNICATE x; {hidden}; COMMIT");
        assert!(
            matches!(inspect_lenient(&command), Err(Refusal::TransactionControl { .. })),
            "{command}: {:?}",
            inspect_lenient(&command)
        );
    }
}

#[test]
fn copy_from_or_to_the_client_is_refused() {
    for (direction, command) in [
        ("FROM STDIN", "COPY r FROM STDIN"),
        ("FROM STDIN", "SELECT 1; copy s.\"from\" (a, b) from stdin with (format csv)"),
        ("TO STDOUT", "COPY (SELECT a FROM r) TO STDOUT"),
        ("TO STDOUT", "COPY s.from TO STDOUT"),
        ("TO STDOUT", "COPY r TO STDIN"),
    ] {
        match inspect(command) {
            Err(Refusal::ClientCopy { direction: found, .. }) => assert_eq!(found, direction, "{command}"),
            other => panic!("{command}: {other:?}"),
        }
    }
    all(
        Transactional,
        &[
            "COPY stdin FROM '/f'",
            "COPY r TO PROGRAM 'cat'",
            "COPY s.to FROM '/f'",
            "COPY (SELECT 1) TO '/stdout'",
        ],
    );
}

#[test]
fn a_statement_refused_in_a_block_stands_alone() {
    let word = |command: &str| match inspect(command) {
        Err(Refusal::MixedNonTransactional { word, position }) => (word, position),
        other => panic!("{command}: {other:?}"),
    };
    assert_eq!(word("SELECT 1; VACUUM r"), ("VACUUM".into(), 11));
    assert_eq!(
        word("CREATE INDEX CONCURRENTLY i ON r (a); SELECT 1"),
        ("CREATE INDEX CONCURRENTLY".into(), 1)
    );
    assert_eq!(word("VACUUM a; VACUUM b").1, 1);
    assert_eq!(
        inspect("SELECT 1; VACUUM r").unwrap_err().to_string(),
        "VACUUM cannot stand beside other statements: PostgreSQL refuses it in a transaction block"
    );
}

#[test]
fn a_syntax_error_has_postgresqls_words_and_place() {
    syntax_error("SELECT * FORM r", r#"syntax error at or near "FORM""#, 10);
    syntax_error("SELECT 'é'; SELEC 1; SELECT 2", r#"syntax error at or near "SELEC""#, 13);
    syntax_error("SELECT form, form FROM a form form", r#"syntax error at or near "form""#, 31);
    syntax_error("SELECT (1", "syntax error at end of input", 10);
    syntax_error("SELECT 1 +; SELECT 2", r#"syntax error at or near ";""#, 11);
    syntax_error("SELECT 'abc", r#"unterminated quoted string at or near "'abc""#, 8);
    syntax_error("SELECT 1a, 1a", r#"trailing junk after numeric literal at or near "1a""#, 8);
    syntax_error("/* x", r#"unterminated /* comment at or near "/* x""#, 1);
    syntax_error("(SELECT 1 ORDER BY 1) ORDER BY 2", "multiple ORDER BY clauses not allowed", 32);
}

#[test]
fn a_newer_servers_statement_is_still_searched() {
    assert!(matches!(inspect("FROBNICATE r"), Err(Refusal::Syntax { position: 1, .. })));
    assert_eq!(inspect_lenient("FROBNICATE r"), Ok(RetryOutside));
    assert_eq!(inspect_lenient("SELECT * FORM r"), Ok(Transactional));
    assert!(matches!(inspect_lenient("FROBNICATE r; COMMIT"), Err(Refusal::TransactionControl { .. })));
    assert!(matches!(inspect_lenient("FROBNICATE r; VACUUM"), Err(Refusal::MixedNonTransactional { .. })));
    assert!(matches!(inspect_lenient("FROBNICATE r; COPY r FROM STDIN"), Err(Refusal::ClientCopy { .. })));
    assert!(matches!(inspect_lenient("SELECT 'unterminated"), Err(Refusal::Syntax { .. })));
}

#[test]
fn nul_is_refused_with_its_place() {
    assert_eq!(inspect("ä\0"), Err(Refusal::NulCharacter { position: 2 }));
}

/// Nesting of all kinds, beyond the decoder's limit (100), libpg_query's stack limit and bison's stack.
fn deep(n: usize) -> [String; 6] {
    [
        format!("SELECT {}1", "1+".repeat(n)),
        format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n)),
        format!("SELECT {}true", "NOT ".repeat(n)),
        format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(n), " END".repeat(n)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n)),
        format!("SELECT 1{}", "::int".repeat(n)),
    ]
}

#[test]
fn depth_neither_refuses_valid_sql_nor_hides_a_commit() {
    for n in [80, 1_000, 100_000] {
        for select in deep(n) {
            assert_eq!(inspect(&select), Ok(Transactional), "{n}: {}", &select[..20]);
            control("COMMIT", &format!("{select}; COMMIT"));
        }
    }
    let index = format!("CREATE INDEX CONCURRENTLY i ON r (({}1))", "1+".repeat(200));
    assert_eq!(inspect(&index), Ok(RetryOutside), "the tree cannot be read, so the server is asked");
}

#[test]
fn size_is_no_problem() {
    assert_eq!(inspect(&format!("SELECT '{}'", "x".repeat(5_000_000))), Ok(Transactional));
    assert_eq!(inspect(&"SELECT 1;".repeat(100_000)), Ok(Transactional));
    control("COMMIT", &format!("{}COMMIT", "SELECT 1;".repeat(100_000)));
    let Err(Refusal::Syntax { message, position: 8 }) =
        inspect(&format!("SELECT '{}", "é".repeat(1_000_000)))
    else {
        panic!("an unterminated string is refused")
    };
    assert!(message.chars().count() < 200 && message.ends_with("…\""), "{message}");
}

#[test]
fn two_threads_at_once_leave_standard_error_alone() {
    let before = stderr_target();
    let threads: Vec<_> = iter::repeat_with(|| {
        std::thread::spawn(|| (0..500).for_each(|_| assert_eq!(inspect("VACUUM r"), Ok(NonTransactional))))
    })
    .take(4)
    .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    assert_eq!(stderr_target(), before);
}

fn stderr_target() -> std::path::PathBuf {
    std::fs::read_link("/proc/self/fd/2").unwrap_or_default()
}

/// Pieces that meet in hostile commands.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "SELECT 1",
            ";",
            "(",
            ")",
            "BEGIN ATOMIC",
            "END",
            "COMMIT",
            "CREATE FUNCTION f() ",
            "RETURN 1",
            "'",
            "\"",
            "$$",
            "$a$",
            "--",
            "\n",
            "/*",
            "*/",
            "E'\\xff'",
            "E'\\",
            "U&'\\d800'",
            "U&\"\\",
            "\\",
            "é",
            "\u{feff}",
            "CREATE RULE r AS ON INSERT TO t DO ALSO ",
            "VACUUM",
            "COPY r FROM STDIN",
            "x'zz'",
            "b'2'",
            "1e",
            "0x",
            "@@@",
            "::",
            ".",
            ",",
            "CASE",
            "WITH",
            "\0",
            "DO",
            "CREATE INDEX CONCURRENTLY i ON r (a)",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ]
}

#[test]
fn the_sole_statement_is_cut_out_of_what_surrounds_it() {
    for (text, sole) in [
        ("SELECT 1", Some("SELECT 1")),
        (" /* a; */ SELECT 1 ; -- enough", Some("SELECT 1")),
        ("SELECT 1 -- enough", Some("SELECT 1")),
        ("SELECT ';'; SELECT 2", None),
        ("-- nothing", None),
        (";", None),
        ("", None),
        ("SELECT 1\0", None),
    ] {
        assert_eq!(sole_statement(text), sole, "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(pieces in prop::collection::vec(piece(), 0..14)) {
        let command = pieces.join(" ");
        let strict = inspect(&command);
        let lenient = inspect_lenient(&command);
        if !matches!(strict, Err(Refusal::Syntax { .. })) {
            prop_assert_eq!(&strict, &lenient);
        }
        for refusal in [strict, lenient].into_iter().filter_map(Result::err) {
            let position = refusal.position();
            prop_assert!((1..=command.chars().count() + 1).contains(&position), "{refusal:?}");
        }
    }

    #[test]
    fn the_lexers_statements_are_the_grammars(pieces in prop::collection::vec(prop::sample::select(vec![
        "SELECT 1", ";", "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN a THEN b END; END",
        "SELECT * FROM begin atomic", "CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2)", "; ;", "/* ; */",
        "CREATE OR REPLACE PROCEDURE f() BEGIN ATOMIC END", "CREATE FUNCTION f() RETURNS begin RETURN (1)",
    ]), 0..8)) {
        let command = pieces.join(" ;");
        let tokens = tokens::lex(&command).expect("the lexer takes it");
        if let (false, Verdict::Accepted(texts)) = (is_blank(&command), grammar::check(&command)) {
            let starts = |statements: Vec<Statement<'_>>| statements.iter().map(Statement::start).collect::<Vec<_>>();
            prop_assert_eq!(
                starts(tokens::statements_at(&command, &tokens, &texts)),
                starts(tokens::statements(&command, &tokens))
            );
        }
    }
}

#[test]
fn only_a_single_copy_to_stdout_can_be_streamed() {
    for yes in ["COPY t TO STDOUT", " copy (SELECT 1) TO STDOUT", "COPY (SELECT 1) TO STDOUT (FORMAT csv);"] {
        assert!(copies_out(yes), "{yes}");
    }
    for no in [
        "",
        "SELECT 1",
        "COPY t FROM STDIN",
        "COPY t TO '/tmp/x'",
        "COPY t TO STDOUT; SELECT 1",
        "COPY t TO STDOUT; COPY t TO STDOUT",
    ] {
        assert!(!copies_out(no), "{no}");
    }
}
