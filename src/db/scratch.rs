//! Scratch schemas in the databases where they are: looked for by the service, emptied and dropped by their owner.

use super::error::DbError;
use super::node::Node;

/// Is there such a schema?
const EXISTS: &str = "SELECT pg_catalog.to_regnamespace(pg_catalog.quote_ident($1)) IS NOT NULL";

/// Schemas whose names begin so, with their owners.
const FOUND: &str = "
SELECT n.nspname::pg_catalog.text, pg_catalog.pg_get_userbyid(n.nspowner)::pg_catalog.text
  FROM pg_catalog.pg_namespace n WHERE pg_catalog.starts_with(n.nspname::pg_catalog.text, $1)";

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[("EXISTS", EXISTS), ("FOUND", FOUND)];

/// What a batch is allowed; and its objects, partitions before their tables, so that one statement takes few locks. When
/// none are left the schema itself goes, with what is left in it. PostgreSQL has room for 64 locks a session and more
/// of them only while others need none: a table takes up to ten.
const BATCH: &str = r#"
SET lock_timeout = '2s'; SET statement_timeout = '60s';
DO $batch$
DECLARE
    its_schema pg_catalog.oid := pg_catalog.to_regnamespace('{schema}');
    found record;
    dropped pg_catalog.int4 := 0;
BEGIN
    FOR found IN
        SELECT pg_catalog.format('DROP %s IF EXISTS %I.%I CASCADE',
                   CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE'
                                  WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END, '{schema}', c.relname) AS statement
          FROM pg_catalog.pg_class c
         WHERE c.relnamespace OPERATOR(pg_catalog.=) its_schema
           AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,S,f}'::pg_catalog."char"[])
         ORDER BY c.relispartition DESC, c.relkind OPERATOR(pg_catalog.=) 'S' LIMIT 100
    LOOP
        EXECUTE found.statement;
        dropped := dropped OPERATOR(pg_catalog.+) 1;
    END LOOP;
    IF dropped OPERATOR(pg_catalog.=) 0 THEN
        FOR found IN
            SELECT pg_catalog.format('DROP ROUTINE IF EXISTS %s CASCADE', p.oid::pg_catalog.regprocedure) AS statement
              FROM pg_catalog.pg_proc p WHERE p.pronamespace OPERATOR(pg_catalog.=) its_schema AND p.prokind OPERATOR(pg_catalog.<>) 'a' LIMIT 200
        LOOP
            EXECUTE found.statement;
            dropped := dropped OPERATOR(pg_catalog.+) 1;
        END LOOP;
    END IF;
    IF dropped OPERATOR(pg_catalog.=) 0 AND its_schema IS NOT NULL THEN
        EXECUTE 'DROP SCHEMA {schema} CASCADE';
    END IF;
END $batch$"#;

/// The command of one batch of a schema's removal, for a session of its owner outside a transaction. `None` for a name
/// that is none of ours: ours need no quotes.
pub fn batch(schema: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let ours = schema.starts_with("yardmaster_") && schema.chars().all(plain);
    ours.then(|| BATCH.replace("{schema}", schema))
}

/// Is the schema there?
///
/// # Errors
/// When the node cannot be asked.
pub async fn exists(node: &Node, schema: &str) -> Result<bool, DbError> {
    let rows = node.ask("look for a scratch schema", EXISTS, &[&schema]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// The schemas there whose names begin with `prefix`, and their owners.
///
/// # Errors
/// When the node cannot be asked.
pub async fn found(node: &Node, prefix: &str) -> Result<Vec<(String, String)>, DbError> {
    let rows = node.ask("look for scratch schemas", FOUND, &[&prefix]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_make_a_batch() {
        assert!(
            batch("yardmaster_0a1b_7_cafe")
                .is_some_and(|sql| sql.contains("DROP SCHEMA yardmaster_0a1b_7_cafe"))
        );
        for other in ["public", "yardmaster_x'; DROP TABLE t; --", "yardmaster_\"x\"", "Yardmaster_x", ""] {
            assert_eq!(batch(other), None, "{other}");
        }
    }
}
