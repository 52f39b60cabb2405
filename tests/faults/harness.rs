//! One service under load, the fault that befalls its store, and what must hold whatever that is.
//!
//! | | what must hold |
//! |---|---|
//! | I1 | every request is decided, within the store's deadline and 25 ms; see [`Rig::check_times`] for what the machine adds |
//! | I2 | no panic, no task that stays behind, no memory that stays taken |
//! | I3 | no key is admitted more than the algorithm's definition allows, on the store and in the fallback, each by itself |
//! | I4 | the store decides again by itself soon after it could |
//! | I5 | the status counts the errors, the breaker is closed in the end, and the log has a line per change and no flood |
//! | I6 | no key and no password is in the log |
//! | I7 | the store has charged what was admitted, and at most what was not answered in time besides |
//! | I8 | a refusal says when to come back, and its fields can be parsed |

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluicegate_core::{Basis, BreakerSettings, BreakerState, RateLimiter, Resilient, ResilientStatus, Store};
use sluicegate_redis::{RedisStore, RedisStoreBuilder};
use tokio::runtime::Runtime;

use crate::load::{KEYS, Kind, LEDGER, Load, Record, key};
use crate::logs::Logs;
use crate::machine::{AT_ONCE, lateness, memory, memory_before, note_panics, panics_of, watch};
use crate::oracle::Admission;

/// What a decision may take beyond its deadline, on a machine with nothing else to do.
const SLACK: Duration = Duration::from_millis(25);

/// What the slowest decision may take in all.
const HARD_CAP: Duration = Duration::from_millis(250);

/// From the healing to the first decision of the store: the longest pause of the breaker with its 20 % of chance, and
/// 1.5 s for the connection; half a second is this machine's.
const RECOVERY: Duration = Duration::from_millis(1_200 + 1_500 + 500);

/// After it has closed, the breaker lets only a part of the calls through for so long.
const RAMP: Duration = Duration::from_secs(1);

/// How a service under test is set up; the defaults are those of the library.
pub(crate) struct Setup {
    url: String,
    redis: RedisStoreBuilder,
    deadline: Duration,
    replicas: u64,
    breaker: BreakerSettings,
    is_bare: bool,
    is_connected: bool,
    ledger: Option<String>,
}

impl Setup {
    pub(crate) fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            redis: RedisStore::builder(),
            deadline: Duration::from_millis(50),
            replicas: 1,
            breaker: BreakerSettings::new(),
            is_bare: false,
            is_connected: true,
            ledger: None,
        }
    }

    /// The service begins without its store.
    pub(crate) fn unconnected(mut self) -> Self {
        self.is_connected = false;
        self
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.redis = self.redis.deadline(deadline);
        self
    }

    pub(crate) fn replicas(mut self, replicas: u64) -> Self {
        self.replicas = replicas;
        self
    }

    pub(crate) fn breaker(mut self, breaker: BreakerSettings) -> Self {
        self.breaker = breaker;
        self
    }

    /// Where the ledger is in the end, if it is elsewhere.
    pub(crate) fn ledger_at(mut self, url: String) -> Self {
        self.ledger = Some(url);
        self
    }

    /// Without the wrapper that is under test, to see that it is what keeps the promises.
    pub(crate) fn bare(mut self) -> Self {
        self.is_bare = true;
        self
    }

    /// Starts it and the load, and waits until all is as it should be before a fault.
    pub(crate) fn start(self) -> Rig {
        Rig::start(self)
    }
}

/// What a fault excuses; nothing unless said.
#[derive(Clone, Copy)]
pub(crate) struct Excuse {
    /// How often the server lost its state, or went back to an older one.
    pub(crate) losses: u64,
    /// Calls whose answers were lost otherwise than by coming too late: executed, and charged again.
    pub(crate) lost_answers: u64,
    /// Time that the servers among themselves need on top, after the healing.
    pub(crate) later_by: Duration,
    /// Tasks more than before, as when a cluster has other nodes now.
    pub(crate) tasks: usize,
    /// It went so well that no request needed the fallback.
    pub(crate) unnoticed: bool,
    /// The server's clock was changed, and with it how much of a month has passed for the ledger.
    pub(crate) clock: bool,
    /// How long the runtime was kept from running at once.
    pub(crate) blocked: Duration,
    /// Other instances spend from the same keys, so that the scenario has to add up by itself.
    pub(crate) shared: bool,
}

pub(crate) const NOTHING: Excuse = Excuse {
    losses: 0,
    lost_answers: 0,
    later_by: Duration::ZERO,
    tasks: 2,
    unnoticed: false,
    clock: false,
    blocked: Duration::ZERO,
    shared: false,
};

