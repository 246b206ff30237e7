//! Opens owners' sessions: knows where nodes are and how owners prove who they are.

use std::cell::RefCell;
use std::rc::Rc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::runner::{OpenFailure, Runner, SessionSource};
use crate::db::{DbError, Nodes, OpenError, Target, open, passwords};
use crate::model::SessionKey;
use crate::settings::Settings;

/// The real source of sessions.
pub struct DbSessions {
    home_url: String,
    settings: RefCell<Rc<Settings>>,
    nodes: Rc<Nodes>,
}

impl DbSessions {
    /// Sessions at home are opened where `home_url` leads, as other roles; those of nodes where their settings say.
    pub fn new(home_url: String, settings: Settings, nodes: Rc<Nodes>) -> DbSessions {
        DbSessions { home_url, settings: RefCell::new(Rc::new(settings)), nodes }
    }

    /// Nodes and bounds changed.
    pub fn reload(&self, settings: Settings) {
        self.nodes.declare(&settings.nodes);
        self.settings.replace(Rc::new(settings));
    }

    /// Where a node is.
    fn target(&self, node: &str, settings: &Settings) -> Result<Target, OpenFailure> {
        let refused =
            |sqlstate: &str, message: String| OpenFailure::Refused { sqlstate: sqlstate.to_owned(), message };
        let declared = settings.nodes.get(node);
        if declared.is_none() && !node.is_empty() {
            return Err(refused(
                "42704",
                format!(
                    "ERROR: node \"{node}\" is not declared\nHINT: Declare it as [nodes.{node}] in Settings.toml and reload."
                ),
            ));
        }
        let url = declared.and_then(|n| n.url.as_ref()).unwrap_or(&self.home_url);
        Target::parse(url).map_err(|e| {
            let whose = if url == &self.home_url { "the database URL" } else { "the url of the node" };
            refused("08001", format!("ERROR: {whose} cannot be used: {e}"))
        })
    }
}

impl SessionSource for DbSessions {
    fn open(&self, key: SessionKey) -> LocalBoxFuture<'static, Result<Box<dyn Runner>, OpenFailure>> {
        let settings = Rc::clone(&self.settings.borrow());
        let target = self.target(&key.node, &settings);
        let node = self.nodes.get(&key.node);
        async move {
            let target = target?;
            // Where nobody can ask for the outcome nothing is run.
            let later = |e: DbError| OpenFailure::Later {
                suspect: !matches!(e, DbError::NoRoom { .. }),
                message: e.to_string(),
            };
            let site = match node.map_err(later)? {
                Some(node) => node.site().await.map_err(later)?,
                None => None,
            };
            let refused = |sqlstate: String, message: String| OpenFailure::Refused {
                message: match key.node.as_str() {
                    "" => format!("ERROR: login as role \"{}\" refused: {message}", key.owner),
                    node => format!(
                        "ERROR: login as role \"{}\" on node \"{node}\" refused: {message}",
                        key.owner
                    ),
                },
                sqlstate,
            };
            let file = settings.sessions.password_file.as_deref();
            let password = passwords::of_owner(&target, &key.owner, file)
                .map_err(|e| refused("28000".to_owned(), e.to_string()))?;
            let bytes = settings.tasks.max_message_bytes as usize;
            match open(&target, &key.owner, password.as_deref(), settings.sessions.connect_timeout, bytes)
                .await
            {
                // At home the catalog says so before.
                Ok(session)
                    if site.is_some() && session.identity().superuser && !settings.allow_superuser_owners =>
                {
                    Err(refused(
                        "42501".to_owned(),
                        "it is a superuser there, and may not own tasks".to_owned(),
                    ))
                }
                Ok(session) => Ok(Box::new(session.at(site)) as Box<dyn Runner>),
                Err(OpenError::Refused { sqlstate, message })
                    if password.is_none() && message.contains("password") =>
                {
                    let remedy = format!(
                        "set {} for the service, or sessions.password_file",
                        passwords::variable(&key.owner)
                    );
                    Err(refused(sqlstate, format!("{message}\nHINT: {remedy}")))
                }
                Err(OpenError::Refused { sqlstate, message }) => Err(refused(sqlstate, message)),
                // A server without room is busy, not down.
                Err(e @ OpenError::TooMany { .. }) => {
                    Err(OpenFailure::Later { message: e.to_string(), suspect: false })
                }
                Err(e @ OpenError::Unreachable { .. }) => {
                    Err(OpenFailure::Later { message: e.to_string(), suspect: true })
                }
            }
        }
        .boxed_local()
    }
}
