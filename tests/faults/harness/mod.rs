//! One service under load, the fault that befalls its store, and what must hold whatever that is.
//!
//! | | what must hold |
//! |---|---|
//! | I1 | every request is decided, within the store's deadline and 25 ms; see [`strain`](crate::machine::strain) for what a busy machine adds |
//! | I2 | no panic, no task that stays behind, no memory that stays taken |
//! | I3 | no key is admitted more than the algorithm's definition allows, on the store and in the fallback, each by itself |
//! | I4 | the store decides again by itself soon after it could |
//! | I5 | the status counts the errors, the breaker is closed in the end, and the log has a line per change and no flood |
//! | I6 | no key and no password is in the log |
//! | I7 | the store has charged what was admitted, and at most what was not answered in time besides |
//! | I8 | a refusal says when to come back, and its fields can be parsed |

mod checks;
mod findings;
mod ledger;
mod setup;

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluicegate_core::store::DecidedBy;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_resilient::ResilientStatus;
use sluicegate_tests::servers::eventually;
use tokio::runtime::Runtime;

pub(crate) use self::findings::Findings;
use self::ledger::Ledger;
pub(crate) use self::setup::{Excuse, NOTHING, Setup};
use crate::load::Load;
use crate::logs::Logs;
use crate::machine::{memory_before, note_panics, watch};

/// What a decision may take beyond its deadline, on a machine with nothing else to do.
const SLACK: Duration = Duration::from_millis(25);

/// A service under load.
pub(crate) struct Rig {
    runtime: Runtime,
    name: String,
    pub(crate) redis: RedisStore,
    store: Resilient,
    pub(crate) load: Arc<Load>,
    pub(crate) logs: Logs,
    ledger_url: String,
    deadline: Duration,
    replicas: u64,
    is_bare: bool,
    tasks: usize,
    fault: Cell<Option<Instant>>,
    healed: Cell<Option<Instant>>,
    before: Cell<Option<ResilientStatus>>,
}

impl Rig {
    fn start(setup: Setup) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        note_panics();
        memory_before();
        watch();
        // Relaxed: only the number has to be new.
        let name = format!("rig-{}-", NEXT.fetch_add(1, Ordering::Relaxed));
        let logs = Logs::default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(name.clone())
            .on_thread_start(logs.listen())
            .enable_all()
            .build()
            .expect("there is room for a runtime");
        let entered = runtime.enter();
        let redis = setup.redis.connect(&setup.url).expect("the URL can be read");
        // The load has 50 keys; what is measured is what a fault adds, and not the tables of the scenarios beside this one.
        let memory = MemoryStore::builder().table_size(5_000).build().expect("the settings are possible");
        let store =
            Resilient::builder(&redis).fallback(memory).replicas(setup.replicas).breaker(setup.breaker);
        let store = store.build().expect("the settings are possible");
        drop(entered);
        if setup.is_connected {
            runtime.block_on(redis.connected(Duration::from_secs(20))).expect("the store is up");
        }
        let decides: Arc<dyn Store> = if setup.is_bare { (&redis).into() } else { (&store).into() };
        let load = Load::on(&decides);
        sleep(Duration::from_millis(50));
        let tasks = runtime.metrics().num_alive_tasks();
        runtime.spawn(Arc::clone(&load).run());
        let rig = Self {
            runtime,
            name,
            redis,
            store,
            load,
            logs,
            ledger_url: setup.ledger.unwrap_or(setup.url),
            deadline: setup.deadline,
            replicas: setup.replicas,
            is_bare: setup.is_bare,
            tasks,
            fault: Cell::new(None),
            healed: Cell::new(None),
            before: Cell::new(None),
        };
        if setup.is_connected {
            eventually("all is well before the fault", || rig.is_calm(Duration::from_millis(500)));
        }
        if !setup.is_connected {
            sleep(Duration::from_millis(500));
        }
        rig
    }

    /// Whether the store has decided all but a few requests of this time; a busy machine may always miss some.
    pub(crate) fn is_calm(&self, time: Duration) -> bool {
        let Some(from) = Instant::now().checked_sub(time) else { return false };
        let records = self.load.since(from);
        // Of 200 a second, some may be under way.
        let enough = records.len() as u128 >= time.as_millis() / 5 * 3 / 4;
        let missed = records.iter().filter(|record| !record.is(DecidedBy::Store)).count();
        enough && missed * 20 <= records.len()
    }

    pub(crate) fn status(&self) -> ResilientStatus {
        self.store.status()
    }

    /// A store on the same server that waits for long: for what a scenario wants to know, and not to test.
    pub(crate) fn patient(&self) -> RedisStore {
        self.block_on(async {
            let redis = RedisStore::builder().deadline(Duration::from_secs(5));
            let redis = redis.connect(&self.ledger_url).expect("the URL can be read");
            redis.connected(Duration::from_secs(20)).await.expect("the store is up");
            redis
        })
    }

    /// Runs something where tasks can be spawned.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// The fault begins.
    pub(crate) fn fault<T>(&self, inject: impl FnOnce() -> T) -> T {
        // Of several, the first.
        if self.fault.get().is_none() {
            self.fault.set(Some(Instant::now()));
            self.before.set(Some(self.status()));
        }
        inject()
    }

    /// The fault is over, as far as the store could know.
    pub(crate) fn heal<T>(&self, heal: impl FnOnce() -> T) -> T {
        let healed = heal();
        self.healed.set(Some(Instant::now()));
        healed
    }

    /// Fault, some time in it, and healing.
    pub(crate) fn during(&self, time: Duration, inject: impl FnOnce(), heal: impl FnOnce()) {
        self.fault(inject);
        sleep(time);
        self.heal(heal);
    }

    /// Waits for the recovery, ends the load, and checks everything.
    pub(crate) fn finish(self, excuse: Excuse) -> Findings {
        let (findings, broken) = self.examine(excuse);
        let shown: Vec<_> = findings.logs.lines().iter().map(|line| line.text.clone()).collect();
        assert!(
            broken.is_empty(),
            "{}\n{:?}\n{}",
            broken.join("\n"),
            findings.status,
            shown[..shown.len().min(60)].join("\n")
        );
        findings
    }

    /// Waits for the recovery, ends the load, and says what did not hold.
    pub(crate) fn examine(self, excuse: Excuse) -> (Findings, Vec<String>) {
        let fault = self.fault.get().expect("there was a fault");
        let before = self.before.get().expect("there was a fault");
        let healed = self.healed.get().expect("it was healed");
        let mut broken = Vec::new();
        let recovery = self.recover(healed, excuse, &mut broken);
        self.load.end();
        self.check_tasks_and_memory(excuse, &mut broken);
        let records = self.load.records();
        self.check_times(&records, excuse.blocked, &mut broken);
        self.check_admissions(&records, excuse, &mut broken);
        self.check_counts_and_logs(&records, fault, excuse, &mut broken);
        self.check_ledger(&records, excuse, &mut broken);
        broken.extend(self.load.misled.lock().unwrap().drain(..).take(3).map(|what| format!("I8: {what}")));
        let findings = Findings {
            records,
            status: self.status(),
            logs: self.logs.clone(),
            fault,
            healed,
            before,
            recovered_after: recovery,
        };
        (findings, broken)
    }

    /// The ledger, beside the wrapper and for longer than the rig.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::of(&self.ledger_url)
    }
}
