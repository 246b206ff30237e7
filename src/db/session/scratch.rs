//! Before a run: the scratch schema of its job.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::super::attempt::AttemptEnd;
use super::super::replies::lock;
use super::Session;

/// Whose is the schema (another could have made it since it was last dropped)? If it is the session's owner's, it comes first
/// in the search path from now on, until the reset. Uses no operator of the user's.
const TAKE_SCRATCH: &str = "SELECT pg_catalog.set_config('search_path', \
     pg_catalog.concat(n.nspname, ', ', pg_catalog.current_setting('search_path')), false) \
     FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner \
     WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.name AND r.rolname OPERATOR(pg_catalog.=) SESSION_USER";
/// How long making a schema may take: twins wait for each other.
const SCRATCH_LIMIT: Duration = Duration::from_secs(10);

impl Session {
    /// Makes a scratch schema of the session's owner if it is not there, and puts it first in the search path of the next
    /// run. `schema` is a name of ours, which needs no quotes.
    ///
    /// # Errors
    /// How the attempt ends instead: it failed if the owner may not, otherwise its command was not sent.
    pub async fn use_scratch(&mut self, schema: &str) -> Result<(), AttemptEnd> {
        let not_sent =
            |message: String| AttemptEnd::NotSent { message: format!("no scratch schema: {message}") };
        if !self.is_reusable() {
            return Err(not_sent("the session had ended before".to_owned()));
        }
        self.sound = false;
        let make = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
        let preparing = async {
            let made = self.client.batch_execute(&make).await;
            let said = lock(&self.replies).error.take();
            match (made, said) {
                (Ok(()), _) => {}
                // A twin made it in the same moment.
                (Err(_), Some(said)) if ["42P06", "23505"].contains(&said.sqlstate.as_str()) => {}
                (Err(_), Some(said)) if !said.is_fatal() => {
                    let hint = match said.sqlstate.as_str() {
                        "42501" => {
                            "\nHINT: GRANT CREATE ON DATABASE … TO the owner of the task, who makes and drops the scratch schemas of its jobs."
                        }
                        _ => "",
                    };
                    let message = format!("{}{hint}", said.text);
                    return Err(AttemptEnd::Failed { sqlstate: said.sqlstate, message });
                }
                (Err(e), _) => return Err(not_sent(e.to_string())),
            }
            let taken = self.client.query_typed(TAKE_SCRATCH, &[(&schema, Type::TEXT)]).await;
            match taken {
                Ok(rows) if rows.is_empty() => Err(AttemptEnd::Failed {
                    sqlstate: "42501".to_owned(),
                    message: format!(
                        "ERROR: schema {schema} belongs to another role than the owner of the task"
                    ),
                }),
                Ok(_) => Ok(()),
                Err(e) => Err(not_sent(e.to_string())),
            }
        };
        let prepared = timeout(SCRATCH_LIMIT, preparing).await;
        prepared.unwrap_or_else(|_| Err(not_sent(format!("no answer within {SCRATCH_LIMIT:?}"))))?;
        self.sound = true;
        Ok(())
    }
}
