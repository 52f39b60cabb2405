//! The line that several instances share, in Redis: [`RedisLine`].
//!
//! | part of the slot | holds |
//! |---|---|
//! | `line` | everything except the places, about 250 bytes |
//! | `places` | a place by its number: lot, state, time, client |
//! | `clients` | the number of waiting places of a client, if it is bounded |
//! | `ends`, `out` | passes that are out, if their number is bounded |
//! | `ended` | passes that ended early |
//!
//! A call is one run of the script, which has the rules of [`schedule`](super::schedule) in Lua: the same polls at the same times get
//! the same answers in memory and here.

mod reply;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::clock::{Clock, SystemClock, micros};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::store::KeptTask;
use sluicegate_core::support::lock;
use sluicegate_core::{Algorithm, ConfigError, Quota, StoreError};
use sluicegate_redis::{HashSlot, RedisStore};
use tokio::sync::Notify;
use tokio::time::timeout;

use self::reply::{LineSnapshot, SCRIPT, answer, known};
use crate::line::places::AGAIN_US;
use crate::line::{
    Line, LineAnswer, LineAsk, LineChange, LineFuture, LineHome, LineMode, LinePlace, LineSettings,
    LineStatus,
};

/// The keys of a line, as the script has them.
const PARTS: [&str; 6] = ["line", "places", "clients", "ends", "out", "ended"];

/// The time for which unused keys stay, beyond the opening and the length of a pass.
const STAYS: Duration = Duration::from_secs(86_400);

/// The most that this instance's view of other instances may lag.
const REFRESHED_EACH: Duration = Duration::from_secs(1);

/// The numbers of a rate stay below it, so that the script counts a thousand turns exactly.
const EXACT: u64 = 1 << 42;

/// Keeps lines in Redis, where all instances of a service share them. A poll is one call.
///
/// ```no_run
/// use sluicegate_overflow::WaitingRoom;
/// use sluicegate_overflow::line::RedisLine;
/// use sluicegate_redis::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379")?;
/// let sale = WaitingRoom::builder("sale", "1000/s")
///     .secrets("the same on every instance", None)
///     .build(RedisLine::new(&store))?;
/// # Ok(())
/// # }
/// ```
///
/// # Instances that disagree
/// Rate and mode belong to the line in Redis. The first instance sets them; after that a [change](Line::change) by any instance applies to
/// all, and the last one wins. An instance that starts with another rate changes nothing. Every other setting is taken from the instance that
/// is asked.
///
/// # When Redis fails
/// A poll then gets an error, and the room answers 503 with `Retry-After`. Places are as durable as Redis itself: with `appendfsync always`
/// all of them survive its crash, with `everysec` all but those of the last seconds. A visitor with a lost place is told so, and gets a new
/// one. Give lines a server whose `maxmemory-policy` is `noeviction`.
///
/// [`status`](Line::status), and passes that other instances have ended, are known one second late. Of the visitors that left since the last
/// poll, `status` counts the first 1,024.
///
/// # What it costs
/// A place takes less than 200 bytes of Redis, its client included, until a minute after its turn. All keys of a line expire after a day
/// without polls. A poll takes about four times the CPU of a decision about a limit in Redis, as `./tests/bench overflow`
/// measures it.
///
/// # Rights
/// It needs these rights in addition to those of limits, for the same keys: `+hget +hset +hdel +hincrby +zadd +zrem +zrange +zrangebyscore
/// +zremrangebyscore +zscore +sadd +srem +scard +pexpire`.
#[derive(Clone, Debug)]
pub struct RedisLine {
    store: RedisStore,
}

impl RedisLine {
    /// A home for lines on the Redis of this store, with its prefix, secret and deadline.
    pub fn new(store: &RedisStore) -> Self {
        Self { store: store.clone() }
    }
}

impl LineHome for RedisLine {
    /// # Errors
    /// When the numbers of a rate are too large for the script.
    fn open(&self, settings: LineSettings, _: Arc<dyn Clock>) -> Result<Arc<dyn Line>, ConfigError> {
        let slot = self.store.slot("room", &*settings.name)?;
        let numbers = numbers(settings.rate)?;
        let known = LineSnapshot::new(LineStatus::new(LineMode::Metered, settings.rate));
        let line = Arc::new(InRedis {
            slot,
            settings: Mutex::new(settings),
            numbers: Mutex::new(numbers),
            known: Mutex::new(known),
            is_rate_due: AtomicBool::new(false),
            rate_due: Notify::new(),
        });
        let kept = Arc::clone(&line);
        let refresher = KeptTask::new(move || keep_in_view(Arc::clone(&kept)));
        let line = OfInstance { line, refresher };
        line.keep_in_view();
        Ok(Arc::new(line))
    }
}

/// The handle that a room holds; the task that refreshes the line's numbers ends with it.
struct OfInstance {
    line: Arc<InRedis>,
    refresher: KeptTask,
}

struct InRedis {
    slot: HashSlot,
    settings: Mutex<LineSettings>,
    /// The rate that a new line begins with.
    numbers: Mutex<[u64; 5]>,
    known: Mutex<LineSnapshot>,
    /// Whether the rate in `numbers` is yet to be set in Redis.
    is_rate_due: AtomicBool,
    /// Wakes the refresher.
    rate_due: Notify,
}

