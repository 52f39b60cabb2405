//! The store of one process: [`MemoryStore`].

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::buckets::Buckets;
use super::context::{MemorySettings, StoreContext, TimeSource};
use super::decide::OnlyBucket;
use crate::clock::{Clock, SystemClock};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::{MOST_KEYS, Policy};
use crate::status::{MemoryStats, StoreStatus};
use crate::store::{
    Ask, Capabilities, DecisionFuture, Inherit, Limiters, Notice, PreparedPolicy, Registry, ShortWay, Store,
};

/// Keeps the state of all its policies in memory of a fixed size.
///
/// Clones are handles to the same store. Limits hold for one process; nothing survives a restart.
///
/// # Memory
/// Each quota of each policy has a table of its own, allocated whole at the first request. It never grows, whatever
/// keys arrive; on most systems a page of it is resident from its first key on. Its size is set in keys: by [`PolicyBuilder::table_size`](crate::policy::PolicyBuilder::table_size), or for all policies
/// by [`MemoryStoreBuilder::table_size`](super::MemoryStoreBuilder::table_size). The memory of a store is the sum:
///
/// | state | quotas | bytes per key | with [refunds](crate::policy::PolicyBuilder::refunds) or [quotas of keys](crate::RateLimiter::with_quotas) |
/// |---|---|---|---|
/// | one word | GCRA, token and leaky buckets of all round quotas | 24 | 64 |
/// | two words | fixed windows, sliding counters, interval refills, all other quotas | 48 | 64 |
/// | a list | sliding logs | at most 72, and 16 per entry | the same |
///
/// A key is held only while it is in debt: a key back at rest takes no room, and no sweep is needed. When
/// the table is at its capacity, three to five keys in a hundred find their set full: then the least
/// indebted key of that set is forgotten, which admits it anew; see [`MemoryStore::stats`]. That is the key that has used
/// the smallest part of this quota. A flood of new keys therefore evicts only lightly used keys: never keys of other policies,
/// and never a key that owes more than the flood's own keys. Logs make room for a flood in the same way, among 16 keys
/// drawn at random.
///
/// Keys that [start](crate::Quota::starting_with) with less than a burst are held while they are full, too, for as long as a burst takes to
/// refill. Full keys make room first, and are then newcomers.
///
/// If forgetting is worse than refusing, set [`OnFull::Inherit`](crate::policy::OnFull::Inherit): a key that makes
/// room leaves its debt to its set, and new keys there start with the heaviest debt left. So no flood
/// frees a key from its debt, but during a flood other keys may be refused until that debt has drained.
/// It takes 27 bytes per key for states of one word, 60 for two words and 76 with refunds, and 2 more for logs. A
/// [reset](crate::RateLimiter::reset) clears the debt of a key, but not an inherited debt.
///
/// When a policy is [replaced](crate::RateLimiter::replace), a quota with an unchanged rule keeps its table. Any other table
/// stays until none of its keys matters any more; the table of the first policy stays as long as there is a handle. So a policy has at most 32
/// replaced tables, however often it is replaced, each with the pages that its keys have touched: with 500 keys in debt about 2 MB.
///
/// A table for which there is no memory is an error when its policy is opened.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_core::clock::ManualClock;
///
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().table_size(10_000).clock(clock.clone()).build()?;
/// let search = Policy::token_bucket("search", "1/s burst 2").on(&store)?;
///
/// let check = || search.check("ada").now().expect("memory answers at once");
/// assert!(check()?.is_allowed() && check()?.is_allowed());
/// assert_eq!(check()?.retry_after(), Some(Duration::from_secs(1)));
/// clock.advance(Duration::from_secs(1));
/// assert!(check()?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore(pub(super) Arc<PolicyBuckets>);

pub(super) struct PolicyBuckets {
    pub(super) context: Arc<StoreContext>,
    open: Registry<Buckets>,
    limiters: Limiters,
    /// The number of replacements before all policies are swept again.
    until_swept: AtomicUsize,
}

impl MemoryStore {
    /// A store for 100,000 keys in debt at once, on the machine's clock.
    pub fn new() -> Self {
        Self::with(MemorySettings::default(), TimeSource::System(SystemClock::new()))
    }

    pub(super) fn with(settings: MemorySettings, clock: TimeSource) -> Self {
        Self(Arc::new(PolicyBuckets {
            context: Arc::new(StoreContext::new(settings, clock)),
            open: Registry::default(),
            limiters: Limiters::default(),
            until_swept: AtomicUsize::new(0),
        }))
    }

