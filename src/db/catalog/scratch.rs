//! Scratch schemas as the catalog knows them: recorded before they are made, forgotten after they are seen gone.
//!
//! Each statement is one fenced transaction of the leader (see `migrations/V9__scratch.sql`). What is done in the
//! databases themselves is [`crate::db::scratch`]'s.

use tokio_postgres::Client;
use uuid::Uuid;

use super::super::error::DbError;
use super::leadership::Office;

/// Called before each attempt of a job with scratch schemas.
const USE: &str = "SELECT yardmaster.scratch_use($1, $2, $3, $4, $5, $6, $7)::text";

/// Is there any? Asked first, since to decide takes a lock and a transaction id. A small table.
const ANY: &str = "SELECT EXISTS (SELECT FROM yardmaster.scratch_state)";

/// Decides what is to be dropped; answers whose turn it is. Wants `scratch_state_in_use`, `scratch_state_dropping`.
const DUE: &str = "
SELECT s.scratch_id, s.job_id, s.node, s.site, s.owner::text, s.owner_oid, s.schema_name::text, s.reason
  FROM yardmaster.scratch_due($1, $2, $3, $4) s";

/// Writes what came of a try.
const TRIED: &str = "SELECT yardmaster.scratch_tried($1, $2, $3, $4, $5)";

/// What the names of our schemas begin with.
const PREFIX: &str = "SELECT yardmaster.scratch_prefix()";

/// Which database home is.
const HOME: &str = "SELECT s.site FROM yardmaster.secret s";

/// Of jobs (`$1`) that have folders with output files, those whose folders are to be removed: of jobs that are gone, at once;
/// of others as their clean-up says, if they were given any. Looks each up by its key.
const FOLDERS: &str = "
SELECT g.job_id FROM unnest($1::bigint[]) AS g(job_id)
  LEFT JOIN yardmaster.job_spec p ON p.job_id = g.job_id LEFT JOIN yardmaster.job_state j ON j.job_id = g.job_id
 WHERE p.job_id IS NULL OR j.delete_requested
    OR (j.status IN ('finished', 'cancelled', 'failed')
        AND (j.cleanup_requested
             OR (CASE p.cleanup WHEN 'on_end' THEN true WHEN 'on_success' THEN j.status = 'finished' ELSE false END
                 AND j.finished_at + coalesce(p.cleanup_delay, interval '0') <= now())))";

/// Takes note of schemas that nobody knows. Wants `scratch_state_name`.
const ADOPT: &str = "SELECT yardmaster.scratch_adopt($1, $2, $3, $4, $5, $6, $7)";

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[
    ("USE", USE),
    ("ANY", ANY),
    ("DUE", DUE),
    ("TRIED", TRIED),
    ("PREFIX", PREFIX),
    ("HOME", HOME),
    ("FOLDERS", FOLDERS),
    ("ADOPT", ADOPT),
];

/// A schema to drop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doomed {
    /// Its row.
    pub id: i64,
    /// Its job, which may be gone.
    pub job: i64,
    /// The node it was first used under; empty for home.
    pub node: String,
    /// The database; `None` is home.
    pub site: Option<Uuid>,
    /// Whose it is.
    pub owner: String,
    /// The owner's oid at home.
    pub owner_oid: u32,
    /// Its name.
    pub schema: String,
    /// What the last try came to.
    pub reason: Option<String>,
}

/// Records that an attempt is about to use its job's schema there, and names it. `None`: the attempt is not alive.
///
/// # Errors
/// When the statement fails, or the office is over.
pub async fn begin_use(
    client: &Client,
    office: Office,
    (task, attempt): (i64, i32),
    node: &str,
    site: Option<Uuid>,
) -> Result<Option<String>, DbError> {
    let Office { epoch, token, term } = office;
    let row = client
        .query_one(USE, &[&epoch.0, &token, &term, &task, &attempt, &node, &site])
        .await
        .map_err(DbError::postgres("record a scratch schema"))?;
    Ok(row.get(0))
}

/// Decides which schemas are to be dropped; answers those whose turn it is, but for those `under_way`.
///
/// # Errors
/// When the statement fails, or the office is over.
pub async fn due(client: &Client, office: Office, under_way: &[i64]) -> Result<Vec<Doomed>, DbError> {
    let Office { epoch, token, term } = office;
    let any = client.query_one(ANY, &[]).await.map_err(DbError::postgres("look for scratch schemas"))?;
    if !any.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let rows = client
        .query(DUE, &[&epoch.0, &token, &term, &under_way])
        .await
        .map_err(DbError::postgres("look for scratch schemas to drop"))?;
    let doomed = |row: &tokio_postgres::Row| Doomed {
        id: row.get(0),
        job: row.get(1),
        node: row.get(2),
        site: row.get(3),
        owner: row.get(4),
        owner_oid: row.get(5),
        schema: row.get(6),
        reason: row.get(7),
    };
    Ok(rows.iter().map(doomed).collect())
}

/// Writes what came of a try: `None`, the schema is gone; otherwise why it is still there.
///
/// # Errors
/// When the statement fails, or the office is over.
pub async fn tried(client: &Client, office: Office, id: i64, reason: Option<&str>) -> Result<(), DbError> {
    let Office { epoch, token, term } = office;
    client
        .query_one(TRIED, &[&epoch.0, &token, &term, &id, &reason])
        .await
        .map_err(DbError::postgres("note what became of a scratch schema"))?;
    Ok(())
}

/// What the names of this installation's schemas begin with.
///
/// # Errors
/// When the statement fails.
pub async fn prefix(client: &Client) -> Result<String, DbError> {
    let row = client
        .query_one(PREFIX, &[])
        .await
        .map_err(DbError::postgres("read the prefix of scratch schemas"))?;
    Ok(row.get(0))
}

/// Which database home is.
///
/// # Errors
/// When the statement fails.
pub async fn home(client: &Client) -> Result<Uuid, DbError> {
    let row = client.query_one(HOME, &[]).await.map_err(DbError::postgres("read the site of home"))?;
    Ok(row.get(0))
}

/// Those of the jobs whose folders are to be removed.
///
/// # Errors
/// When the statement fails.
pub async fn folders_to_remove(client: &Client, jobs: &[i64]) -> Result<Vec<i64>, DbError> {
    let rows = client
        .query(FOLDERS, &[&jobs])
        .await
        .map_err(DbError::postgres("look for folders of output files to remove"))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Takes note of those of the `found` schemas (name and owner) of which nothing is known; answers how many.
///
/// # Errors
/// When the statement fails, or the office is over.
pub async fn adopt(
    client: &Client,
    office: Office,
    node: &str,
    site: Option<Uuid>,
    found: &[(String, String)],
) -> Result<i64, DbError> {
    let Office { epoch, token, term } = office;
    let (names, owners): (Vec<&str>, Vec<&str>) = found.iter().map(|(n, o)| (n.as_str(), o.as_str())).unzip();
    let row = client
        .query_one(ADOPT, &[&epoch.0, &token, &term, &node, &site, &names, &owners])
        .await
        .map_err(DbError::postgres("take note of unknown scratch schemas"))?;
    Ok(row.get(0))
}
