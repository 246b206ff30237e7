//! The real Monitor, NodeLimiter, Waker and Executors, over a catalog in memory and sessions without a server, on a paused
//! clock: waiting costs no time, and what never comes fails the test after an hour that takes no time either.

pub mod catalog;
pub mod sessions;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context};
use tokio::sync::{mpsc, watch};
use yardmaster::actors::monitor::{Colleagues, Monitor, limits};
use yardmaster::actors::node_limiter::NodeLimiter;
use yardmaster::actors::runner::OpenFailure;
use yardmaster::actors::waker::Waker;
use yardmaster::messages::{
    GetSlots, GetSnapshot, LostOffice, Resolved, Snapshot, TicketMaker, TookOffice, Wake,
};
use yardmaster::model::{Epoch, Lane, LaneId, SessionKey, TaskStatus};
use yardmaster::settings::Settings;

use catalog::{Catalog, FakeLedger, Fault, Task};
use sessions::{FakeSource, Run};

/// An hour of a paused clock: nothing that is waited for takes as long.
const HOUR: Duration = Duration::from_secs(3600);

pub struct House {
    pub monitor: Addr<Monitor>,
    pub limiter: Addr<NodeLimiter>,
    pub catalog: Arc<Mutex<Catalog>>,
    pub failures: Arc<Mutex<HashMap<String, OpenFailure>>>,
    pub opened: Arc<Mutex<Vec<SessionKey>>>,
    pub verdict: watch::Sender<Option<Resolved>>,
    pub stopped: Rc<RefCell<Vec<bool>>>,
    runs: mpsc::UnboundedReceiver<Run>,
    epoch: i64,
    term: u64,
}

pub fn settings(all: u32, each: u32) -> Settings {
    let mut settings = Settings::default();
    settings.limits.max_task_executors = all;
    settings.limits.max_task_executors_per_node = each;
    settings
}

/// One lane for each owner, on a node of the owner's name.
pub fn lanes(owners: &[&str]) -> Vec<Lane> {
    let lane = |(id, owner): (i32, &&str)| Lane {
        id: LaneId(id),
        session: SessionKey { node: (*owner).to_owned(), owner: (*owner).to_owned(), owner_oid: 1 },
        nodes: vec![(*owner).to_owned()],
    };
    (1..).zip(owners).map(lane).collect()
}

impl House {
    /// Pauses the clock, starts the actors and takes office.
    pub fn open(settings: &Settings, lanes: Vec<Lane>) -> House {
        tokio::time::pause();
        House::another(settings, lanes)
    }

    /// The same when the clock is paused already.
    pub fn another(settings: &Settings, lanes: Vec<Lane>) -> House {
        let (runs_sender, runs) = mpsc::unbounded_channel();
        let (verdict, verdicts) = watch::channel(None);
        let catalog = Arc::new(Mutex::new(Catalog { lanes, ..Catalog::default() }));
        let (failures, opened) = (Arc::default(), Arc::default());
        let source = FakeSource {
            runs: runs_sender,
            pids: AtomicI32::new(100),
            failures: Arc::clone(&failures),
            opened: Arc::clone(&opened),
        };
        let limiter = NodeLimiter::new(limits(settings), settings.limits.reserve_after).start();
        let ledger = FakeLedger { catalog: Arc::clone(&catalog), verdict: verdicts }.start();
        let stopped: Rc<RefCell<Vec<bool>>> = Rc::default();
        let monitor = Monitor::create(|ctx: &mut Context<Monitor>| {
            let heard = Rc::clone(&stopped);
            let colleagues = Colleagues {
                turns: ledger.clone().recipient(),
                resolve: ledger.clone().recipient(),
                scratch: ledger.clone().recipient(),
                output: ledger.clone().recipient(),
                end: ledger.clone().recipient(),
                flush: ledger.clone().recipient(),
                cancel: ledger.clone().recipient(),
                publish: ledger.clone().recipient(),
                health: ledger.clone().recipient(),
                suspect: ledger.recipient(),
                slots: limiter.clone().recipient(),
                adopt: limiter.clone().recipient(),
                limits: limiter.clone().recipient(),
                due: Waker::new(ctx.address().recipient(), None).start().recipient(),
                stopped: Rc::new(move |clean| heard.borrow_mut().push(clean)),
                reloaded: Rc::new(|_| {}),
            };
            Monitor::new(settings.clone(), colleagues, Rc::new(source))
        });
        let mut house =
            House { monitor, limiter, catalog, failures, opened, verdict, stopped, runs, epoch: 1, term: 0 };
        house.take_office(false);
        house
    }

