//! One of the processes: it is told by lines of its input what to do, and says what became of it by lines of its output.

use std::cell::RefCell;
use std::io::{BufRead, stdin};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate::store::DecidedBy;
use sluicegate::{Decision, Policy, Quota, RateLimiter, Store, StoreError};
use sluicegate_fleet::{DenyCache, Leased};
use sluicegate_redis::RedisStore;
use sluicegate_tests::random::{Random, Zipf};
use tokio::task::{LocalSet, spawn_local};

/// The variable that tells a process what it is: server, stores around stores, keys and its number, parted by semicolons.
pub(crate) const SETUP: &str = "SLUICEGATE_FLEET_BENCH";

/// Requests of a process that are under way at a time.
const CALLERS: usize = 64;

/// Decisions that a caller makes before others have their turn.
const TURN: usize = 32;

/// The decisions about one key.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Decisions, and those that allowed, before it counts.
    pub(crate) warm: u64,
    pub(crate) warm_admitted: u64,
    /// Decisions that count, by who has made them, and those that allowed.
    pub(crate) store: u64,
    pub(crate) lease: u64,
    pub(crate) cache: u64,
    /// Calls that Redis did not answer: it may have decided them all the same.
    pub(crate) unanswered: u64,
    pub(crate) admitted: u64,
}

impl Tally {
    pub(crate) fn decisions(&self) -> u64 {
        self.asked() + self.lease + self.cache
    }

    /// Those that were Redis' to make.
    pub(crate) fn asked(&self) -> u64 {
        self.store + self.unanswered
    }

    fn fields(&mut self) -> [&mut u64; 7] {
        let Self { warm, warm_admitted, store, lease, cache, unanswered, admitted } = self;
        [warm, warm_admitted, store, lease, cache, unanswered, admitted]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        self.fields().into_iter().zip(other.fields()).for_each(|(sum, more)| *sum += *more);
    }

    pub(crate) fn read(line: &str) -> Self {
        let mut tally = Self::default();
        let mut numbers = line.split(' ').map(|number| number.parse().expect("it writes numbers"));
        tally.fields().into_iter().for_each(|field| *field = numbers.next().expect("it writes seven"));
        assert!(numbers.next().is_none());
        tally
    }

    fn write(mut self) {
        let numbers = self.fields().map(|number| number.to_string());
        println!("{}", numbers.join(" "));
    }
}

/// Whether this process was started by the bench.
pub(crate) fn is_one() -> bool {
    std::env::var_os(SETUP).is_some()
}