impl InRedis {
    /// Runs the script for one word, with its arguments.
    fn run(
        &self,
        word: &str,
        more: &[String],
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, StoreError>> + Send + use<> {
        let LineSettings { opens_at_us, most_active, pass_lasts, longest_line, places_per_client, .. } =
            *lock(&self.settings);
        // The server's time, if the store has no other.
        let clock_us = self.slot.clock_us().unwrap_or(0);
        let until_open_us = opens_at_us.saturating_sub(SystemClock::new().now_us());
        let stays_us = micros(STAYS).saturating_add(micros(pass_lasts)).saturating_add(until_open_us);
        let bounded = |most: Option<u64>| most.map_or_else(|| "-1".to_owned(), |most| most.to_string());
        let mut arguments = vec![
            word.to_owned(),
            clock_us.to_string(),
            opens_at_us.to_string(),
            bounded(most_active),
            micros(pass_lasts).to_string(),
            longest_line.to_string(),
            bounded(places_per_client),
            (stays_us / 1_000).to_string(),
        ];
        arguments.extend(lock(&self.numbers).iter().map(u64::to_string));
        arguments.extend_from_slice(more);
        let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
        self.slot.run(&SCRIPT, &PARTS, &arguments)
    }

    /// Reads the line's numbers, and the passes that have ended.
    async fn refresh(&self) -> Result<(), StoreError> {
        let since_us = self.known().since_us();
        let reply = self.run("status", &[since_us.to_string()]).await?;
        if !reply.is_empty() {
            self.known().learn(known(reply)?);
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, LineSnapshot> {
        lock(&self.known)
    }
}

impl OfInstance {
    /// Keeps the line's numbers refreshed.
    fn keep_in_view(&self) {
        // Without a runtime, the next call on one begins.
        _ = self.refresher.keep_on(|| self.line.slot.runtime());
    }
}

impl Line for OfInstance {
    fn ask(&self, ask: LineAsk) -> LineFuture<LineAnswer> {
        self.keep_in_view();
        let [number, lot] = ask
            .place
            .map_or_else(Default::default, |place| [place.number.to_string(), place.lot.to_string()]);
        let client = ask.client.map_or_else(String::new, |client| format!("{:016x}", client.max(1)));
        let reply = self.line.run("ask", &[number, lot, ask.lot.to_string(), client]);
        LineFuture::boxed(async { answer(reply.await?) })
    }

    fn end(&self, place: LinePlace) -> LineFuture<()> {
        let reply = self.line.run("end", &[place.number.to_string(), place.lot.to_string()]);
        let lasts_us = micros(lock(&self.line.settings).pass_lasts);
        self.line.known().end(place, lasts_us.max(AGAIN_US));
        LineFuture::boxed(async { reply.await.map(drop) })
    }

    fn has_ended(&self, place: LinePlace) -> bool {
        self.line.known().has_ended(place)
    }

    fn change(&self, change: LineChange) -> LineFuture<()> {
        let line = Arc::clone(&self.line);
        let (word, more) = match change {
            LineChange::Rate(rate) => match numbers(rate) {
                Ok(numbers) => {
                    // Relaxed, here and below: a flag that orders nothing else.
                    line.is_rate_due.store(false, Ordering::Relaxed);
                    ("rate", numbers.iter().map(u64::to_string).collect())
                }
                Err(error) => return LineFuture::boxed(async { Err(reply::not_understood(error)) }),
            },
            LineChange::Mode(mode) => ("mode", vec![reply::number_of(mode).to_string()]),
        };
        let reply = line.run(word, &more);
        LineFuture::boxed(async move {
            reply.await?;
            line.refresh().await
        })
    }

    fn set(&self, settings: LineSettings, with_rate: bool) {
        // A rate that cannot be kept was refused before.
        if let Ok(numbers) = numbers(settings.rate) {
            *lock(&self.line.numbers) = numbers;
        }
        *lock(&self.line.settings) = settings;
        if with_rate {
            self.line.is_rate_due.store(true, Ordering::Relaxed);
            self.line.rate_due.notify_one();
            self.keep_in_view();
        }
    }

    fn status(&self) -> LineStatus {
        self.keep_in_view();
        self.line.known().status()
    }
}

impl fmt::Debug for OfInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLine").field("slot", &self.line.slot).field("status", &self.status()).finish()
    }
}

/// Asks for the numbers of a line each second, and sets its rate if that is due.
async fn keep_in_view(line: Arc<InRedis>) {
    loop {
        if line.is_rate_due.swap(false, Ordering::Relaxed) {
            let rate = lock(&line.numbers).map(|number| number.to_string());
            if let Err(error) = line.run("rate", &rate).await {
                tracing::warn!(%error, "the rate of a waiting room is not changed yet");
                line.is_rate_due.store(true, Ordering::Relaxed);
            }
        }
        // After an error the next refresh comes in a second.
        _ = line.refresh().await;
        _ = timeout(REFRESHED_EACH, line.rate_due.notified()).await;
    }
}

/// The numbers of a rate, as the script has them.
///
/// # Errors
/// When the script could not count with them exactly.
fn numbers(rate: Quota) -> Result<[u64; 5], ConfigError> {
    let evenly = rate.burst(1).counted_by(Algorithm::Gcra);
    let [unit_us, ticks, spacing, ..] = Rule::new(Algorithm::Gcra, evenly)?.numbers().all();
    if spacing.saturating_mul(unit_us).max(ticks) > EXACT {
        let problem =
            format!("a line in Redis cannot count {rate} exactly: use a shorter period or a rounder limit");
        return Err(ConfigError::new(ConfigErrorKind::Inexact, problem));
    }
    let period_ns = u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX);
    Ok([unit_us, ticks, spacing, rate.limit(), period_ns])
}
