//! Messages in: what each means to the Yard, and what of it the Monitor keeps.

use actix::{Actor, AsyncContext, Context, Handler, MessageResult};

use super::super::siding::{PlaceFreed, SessionReturned};
use super::{Monitor, Office, limits, rules};
use crate::messages::{
    CancelAll, Crashed, GetSnapshot, LostOffice, NodeHeard, NodesFound, Publish, PublishHealth, Reload,
    SessionsRetried, SetLimits, Snapshot, TaskFinished, TaskLeft, Terminate, TookOffice, Wake,
};
use crate::meters::meters;
use crate::model::yard::{Input, Mode};
use crate::model::{SessionKey, TaskId};
use crate::settings::{self, Settings};

/// How often idle sessions are looked over.
const SWEEP_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
/// How long after the grace of a shutdown the last turns may take.
const LEAVE_ANYWAY: std::time::Duration = std::time::Duration::from_secs(10);

impl Actor for Monitor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(SWEEP_EVERY, |monitor, ctx| {
            for key in monitor.siding.sweep(&monitor.settings.sessions) {
                monitor.feed(Input::SessionGone(key), ctx);
            }
        });
    }
}

impl Handler<Wake> for Monitor {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        self.feed(Input::Woken, ctx);
    }
}

impl Handler<TookOffice> for Monitor {
    type Result = ();

    fn handle(&mut self, office: TookOffice, ctx: &mut Self::Context) {
        let TookOffice { epoch, term, token, resumed, live, tickets } = office;
        self.office = Some(Office { epoch, term, token, tickets });
        // The Yard expects no answer from an earlier term.
        self.turn_number += 1;
        let heard = self.nodes.iter().map(|(n, f)| NodeHeard { node: n.clone(), fault: f.clone() });
        self.colleagues.health.do_send(PublishHealth(heard.collect()));
        self.feed(Input::TookOffice { resumed, live }, ctx);
    }
}

impl Handler<LostOffice> for Monitor {
    type Result = ();

    fn handle(&mut self, _: LostOffice, ctx: &mut Self::Context) {
        self.office = None;
        self.turn_number += 1;
        self.feed(Input::LostOffice, ctx);
    }
}

impl Handler<TaskFinished> for Monitor {
    type Result = ();

    fn handle(&mut self, end: TaskFinished, ctx: &mut Self::Context) {
        if self.executors.get(&end.task).is_none_or(|(attempt, _)| *attempt != end.attempt) {
            return;
        }
        let ran = self.begun.remove(&end.task).map(|begun| begun.elapsed());
        if let Some(ran) = ran {
            meters().attempt_ended(end.outcome.name(), ran);
        }
        self.forget(end.task);
        tracing::debug!(task = end.task.0, attempt = end.attempt, "attempt ended");
        let TaskFinished { task, attempt, outcome, .. } = end;
        self.feed(Input::Finished { task, attempt, outcome, ran, chance: super::super::chance() }, ctx);
    }
}

impl Handler<TaskLeft> for Monitor {
    type Result = ();

    fn handle(&mut self, left: TaskLeft, ctx: &mut Self::Context) {
        if self.executors.get(&left.task).is_none_or(|(attempt, _)| *attempt != left.attempt) {
            return;
        }
        self.forget(left.task);
        self.feed(Input::Left { task: left.task, attempt: left.attempt }, ctx);
    }
}

impl Handler<Crashed> for Monitor {
    type Result = ();

    fn handle(&mut self, crash: Crashed, ctx: &mut Self::Context) {
        if self.executors.get(&crash.task).is_none_or(|(attempt, _)| *attempt != crash.attempt) {
            return;
        }
        tracing::error!(
            task = crash.task.0,
            attempt = crash.attempt,
            "an executor crashed; finding out what became of its attempt"
        );
        self.executors.remove(&crash.task);
        if let (Some((task, key)), Some(permit)) = (self.running.remove(&crash.task), crash.permit) {
            self.feed(Input::PlaceLost(crash.task), ctx);
            self.execute(task, key, None, permit, false, ctx);
        }
    }
}

impl Handler<SessionReturned> for Monitor {
    type Result = ();

    fn handle(&mut self, back: SessionReturned, ctx: &mut Self::Context) {
        self.keep(back.key, back.session, ctx);
    }
}

impl Handler<PlaceFreed> for Monitor {
    type Result = ();

    fn handle(&mut self, PlaceFreed { task, attempt, place }: PlaceFreed, ctx: &mut Self::Context) {
        let ours = self.executors.get(&task).is_some_and(|(number, _)| *number == attempt);
        match place {
            Some(place)
                if ours
                    && self.siding.may_lend(&place.key, place.session.as_ref(), &self.settings.sessions) =>
            {
                self.freed = Some((task, place));
                self.feed(Input::PlaceFreed(task), ctx);
                // Nobody chose anything: its office is over.
                self.return_place(task, ctx);
            }
            // The slots go back by being dropped.
            Some(_) | None if ours => self.feed(Input::PlaceLost(task), ctx),
            Some(_) | None => {}
        }
    }
}

