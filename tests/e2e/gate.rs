//! Gates: tasks wait at one for as long as the test likes.

use tokio_postgres::Client;

use crate::support::Db;

/// An advisory lock that the test holds; a task's command waits until it lets go.
pub struct Gate {
    holder: Client,
    number: i64,
}

impl Gate {
    /// Closes gate `number` of this database.
    pub async fn close(db: &Db, number: i64) -> Gate {
        let holder = db.connect("postgres").await;
        holder.execute("SELECT pg_advisory_lock($1)", &[&number]).await.unwrap();
        Gate { holder, number }
    }

    /// The command that passes when the gate is open. Any number of tasks may wait.
    pub fn command(&self) -> String {
        wait_at(self.number)
    }

    /// Waits until this many commands wait at the gate: the claim comes before the command.
    pub async fn await_waiters(&self, db: &Db, count: u32) {
        db.await_true(&format!(
            "SELECT count(*) = {count} FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = {}
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            self.number
        ))
        .await;
    }

    /// Lets everybody through.
    pub async fn open(self) {
        self.holder.execute("SELECT pg_advisory_unlock($1)", &[&self.number]).await.unwrap();
    }
}

/// The command that waits at a gate.
pub fn wait_at(number: i64) -> String {
    format!("SELECT pg_advisory_xact_lock_shared({number})")
}