/// A service under load.
pub(crate) struct Rig {
    runtime: Runtime,
    name: String,
    pub(crate) redis: RedisStore,
    store: Resilient,
    pub(crate) load: Arc<Load>,
    pub(crate) logs: Logs,
    setup: (String, Duration, u64, bool),
    tasks: usize,
    fault: Cell<Option<Instant>>,
    healed: Cell<Option<Instant>>,
    opened: Cell<u64>,
}

/// What was seen, for what a scenario expects besides.
pub(crate) struct Findings {
    pub(crate) records: Vec<Record>,
    pub(crate) status: ResilientStatus,
    pub(crate) logs: Logs,
    pub(crate) fault: Instant,
    healed: Instant,
    opened: u64,
    /// From the healing to the first decision of the store.
    recovered_after: Duration,
}

impl Findings {
    /// Requests that began after the fault did, and were decided on this basis.
    pub(crate) fn since_fault(&self, basis: Basis) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.at >= self.fault && record.is(basis))
    }

    /// Checks that the store decided again so soon after the healing; what the machine was late by does not count.
    pub(crate) fn recovered_within(&self, most: Duration) {
        let machine = lateness(self.healed, self.healed + self.recovered_after);
        assert!(self.recovered_after <= most + machine, "{:?} after the healing", self.recovered_after);
    }

    /// Checks that from some time after the fault on, no request waited for anything as long as it lasted.
    pub(crate) fn nobody_waited(&self, from: Duration) {
        let outage = self.fault + from..self.healed;
        let during: Vec<_> = self.records.iter().filter(|record| outage.contains(&record.at)).collect();
        let waited: Vec<_> =
            during.iter().filter(|record| record.took > SLACK + lateness(record.at, record.end())).collect();
        assert!(
            waited.len() <= during.len() / 200,
            "{} of {} waited: {waited:?}",
            waited.len(),
            during.len()
        );
    }

    /// What one key was admitted by one policy, on this basis.
    pub(crate) fn admitted(&self, policy: Kind, index: usize, basis: Basis) -> Vec<Admission> {
        admitted(&self.records, policy, index, basis)
    }

    /// Units of the ledger that were admitted, and calls that were given up.
    pub(crate) fn spent(&self) -> (u64, u64) {
        let (store, alone, given_up) = spent(&self.records, Duration::from_millis(50));
        (store + alone, given_up)
    }

    /// Calls that the store did not answer, or not in time.
    pub(crate) fn errors(&self) -> u64 {
        self.status.timeouts + self.status.unavailable + self.status.protocol
    }

    /// Checks that the breaker has not opened since the fault, unless the machine was so late that it had to.
    pub(crate) fn stayed_closed(&self) {
        let machine = lateness(self.fault, self.healed + Duration::from_secs(2));
        let opened = self.status.opened - self.opened;
        assert!(opened == 0 || machine > SLACK, "opened {opened} times: {:?}", self.status);
    }

    /// Checks that the log names this as the reason why the store failed.
    pub(crate) fn logged(&self, reason: &str) {
        let lines = self.logs.lines();
        let loud: Vec<_> = lines.iter().filter(|line| line.level <= tracing::Level::WARN).collect();
        assert!(loud.iter().any(|line| line.text.contains(reason)), "{reason} is not in {loud:#?}");
    }
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
        let store = Resilient::builder(&redis).replicas(setup.replicas).breaker(setup.breaker).build();
        let store = store.expect("the settings are possible");
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
            setup: (setup.ledger.unwrap_or(setup.url), setup.deadline, setup.replicas, setup.is_bare),
            tasks,
            fault: Cell::new(None),
            healed: Cell::new(None),
            opened: Cell::new(0),
        };
        let begun = Instant::now();
        // A machine that is late may make calls late before there is a fault.
        while setup.is_connected && !rig.is_calm(Duration::from_millis(500)) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", rig.status());
            sleep(Duration::from_millis(20));
        }
        if !setup.is_connected {
            sleep(Duration::from_millis(500));
        }
        rig
    }

    /// Whether the store has decided everything for so long.
    fn is_calm(&self, time: Duration) -> bool {
        let Some(from) = Instant::now().checked_sub(time) else { return false };
        let records = self.load.since(from);
        // Of 200 a second, some may be under way.
        let enough = records.len() as u128 >= time.as_millis() / 5 * 3 / 4;
        enough && records.iter().all(|record| record.is(Basis::Store))
    }

    pub(crate) fn status(&self) -> ResilientStatus {
        self.store.status()
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
            self.opened.set(self.status().opened);
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
            opened: self.opened.get(),
            recovered_after: recovery,
        };
        (findings, broken)
    }

    /// I4.
    fn recover(&self, healed: Instant, excuse: Excuse, broken: &mut Vec<String>) -> Duration {
        let until = RECOVERY + excuse.later_by;
        let mut is_settled = false;
        while !is_settled && healed.elapsed() < until + RAMP + Duration::from_secs(2) {
            sleep(Duration::from_millis(20));
            let status = self.status();
            let quiet = status.breaker == BreakerState::Closed && status.debts == 0;
            let time = Duration::from_millis(500);
            is_settled = healed.elapsed() > time && quiet && self.is_calm(time);
        }
        let since = self.load.since(healed);
        let first = since.iter().filter(|record| record.is(Basis::Store)).map(Record::end).min();
        let after = first.map_or(Duration::MAX, |first| first - healed);
        let machine = lateness(healed, healed + until);
        if after > until + machine {
            broken.push(format!("I4: the store decided again {after:?} after the healing"));
        }
        let last = since.iter().filter(|record| !record.is(Basis::Store)).map(|record| record.at).max();
        let last = last.map_or(Duration::ZERO, |last| last - healed);
        if !is_settled || last > until + RAMP + machine {
            broken.push(format!("I4: {last:?} after the healing, others than the store still decided"));
        }
        after
    }

    /// I2.
    fn check_tasks_and_memory(&self, excuse: Excuse, broken: &mut Vec<String>) {
        let tasks = || self.runtime.metrics().num_alive_tasks();
        let until = Instant::now() + Duration::from_secs(3);
        // The connections that were given up end in their own time.
        while (self.load.under_way() > 0 || tasks() > self.tasks + excuse.tasks) && Instant::now() < until {
            sleep(Duration::from_millis(10));
        }
        if self.load.under_way() > 0 {
            broken.push(format!("I2: {} requests are still under way", self.load.under_way()));
        }
        if tasks() > self.tasks + excuse.tasks {
            broken.push(format!("I2: {} tasks, and {} before the load", tasks(), self.tasks));
        }
        broken.extend(panics_of(&self.name).iter().map(|panic| format!("I2: {panic}")));
        // What all scenarios that run at once have allocated, so it is what all of them may have: what one leaves behind adds
        // up over the suite, and is found by those that come after it.
        let grown = memory().saturating_sub(memory_before()) >> 20;
        if grown >= 20 * AT_ONCE {
            broken.push(format!("I2: {grown} MiB more than in the beginning"));
        }
    }

    /// I1. All must be decided. Of the calls, 99.5 % may take the deadline and 25 ms, and none more than 250 ms; to both
    /// comes how late a bare thread was at the same time, for on two cores with other scenarios at work that is no fault of
    /// the program's.
    fn check_times(&self, records: &[Record], blocked: Duration, broken: &mut Vec<String>) {
        let undecided = records.iter().find_map(|record| record.basis.as_ref().err());
        if let Some(error) = undecided {
            let count = records.iter().filter(|record| record.basis.is_err()).count();
            broken.push(format!("I1: {count} requests were not decided: {error}"));
        }
        let above = |most: Duration| {
            records.iter().filter(move |record| {
                record.took > most && record.took > most + lateness(record.at, record.end())
            })
        };
        let late = above(self.setup.1 + SLACK + blocked).count();
        if late > records.len() / 200 {
            broken.push(format!("I1: {late} of {} requests were late", records.len()));
        }
        if let Some(slow) = above(HARD_CAP + blocked).max_by_key(|record| record.took) {
            broken.push(format!("I1: a request took {:?}", slow.took));
        }
    }

    /// I3. What the store admitted keeps the law of the whole, what the fallback admitted that of a share; so the sum
    /// keeps the bound that is documented.
    fn check_admissions(&self, records: &[Record], excuse: Excuse, broken: &mut Vec<String>) {
        for policy in Kind::LAWFUL {
            for index in 0..KEYS {
                let store = admitted(records, policy, index, Basis::Store);
                let store = policy.law().check(&store, excuse.losses);
                let fallback = admitted(records, policy, index, Basis::Fallback);
                let fallback = policy.law().share(self.setup.2).check(&fallback, 0);
                for problem in [store.err(), fallback.err()].into_iter().flatten() {
                    broken.push(format!("I3: {policy:?}, key {index}: {problem}"));
                }
            }
        }
        for record in records.iter().filter(|record| record.is(Basis::Outage)) {
            let is_so = match record.kind {
                Kind::Allow => record.allowed,
                Kind::Deny => !record.allowed,
                _ => false,
            };
            if !is_so {
                broken.push(format!("I3: not what the policy says of an outage: {record:?}"));
                break;
            }
        }
    }

    /// I5 and I6.
    fn check_counts_and_logs(
        &self,
        records: &[Record],
        fault: Instant,
        excuse: Excuse,
        broken: &mut Vec<String>,
    ) {
        let status = self.status();
        let errors = status.timeouts + status.unavailable + status.protocol;
        let elsewhere = records.iter().filter(|r| r.at >= fault && !r.is(Basis::Store)).count();
        if !excuse.unnoticed && (errors == 0 || elsewhere == 0) {
            broken.push(format!("I5: {errors} errors, {elsewhere} decisions without the store"));
        }
        let lines = self.logs.lines();
        let changes: Vec<_> = ["the rate limit store fails", "the rate limit store decides again"]
            .map(|message| self.logs.about(message).len())
            .into();
        let balanced = if status.breaker == BreakerState::Closed { changes[0] >= changes[1] } else { true };
        if !balanced || (status.opened > 0) != (changes[0] > 0) || (changes[0] > 0) != (changes[1] > 0) {
            broken.push(format!("I5: opened {} times, and logged {changes:?}", status.opened));
        }
        broken.extend(self.logs.flood().map(|flood| format!("I5: {flood}")));
        let secrets = ["secret.example", "hunter2"];
        let told = lines.iter().find(|line| secrets.iter().any(|secret| line.text.contains(secret)));
        broken.extend(told.map(|line| format!("I6: {}", line.text)));
    }

    /// I7.
    fn check_ledger(&self, records: &[Record], excuse: Excuse, broken: &mut Vec<String>) {
        if self.setup.3 || excuse.clock || excuse.shared {
            return;
        }
        let ledger = self.ledger();
        let (by_store, alone, given_up) = spent(records, self.setup.1);
        let most = by_store + alone + given_up + excuse.lost_answers;
        let least = if excuse.losses > 0 { 0 } else { by_store + alone };
        let until = Instant::now() + Duration::from_secs(2);
        let charged = loop {
            // What the fallback admitted is charged in the background.
            let charged = ledger.charged();
            if charged >= least || Instant::now() > until {
                break charged;
            }
            sleep(Duration::from_millis(50));
        };
        if !(least..=most).contains(&charged) {
            broken.push(format!(
                "I7: {charged} charged; admitted {by_store} and {alone} alone, {given_up} given up"
            ));
        }
    }

    /// The ledger, beside the wrapper and for longer than the rig.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::of(&self.setup.0)
    }
}