impl Handler<SessionsRetried> for Monitor {
    type Result = ();

    fn handle(&mut self, SessionsRetried(key): SessionsRetried, ctx: &mut Self::Context) {
        self.feed(Input::SessionsRetried(key), ctx);
    }
}

impl Handler<NodeHeard> for Monitor {
    type Result = ();

    fn handle(&mut self, heard: NodeHeard, ctx: &mut Self::Context) {
        let NodeHeard { node, fault } = heard.clone();
        let before = self.nodes.insert(node.clone(), fault.clone()).flatten();
        match (&fault, before) {
            (Some(fault), _) => {
                tracing::warn!(node, "the node is down, its tasks wait: {fault}");
                // Sessions that wait there are of no more use; a silent one would only show it when lent.
                for key in self.siding.moved(&node) {
                    self.feed(Input::SessionGone(key), ctx);
                }
            }
            (None, Some(_)) => tracing::info!(node, "the node is well again"),
            (None, None) => {}
        }
        self.colleagues.health.do_send(PublishHealth(vec![heard]));
        self.feed(Input::NodeHeard { node, well: fault.is_none() }, ctx);
    }
}

impl Handler<Terminate> for Monitor {
    type Result = ();

    fn handle(&mut self, _: Terminate, ctx: &mut Self::Context) {
        tracing::info!(
            "terminating: nothing new starts, running tasks have {:?}",
            self.settings.shutdown.grace
        );
        // Whatever keeps the last turns from being taken, the process leaves; recovery does the rest.
        ctx.run_later(self.settings.shutdown.grace + LEAVE_ANYWAY, |monitor, _| {
            if monitor.yard.mode() != Mode::Stopped {
                tracing::error!("what is left could not be settled in time; leaving it to the next start");
                (monitor.colleagues.stopped)(false);
            }
        });
        self.feed(Input::Terminate, ctx);
    }
}

impl Handler<CancelAll> for Monitor {
    type Result = ();

    fn handle(&mut self, _: CancelAll, ctx: &mut Self::Context) {
        tracing::info!("cancelling every job that runs here, then leaving");
        self.feed(Input::CancelAll, ctx);
    }
}

impl Handler<Reload> for Monitor {
    type Result = ();

    fn handle(&mut self, Reload(newer): Reload, ctx: &mut Self::Context) {
        let newer = newer.with_found(&self.found);
        let changes = settings::changes(&self.settings, &newer);
        let say = |c: &settings::Change| format!("{} = {} (was {})", c.key, c.after, c.before);
        let (live, restart): (Vec<_>, Vec<_>) = changes.iter().partition(|c| c.reloadable);
        tracing::info!(
            "settings reloaded: {}{}",
            if live.is_empty() {
                "nothing changed".to_owned()
            } else {
                live.into_iter().map(say).collect::<Vec<_>>().join(", ")
            },
            if restart.is_empty() {
                String::new()
            } else {
                format!("; needs a restart: {}", restart.into_iter().map(say).collect::<Vec<_>>().join(", "))
            }
        );
        let now = self.settings.reloaded(&newer);
        let before = std::mem::replace(&mut self.settings, now);
        let url = |settings: &Settings, name: &String| settings.nodes.get(name).and_then(|n| n.url.clone());
        let moved = before.nodes.keys().filter(|name| url(&before, name) != url(&self.settings, name));
        let gone: Vec<SessionKey> = moved.flat_map(|node| self.siding.moved(node)).collect();
        self.colleagues.limits.do_send(SetLimits {
            limits: limits(&self.settings),
            reserve_after: self.settings.limits.reserve_after,
        });
        self.colleagues.publish.do_send(Publish(Box::new(self.settings.clone())));
        (self.colleagues.reloaded)(&self.settings);
        // From here on sessions are opened where the new settings lead.
        for key in gone {
            self.feed(Input::SessionGone(key), ctx);
        }
        self.feed(Input::Reloaded(rules(&self.settings)), ctx);
    }
}

impl Handler<NodesFound> for Monitor {
    type Result = ();

    fn handle(&mut self, NodesFound(found): NodesFound, ctx: &mut Self::Context) {
        if self.found != found {
            self.found = found;
            self.handle(Reload(Box::new(self.settings.clone())), ctx);
        }
    }
}

impl Handler<GetSnapshot> for Monitor {
    type Result = MessageResult<GetSnapshot>;

    fn handle(&mut self, _: GetSnapshot, _: &mut Self::Context) -> Self::Result {
        let mut running: Vec<TaskId> = self.yard.running().collect();
        running.sort_unstable();
        MessageResult(Snapshot {
            epoch: self.office.as_ref().map(|o| o.epoch),
            mode: self.yard.mode(),
            running,
            unsettled: self.yard.unsettled(),
            idle_sessions: self.yard.idle_sessions(),
        })
    }
}