    pub fn take_office(&mut self, resumed: bool) {
        self.epoch += i64::from(!resumed);
        self.term += 1;
        self.monitor.do_send(TookOffice {
            epoch: Epoch(self.epoch),
            term: self.term,
            token: uuid::Uuid::nil(),
            resumed,
            live: self.catalog.lock().unwrap().live(),
            tickets: TicketMaker(Arc::new(|_, _| Vec::new())),
        });
    }

    pub fn lose_office(&self) {
        self.monitor.do_send(LostOffice);
    }

    /// Commits a task and wakes.
    pub fn submit(&self, lane: usize, command: &str, depends_on: &[i64]) -> i64 {
        self.submit_with(lane, command, depends_on, |_| {})
    }

    pub fn submit_with(
        &self,
        lane: usize,
        command: &str,
        depends_on: &[i64],
        change: impl Fn(&mut Task),
    ) -> i64 {
        let mut catalog = self.catalog.lock().unwrap();
        let id = catalog.tasks.len() as i64 + 1;
        let mut task = Task {
            lane,
            job: id,
            command: command.to_owned(),
            depends_on: depends_on.to_vec(),
            timeout: None,
            transactional: None,
            verify: None,
            undo: None,
            status: TaskStatus::Blocked,
            attempt: 0,
            retries: 0,
            backend: None,
            prefetched: false,
            not_before: None,
        };
        change(&mut task);
        catalog.tasks.insert(id, task);
        self.monitor.do_send(Wake);
        id
    }

    pub fn cancel_job(&self, job: i64) {
        self.catalog.lock().unwrap().cancel_asked.insert(job);
        self.monitor.do_send(Wake);
    }

    pub fn fault(&self, fault: Fault) {
        self.catalog.lock().unwrap().faults.push_back(fault);
    }

    /// The next run that starts.
    pub async fn run(&mut self) -> Run {
        tokio::time::timeout(HOUR, self.runs.recv()).await.expect("a run starts").expect("the source lives")
    }

    /// Lets `time` pass and says that nothing started meanwhile.
    pub async fn nothing_starts_for(&mut self, time: Duration) {
        if let Ok(Some(run)) = tokio::time::timeout(time, self.runs.recv()).await {
            panic!("task {} started", run.task);
        }
    }

    /// Waits until the catalog is as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Catalog) -> bool) {
        let looking = async {
            while !wanted(&self.catalog.lock().unwrap()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(HOUR, looking).await.unwrap_or_else(|_| panic!("never came: {what}"));
    }

    pub async fn until_status(&self, task: i64, status: TaskStatus) {
        self.until(&format!("task {task} {status}"), |c| c.tasks[&task].status == status).await;
    }

    /// Waits until a run was cancelled.
    pub async fn until_cancelled(&self, run: &Run) {
        let looking = async {
            while run.cancels() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(HOUR, looking).await.expect("a cancel request");
    }

    /// Waits for Stop.
    pub async fn until_stopped(&self) -> bool {
        let looking = async {
            loop {
                if let Some(clean) = self.stopped.borrow().first() {
                    return *clean;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(HOUR, looking).await.expect("it stops")
    }

    pub async fn slots_used(&self) -> u32 {
        self.limiter.send(GetSlots).await.expect("the limiter lives").used
    }

    pub async fn snapshot(&self) -> Snapshot {
        self.monitor.send(GetSnapshot).await.expect("the monitor lives")
    }
}
