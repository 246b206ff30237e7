//! Watches the nodes: probes each one, whether or not somebody needs it, and tells when one is down or well again.
//!
//! Each node is watched by a loop of its own, so a silent one delays no other.

use std::collections::BTreeMap;
use std::rc::Rc;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, SpawnHandle, WrapFuture};
use tokio::sync::Notify;

use crate::db::{DbError, Node, Nodes};
use crate::messages::{NodeHeard, NodesDeclared, Suspect};
use crate::model::Health;

/// Watches the nodes that have a database of their own.
pub struct NodeWatch {
    nodes: Rc<Nodes>,
    superior: Recipient<NodeHeard>,
    watched: BTreeMap<String, Watched>,
}

struct Watched {
    node: Rc<Node>,
    suspicion: Rc<Notify>,
    watching: SpawnHandle,
}

impl NodeWatch {
    /// A watch over these nodes, which tells `superior`.
    pub fn new(nodes: Rc<Nodes>, superior: Recipient<NodeHeard>) -> NodeWatch {
        NodeWatch { nodes, superior, watched: BTreeMap::new() }
    }

    /// Watches what is declared now, and nothing else.
    fn look_around(&mut self, ctx: &mut Context<Self>) {
        let mut before = std::mem::take(&mut self.watched);
        for node in self.nodes.all() {
            let name = node.name().to_owned();
            let kept = before.remove(&name);
            let watched = match kept {
                Some(watched) if Rc::ptr_eq(&watched.node, &node) => watched,
                other => {
                    if let Some(old) = other {
                        ctx.cancel_future(old.watching);
                    }
                    let suspicion = Rc::new(Notify::new());
                    let watch = watch(Rc::clone(&node), Rc::clone(&suspicion), self.superior.clone());
                    Watched { node, suspicion, watching: ctx.spawn(watch.into_actor(self)) }
                }
            };
            self.watched.insert(name, watched);
        }
        for (name, gone) in before {
            ctx.cancel_future(gone.watching);
            // Nobody says any more that it is down.
            self.superior.do_send(NodeHeard { node: name, fault: None });
        }
    }
}

impl Actor for NodeWatch {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.look_around(ctx);
    }
}

impl Handler<NodesDeclared> for NodeWatch {
    type Result = ();

    fn handle(&mut self, _: NodesDeclared, ctx: &mut Self::Context) {
        self.look_around(ctx);
    }
}

impl Handler<Suspect> for NodeWatch {
    type Result = ();

    fn handle(&mut self, Suspect(node): Suspect, _: &mut Self::Context) {
        if let Some(watched) = self.watched.get(&node) {
            watched.suspicion.notify_one();
        }
    }
}

async fn watch(node: Rc<Node>, suspicion: Rc<Notify>, superior: Recipient<NodeHeard>) {
    let mut health = Health::default();
    loop {
        let mut answer = node.site().await;
        if answer.is_err() && health.is_well() {
            // A connection may have been ended without the node being worse for it.
            answer = node.site().await;
        }
        let said = match answer {
            // A server without room is busy, not down.
            Ok(_) | Err(DbError::NoRoom { .. }) => Ok(()),
            Err(e) => Err(e.to_string()),
        };
        if let Some(news) = health.hear(said) {
            superior.do_send(NodeHeard { node: node.name().to_owned(), fault: news.err() });
        }
        tokio::select! {
            () = tokio::time::sleep(health.pause(super::chance())) => {}
            () = suspicion.notified() => {}
        }
    }
}
