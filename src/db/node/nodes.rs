//! The declared nodes, by name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use uuid::Uuid;

use super::super::connect;
use super::super::error::DbError;
use super::Node;
use crate::settings;

/// The nodes that have a database of their own. A node that keeps its url keeps its connections over a reload.
#[derive(Default)]
pub struct Nodes {
    declared: RefCell<BTreeMap<String, Declared>>,
}

struct Declared {
    url: String,
    node: Result<Rc<Node>, String>,
}

impl Nodes {
    /// Those that the settings declare.
    pub fn new(nodes: &BTreeMap<String, settings::Node>) -> Nodes {
        let new = Nodes::default();
        new.declare(nodes);
        new
    }

    /// Takes over what the settings declare now.
    pub fn declare(&self, nodes: &BTreeMap<String, settings::Node>) {
        let mut declared = self.declared.borrow_mut();
        let mut before = std::mem::take(&mut *declared);
        let own = nodes.iter().filter_map(|(name, node)| Some((name, node.url.as_ref()?)));
        *declared = own
            .map(|(name, url)| {
                let kept = before.remove(name).filter(|d| d.url == *url);
                let new = || Declared {
                    url: url.clone(),
                    node: connect::parse_url(url)
                        .map(|config| Rc::new(Node::new(name, config)))
                        .map_err(|e| e.to_string()),
                };
                (name.clone(), kept.unwrap_or_else(new))
            })
            .collect();
    }

    /// The node of this name; `None` if it has no database of its own.
    ///
    /// # Errors
    /// [`DbError::Url`] when its url cannot be used.
    pub fn get(&self, name: &str) -> Result<Option<Rc<Node>>, DbError> {
        let declared = self.declared.borrow();
        let Some(found) = declared.get(name) else { return Ok(None) };
        found.node.clone().map(Some).map_err(DbError::Url)
    }

    /// All that can be used.
    pub fn all(&self) -> Vec<Rc<Node>> {
        self.declared.borrow().values().filter_map(|d| d.node.clone().ok()).collect()
    }

    /// The node whose database is this site: usually the one of that name, whatever its name otherwise.
    ///
    /// # Errors
    /// When it cannot be asked, or leads to another database by now. Nothing can be said of the attempt until then.
    pub async fn at(&self, name: &str, site: Uuid) -> Result<Rc<Node>, DbError> {
        let named = self.get(name)?;
        if let Some(node) = &named
            && node.site().await?.is_some_and(|found| found.id == site)
        {
            return Ok(Rc::clone(node));
        }
        let elsewhere = self.all().into_iter().find(|node| node.last_site() == Some(site));
        elsewhere.ok_or_else(|| {
            DbError::Busy(if named.is_some() {
                format!("node \"{name}\" leads to another database than the one in which the attempt ran: lead it back")
            } else {
                format!("node \"{name}\" is not declared any more, but an attempt ran there: declare it again")
            })
        })
    }
}
