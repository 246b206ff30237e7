//! A database on another server, as a node of a test's service.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::Client;

use crate::support::{Private, another};

/// A database of its own, without anything of Yardmaster's.
pub struct NodeDb {
    /// The server.
    pub server: &'static Private,
    /// Its name.
    pub name: String,
    /// A superuser's connection.
    pub admin: Client,
}

impl NodeDb {
    /// On one of the shared servers.
    pub async fn new(which: usize) -> NodeDb {
        // The server is started on a thread of its own: this one may wait.
        NodeDb::on(tokio::task::spawn_blocking(move || another(which)).await.unwrap()).await
    }

    /// On this server.
    pub async fn on(server: &'static Private) -> NodeDb {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("node{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let outside = server.connect("postgres", "postgres").await;
        outside.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
        outside.batch_execute(&format!("GRANT CREATE ON DATABASE {name} TO yard_service")).await.unwrap();
        let admin = server.connect("postgres", &name).await;
        admin
            .batch_execute(
                "GRANT CREATE ON SCHEMA public TO alice, bob;
                 CREATE TABLE ledger (k bigint, at timestamptz DEFAULT clock_timestamp());
                 GRANT INSERT, SELECT ON ledger TO PUBLIC",
            )
            .await
            .unwrap();
        NodeDb { server, name, admin }
    }

    /// Connects anew after a restart.
    pub async fn again(&mut self) {
        self.admin = self.server.connect("postgres", &self.name).await;
    }

    /// As the service logs in.
    pub fn url(&self) -> String {
        self.server.url("yard_service", &self.name)
    }

    /// Its section of Settings.toml.
    pub fn settings(&self, name: &str) -> String {
        section(name, &self.url())
    }

    /// The value of a query, as text.
    pub async fn value(&self, query: &str) -> String {
        let rows = self.admin.simple_query(query).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
        rows.iter()
            .find_map(|m| match m {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Asserts that the ledger has each number from 1 to `n` once, and nothing else.
    pub async fn is_exactly(&self, n: u64) {
        let wrong = self
            .value(&format!(
                "SELECT coalesce(string_agg(format('%s: %s times', g, n), ', '), '') FROM (
                   SELECT coalesce(g, k) AS g, count(k) AS n FROM generate_series(1, {n}) g FULL JOIN ledger ON k = g GROUP BY 1) x
                  WHERE n <> 1 OR g NOT BETWEEN 1 AND {n}"
            ))
            .await;
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// The section of a node that leads there.
pub fn section(name: &str, url: &str) -> String {
    format!("[nodes.{name}]\nurl = \"{url}\"\nmax_task_executors = 8\n")
}

/// How many backends of tasks run a command there now.
pub const ALIVE: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name ~ '^yardmaster [0-9]+/' AND state = 'active'";
