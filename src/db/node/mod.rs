//! A *node*: a database where commands run, as the service sees it.
//!
//! What decides how an attempt ended is the record table of the database in which it ran. Home is just the node whose
//! record table is the catalog's own; on any other the table, its secret and `yardmaster.complete` are installed when
//! the service first connects (see [`install`]). Which database that is says its [`Site`], not the node's name: settings
//! can be changed, and an outcome must be asked of the very database where the attempt ran.
//!
//! The service has a few connections of its own to each node (records, `revoked`, backends; never a task's SQL), with
//! short timeouts, opened when needed. A node that does not answer delays nobody but those who wait for it.

mod install;
mod nodes;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::connect::{self, Access, Purpose};
use super::error::DbError;
use super::record::TicketKeys;

pub use install::STATEMENTS;
pub use nodes::Nodes;

/// Connections of the service to one node at once.
const MAX_LINES: usize = 3;
/// Of those, how many stay open when nothing is asked: the rest is for owners' sessions.
const KEPT_LINES: usize = 1;
/// How long a node may take to answer one question: more than its own statement timeout.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);

/// Which database it is, and the keys to its tickets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Made with the record table; a database keeps it wherever it is reached.
    pub id: Uuid,
    /// They never leave the service.
    pub keys: TicketKeys,
}

/// The service's connections to a node.
enum Lines {
    /// The office's own connection to home.
    Home(Rc<Client>),
    /// Opened when needed.
    Own { config: Box<Access>, idle: RefCell<Vec<Client>>, room: Semaphore, site: RefCell<Option<Arc<Site>>> },
}

/// A database with completion records. See the module's documentation.
pub struct Node {
    name: String,
    lines: Lines,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Node").field(&self.name).finish()
    }
}

impl Node {
    /// Home, by way of the office's control connection.
    pub fn home(control: Rc<Client>) -> Node {
        Node { name: String::new(), lines: Lines::Home(control) }
    }

    /// The node of this name, where `config` leads.
    pub fn new(name: &str, config: Access) -> Node {
        let (idle, site) = (RefCell::default(), RefCell::default());
        let lines = Lines::Own { config: Box::new(config), idle, room: Semaphore::new(MAX_LINES), site };
        Node { name: name.to_owned(), lines }
    }

    /// Its name; empty for home.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks one question, on a connection of its own until it is answered.
    ///
    /// # Errors
    /// What the server said, or that it cannot be reached or does not answer in time: then the connection is given up.
    pub async fn ask(
        &self,
        context: &'static str,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DbError> {
        let (config, idle, room, site) = match &self.lines {
            Lines::Home(client) => {
                return client.query(sql, params).await.map_err(DbError::postgres(context));
            }
            Lines::Own { config, idle, room, site } => (config, idle, room, site),
        };
        let _place = room.acquire().await.map_err(|_| DbError::Busy("the node is closed".to_owned()))?;
        let found = std::iter::from_fn(|| idle.borrow_mut().pop()).find(|client| !client.is_closed());
        let client = match found {
            Some(client) => client,
            None => {
                let (client, found) = open(config).await?;
                site.replace(Some(Arc::new(found)));
                client
            }
        };
        let silent = |_| DbError::Timeout { context, seconds: ANSWER_WITHIN.as_secs() };
        // Whose answer is not waited for is not asked again.
        let answer = timeout(ANSWER_WITHIN, client.query(sql, params)).await.map_err(silent)?;
        if !client.is_closed() && idle.borrow().len() < KEPT_LINES {
            idle.borrow_mut().push(client);
        }
        answer.map_err(DbError::postgres(context))
    }

    /// Which database it is, as it answers now; `None` for home.
    ///
    /// # Errors
    /// When it cannot be asked, or nothing could be installed there.
    pub async fn site(&self) -> Result<Option<Arc<Site>>, DbError> {
        let Lines::Own { site, .. } = &self.lines else { return Ok(None) };
        let rows = self.ask("read the site of a node", install::SITE, &[]).await?;
        let found = install::site(&rows)?;
        // The same allocation as long as it is the same site: sessions share it.
        let mut known = site.borrow_mut();
        Ok(Some(match &*known {
            Some(site) if **site == found => Arc::clone(site),
            _ => Arc::clone(known.insert(Arc::new(found))),
        }))
    }

    /// The site it had when last reached.
    pub fn last_site(&self) -> Option<Uuid> {
        match &self.lines {
            Lines::Home(_) => None,
            Lines::Own { site, .. } => site.borrow().as_ref().map(|site| site.id),
        }
    }
}

/// Opens a connection for the service's work, installing what is missing.
async fn open(config: &Access) -> Result<(Client, Site), DbError> {
    let opening = async {
        let (client, _) = connect::connect(config, Purpose::Node).await?;
        install::check(&client, config).await?;
        let rows =
            client.query(install::SITE, &[]).await.map_err(DbError::postgres("read the site of a node"))?;
        Ok((client, install::site(&rows)?))
    };
    let limit = connect::CONNECT_TIMEOUT + ANSWER_WITHIN;
    timeout(limit, opening)
        .await
        .unwrap_or(Err(DbError::Timeout { context: "prepare a node", seconds: limit.as_secs() }))
}