/// Does what it is told until its input ends.
pub(crate) fn serve() -> ExitCode {
    let setup = std::env::var(SETUP).expect("it is a text");
    let setup: Vec<&str> = setup.split(';').collect();
    let [url, wrap, keys, number] = setup[..] else { panic!("{setup:?}") };
    let keys: usize = keys.parse().expect("a number of keys");
    let mut random = Random::new(number.parse().expect("a number"));
    let popularity = Zipf::new(keys, 1.0);
    // Drawn before it counts.
    let popular: Rc<[u32]> = (0..1 << 18).map(|_| draw(&popularity, &mut random)).collect();
    let even: Rc<[u32]> = (0..1 << 18).map(|_| draw(&Zipf::new(keys, 0.0), &mut random)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the machine can wait for sockets");
    LocalSet::new().block_on(&runtime, async {
        let store = connect(url, wrap).await;
        println!("ready");
        for line in stdin().lock().lines().map_while(Result::ok) {
            let words: Vec<&str> = line.splitn(6, ' ').collect();
            let [run, warm, measured, which, rate, quota] = words[..] else { panic!("{line:?}") };
            let quota: Quota = quota.parse().expect("a quota");
            let limiter = Policy::gcra(format!("run-{run}"), quota).on(Arc::clone(&store));
            let ms = |ms: &str| Duration::from_millis(ms.parse().expect("milliseconds"));
            let load = Load {
                limiter: limiter.expect("the quota is possible"),
                draws: Rc::clone(if which == "popular" { &popular } else { &even }),
                tallies: Rc::new(RefCell::new(vec![Tally::default(); keys])),
                warm: Instant::now() + ms(warm),
                end: Instant::now() + ms(warm) + ms(measured),
            };
            let began = Instant::now();
            match rate.parse().expect("a rate") {
                0 => load.as_fast_as_possible().await,
                rate => load.at(rate).await,
            }
            println!("{} {}", (load.warm - began).as_secs_f64(), load.warm.elapsed().as_secs_f64());
            load.tallies.borrow().iter().for_each(|tally| tally.write());
            println!("end");
        }
    });
    ExitCode::SUCCESS
}

#[expect(clippy::cast_possible_truncation, reason = "there are a thousand keys")]
fn draw(popularity: &Zipf, random: &mut Random) -> u32 {
    popularity.draw(random) as u32
}

async fn connect(url: &str, wrap: &str) -> Arc<dyn Store> {
    // Nobody decides alone, however long a busy machine takes.
    let redis = RedisStore::builder().deadline(Duration::from_secs(20)).connect(url);
    let redis = redis.expect("the URL can be read");
    redis.connected(Duration::from_secs(20)).await.expect("the server is up");
    let mut store: Arc<dyn Store> = (&redis).into();
    if wrap.contains("leased") {
        store = Leased::new(store).into();
    }
    if wrap.contains("deny") {
        let mut cache = DenyCache::builder(store);
        if let Some((_, seconds)) = wrap.split_once("deny=") {
            cache = cache.longest(Duration::from_secs(seconds.parse().expect("seconds")));
        }
        store = cache.build().expect("the settings are possible").into();
    }
    store
}

/// A run.
#[derive(Clone)]
struct Load {
    limiter: RateLimiter,
    draws: Rc<[u32]>,
    tallies: Rc<RefCell<Vec<Tally>>>,
    /// From then on it counts.
    warm: Instant,
    end: Instant,
}

impl Load {
    /// All callers, each of which goes on when it is answered.
    async fn as_fast_as_possible(&self) {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let load = self.clone();
                spawn_local(async move { load.call(caller * load.draws.len() / CALLERS).await })
            })
            .collect();
        for caller in callers {
            caller.await.expect("it does not panic");
        }
    }

    async fn call(&self, mut place: usize) {
        loop {
            let now = Instant::now();
            if now >= self.end {
                return;
            }
            for _ in 0..TURN {
                let key = self.next(&mut place);
                let answer = self.limiter.check(u64::from(key)).start();
                // Looked at where it is, if it is known: a decision is large, and this loop is not to be what is measured.
                match answer.known() {
                    Some(decision) => self.count(key, decision, now >= self.warm),
                    None => self.count(key, &answer.await, now >= self.warm),
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Requests that come by the clock, whatever becomes of those before.
    async fn at(&self, rate: u64) {
        let (began, mut sent, mut place) = (Instant::now(), 0, 0);
        let mut tick = tokio::time::interval(Duration::from_millis(2));
        loop {
            let now = tick.tick().await.into_std();
            if now >= self.end {
                return;
            }
            let passed_us = u64::try_from((now - began).as_micros()).expect("a run is short");
            let due = passed_us * rate / 1_000_000;
            for _ in sent..due {
                let key = self.next(&mut place);
                let is_warm = now >= self.warm;
                let answer = self.limiter.check(u64::from(key)).start();
                match answer.known() {
                    Some(decision) => self.count(key, decision, is_warm),
                    None => {
                        let load = self.clone();
                        spawn_local(async move { load.count(key, &answer.await, is_warm) });
                    }
                }
            }
            sent = due;
        }
    }

    /// The next key of a list that has no end.
    fn next(&self, place: &mut usize) -> u32 {
        *place = if *place + 1 < self.draws.len() { *place + 1 } else { 0 };
        self.draws[*place]
    }

    fn count(&self, key: u32, decision: &Result<Decision, StoreError>, is_warm: bool) {
        let tally = &mut self.tallies.borrow_mut()[key as usize];
        // Without an answer in time it is the policy that decides, and Redis may have counted it all the same.
        let decision = decision.as_ref().ok().filter(|decision| decision.decided_by() != DecidedBy::Outage);
        let admitted = u64::from(decision.is_some_and(Decision::is_allowed));
        if !is_warm {
            tally.warm += 1;
            tally.warm_admitted += admitted;
            return;
        }
        tally.admitted += admitted;
        *match decision.map(Decision::decided_by) {
            Some(DecidedBy::Lease) => &mut tally.lease,
            Some(DecidedBy::Cache) => &mut tally.cache,
            Some(DecidedBy::Store) => &mut tally.store,
            Some(other) => panic!("decided by {other:?}"),
            None => &mut tally.unanswered,
        } += 1;
    }
}