/// Reads off the server what was charged.
pub(crate) struct Ledger {
    runtime: Runtime,
    limiter: RateLimiter,
}

impl Ledger {
    fn of(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limiter = runtime.block_on(async {
            let redis = RedisStore::builder().deadline(Duration::from_secs(5)).connect(url).unwrap();
            redis.connected(Duration::from_secs(20)).await.expect("the store has recovered");
            Kind::Ledger.policy().on(&redis).unwrap()
        });
        Self { runtime, limiter }
    }

    /// What was charged so far, in all.
    pub(crate) fn charged(&self) -> u64 {
        let charged = |index| {
            let standing = self.runtime.block_on(self.limiter.peek(key(index)));
            LEDGER - standing.expect("the store has recovered").remaining()
        };
        (0..KEYS).map(charged).sum()
    }
}

/// What one key was admitted by one policy, on this basis.
fn admitted(records: &[Record], policy: Kind, index: usize, basis: Basis) -> Vec<Admission> {
    let of_it = |record: &&Record| record.kind.spends_from(policy) && record.key == index;
    let admitted = |record: &&Record| record.allowed && record.is(basis);
    let records = records.iter().filter(of_it).filter(admitted);
    records.map(|record| Admission { from: record.at, to: record.end() }).collect()
}

/// Of the ledger: what the store admitted, what the fallback did, and how many calls were given up at their deadline, so
/// that they may have been executed later.
fn spent(records: &[Record], deadline: Duration) -> (u64, u64, u64) {
    let ledger = || records.iter().filter(|record| record.kind == Kind::Ledger);
    let admitted = |basis| ledger().filter(|record| record.allowed && record.is(basis)).count();
    let is_given_up =
        |record: &&Record| record.is(Basis::Fallback) && record.took + Duration::from_millis(5) >= deadline;
    let given_up = ledger().filter(is_given_up).count();
    let [store, alone, given_up] =
        [admitted(Basis::Store), admitted(Basis::Fallback), given_up].map(|count| count as u64);
    (store, alone, given_up)
}