    /// The use of the store. It walks the tables, so use it for a gauge that is read occasionally.
    ///
    /// It takes no lock in tables, so the numbers may be from slightly different moments. Logs lock
    /// one shard after the other.
    pub fn stats(&self) -> MemoryStats {
        self.0.stats()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

crate::debug_as!(MemoryStore, store => store.0.context.settings.keys);

impl PolicyBuckets {
    fn stats(&self) -> MemoryStats {
        let now_us = self.context.clock.now_us();
        let (mut seen, mut keys, mut slots) = (HashSet::new(), 0, 0);
        for buckets in self.open.prepared() {
            for bucket in buckets.all(now_us) {
                if seen.insert(bucket.number) {
                    let (used, all) = bucket.fill(now_us);
                    (keys, slots) = (keys + used, slots + all);
                }
            }
        }
        // Relaxed: counts for a gauge.
        let [evictions, inherited] =
            [&self.context.evictions, &self.context.inherited].map(|count| count.load(Ordering::Relaxed));
        MemoryStats { keys, slots, evictions, inherited }
    }

    /// The number of different quotas of keys in use under each open policy.
    fn quotas_in_use(&self) -> Vec<(String, usize)> {
        let mut in_use = Vec::<(String, usize)>::new();
        for buckets in self.open.prepared() {
            let quotas = buckets.quotas_in_use();
            // A replaced policy, which stands beside the one that follows it, may have the same buckets.
            match in_use.last_mut().filter(|(name, _)| name == buckets.name()) {
                Some((_, most)) => *most = quotas.max(*most),
                None if quotas > 0 => in_use.push((buckets.name().to_owned(), quotas)),
                None => {}
            }
        }
        in_use
    }

    /// Drops expired replacements, also those of policies without requests. It runs at every replacement while policies
    /// are few, and less often when they are many, so that replacing all of them takes linear time.
    fn sweep(&self, now_us: u64) {
        // Relaxed: at worst the policies are searched twice.
        let count =
            self.until_swept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if count.is_err() {
            let open = self.open.prepared();
            open.iter().for_each(|buckets| drop(buckets.replaced.alive(now_us)));
            self.until_swept.store(open.len() / 8, Ordering::Relaxed);
        }
    }
}

impl Store for PolicyBuckets {
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let (replaced, inherit) = replaces.unzip();
        let predecessor = replaced.map(PreparedPolicy::replaced::<Buckets>).transpose()?.zip(inherit);
        self.open.open(policy, replaced, |policy| Buckets::new(&self.context, policy, predecessor.as_ref()))
    }

    fn admit(&self, policy: &PreparedPolicy) -> Result<(), ConfigError> {
        match policy.own() {
            Some(own) => policy.replaced::<Buckets>()?.admit(&self.context, policy, own),
            None => Ok(()),
        }
    }

    #[inline]
    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.decide_now(asks)
    }

    fn notify(&self, notice: &Notice<'_>) {
        let Notice::Replaced { old, new, inherit } = *notice else { return };
        let now_us = self.context.clock.now_us();
        self.sweep(now_us);
        if let Some((old, new)) = old.prepared::<Buckets>().zip(new.prepared::<Buckets>()) {
            new.replaced
                .back_to(&old.each, inherit)
                .into_iter()
                .for_each(|back| old.replaced.add(back, now_us));
        }
    }

    fn short_way(&self, policy: &PreparedPolicy) -> Option<Arc<dyn ShortWay>> {
        Some(Arc::new(OnlyBucket::new(&self.context, policy)?))
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::new().always_answers(true).clock(self.context.clock.clock())
    }

    fn status(&self) -> StoreStatus {
        StoreStatus { memory: Some(self.stats()), quotas: self.quotas_in_use(), ..StoreStatus::default() }
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }
}

crate::store_handle!(MemoryStore);

/// Collects the settings of a [`MemoryStore`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct MemoryStoreBuilder {
    settings: MemorySettings,
    clock: Option<Box<dyn Clock>>,
}

impl MemoryStore {
    /// Starts building a store with another size or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { settings: MemorySettings::default(), clock: None }
    }
}

crate::setters! { MemoryStoreBuilder
    /// Sets how many keys of each policy can be in debt at once, unless the policy says otherwise. Default: 100,000 (2.4 MB for each
    /// quota; 4.8 MB for a quota with states of two words). This bounds the memory of a policy; see [`MemoryStore`].
    ///
    /// A key counts while it is in debt, which for most keys is for one period after its last
    /// request. So set it to the number of clients per period, with a margin for floods.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().table_size(50_000).build()?;
    /// let api = Policy::gcra("api", "100/min").on(&store)?;
    /// // A policy of few keys needs no large table.
    /// let global = Policy::gcra("global", "10000/s").table_size(1).on(&store)?;
    /// let slots = store.stats().slots;
    /// assert!((90_000..100_000).contains(&slots)); // 1.87 slots per key make full sets rare
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn table_size(it, keys: usize) { it.settings.keys = keys }

    /// Sets the total number of entries of the sliding logs of each quota. Default: 262,144 (4 MB). A sixteenth of them is the
    /// highest limit that a sliding log on this store can have.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::new(); // 262,144 entries: logs of up to 16,384
    /// assert!(Policy::sliding_log("small", "16384/h").on(&store).is_ok());
    /// assert!(Policy::sliding_log("large", "16385/h").on(&store).is_err());
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn log_entries(it, entries: usize) { it.settings.log_entries = entries }

    /// Sets the source of time. Default: [`SystemClock`].
    pub fn clock(it, clock: impl Clock) { it.clock = Some(Box::new(clock)) }
}

impl MemoryStoreBuilder {
    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for 0 keys or log entries, and for more than 2^31.
    pub fn build(self) -> Result<MemoryStore, ConfigError> {
        let MemorySettings { keys, log_entries } = self.settings;
        for (what, value) in [("keys", keys), ("log entries", log_entries)] {
            if value == 0 || value > MOST_KEYS {
                return Err(ConfigError::new(
                    ConfigErrorKind::Store,
                    format!("a memory store cannot have room for {value} {what}: use 1 to {MOST_KEYS}"),
                ));
            }
        }
        let clock = self.clock.map_or_else(|| TimeSource::System(SystemClock::new()), TimeSource::Other);
        Ok(MemoryStore::with(self.settings, clock))
    }
}

crate::debug_as!(MemoryStoreBuilder, builder => builder.settings);
