//! The one handle of a policy name on a store, and the policy that decides an ask: [`RateLimiter`].
//!
//! A policy is in force with its overrides until it is replaced as a whole ([`InForce`]). The quotas of a key replace those of the
//! policy, wherever they come from: from a call, from the application, or from an operator. They are an argument of
//! [`find`](RateLimiter::find), which gives the policy that decides.
//!
//! A decision by asks has three special cases: policies that are off skip the store, policies that suspend keys ask it for more, and in an
//! outage the policies decide.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, RwLock};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;

use crate::clock::{Clock, SystemClock};
use crate::decision::DecidedBy;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::KeyRef;
use crate::policy::{Override, Policy, PolicyMode, Quotas};
use crate::store::{
    Ask, DecisionFuture, Event, Inherit, KnownKeys, Mode, OwnQuotas, PreparedPolicy, Store, Subject,
};
use crate::support::{read, write};
use crate::suspension;
use crate::suspension::suspends;
use crate::wrap::{ask_by_policy, assumed};

/// A policy on a store, which services ask before they act.
///
/// One type for every store, cheap to clone. There is one handle per policy name and store: opening the name again gives a
/// clone, which has the same buckets and queues, and sees a [`replace`](Self::replace) at once.
///
/// It is not a layer: use `.rate_limit(limiter)` on axum's routes, and `RateLimitLayer::new(limiter)` in a tower stack.
///
/// All methods that ask the store return a [`DecisionFuture`]: a future that is ready at once on a [`MemoryStore`], where
/// [`DecisionFuture::now`] is for code that is not async.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let login = Policy::sliding_counter("login", "5/min").on(&MemoryStore::new())?;
///
/// assert!(login.check("ada").await?.is_allowed());
/// login.charge("ada", 4).await?; // known only afterwards: the request was costly
/// assert!(!login.check("ada").await?.is_allowed());
/// login.refund("ada", 1).await?;
/// assert_eq!(login.peek("ada").await?.remaining(), 1);
/// # Ok(())
/// # }
/// ```
///
/// [`DecisionFuture`]: crate::store::DecisionFuture
/// [`DecisionFuture::now`]: crate::store::DecisionFuture::now
/// [`MemoryStore`]: crate::MemoryStore
#[derive(Clone)]
pub struct RateLimiter {
    pub(super) handle: Arc<Handle>,
    /// The quotas of its keys, if they have their own.
    pub(super) quotas: Option<Quotas>,
    /// The policy of the replacement that made this limiter: it decides until another one is in force.
    coming: Option<Arc<InForce>>,
}

/// The one handle of a name on a store. All clones of a [`RateLimiter`] share it, and the store
/// holds it weakly, so that a name is free again when the last clone is gone.
pub(super) struct Handle {
    pub(super) store: Arc<dyn Store>,
    pub(super) always_answers: bool,
    /// The policy before the first replacement.
    pub(super) first: InForce,
    /// The policy with everything that layers have asked it to [remember](RateLimiter::remember). Layers ask once, before
    /// requests arrive.
    remembered: [OnceLock<InForce>; 2],
    /// The line of code that opened the name; `None` for a file of rules, which takes precedence over a policy of this name in code.
    pub(super) opened_at: Option<&'static Location<'static>>,
    /// Done when another line of code that opens the name was logged.
    pub(super) opened_twice: Once,
    /// The current policy after the first replacement. A limiter that is never replaced does not pay for the swap.
    pub(super) current: ArcSwap<InForce>,
    pub(super) replacements: AtomicU64,
    /// Locked while the policy is replaced: the version of the last override that the store could not support.
    pub(super) replacing: Mutex<u64>,
    #[cfg(feature = "tokio")]
    pub(super) queues: crate::wait::Queues,
    #[cfg(feature = "tokio")]
    /// Each waiting request has a clone of it.
    pub(super) waiting: Arc<()>,
}

/// The policy that decides, and the overrides that have changed it.
pub(super) struct InForce {
    pub(super) prepared: PreparedPolicy,
    /// The policy that code or a file has put in force, without overrides.
    pub(super) written: Arc<Policy>,
    /// The count of replacements at which it is current.
    pub(super) replacements: u64,
    /// The override of the policy, if any.
    pub(super) over: Option<Arc<Override>>,
    /// Overrides for new keys and for single keys, sorted by key.
    pub(super) given: Vec<Arc<Override>>,
    /// Tells new keys from others. Without it, no key is new.
    pub(super) known_keys: Option<KnownKeys>,
    /// The earliest end of these overrides.
    pub(super) ends_us: u64,
    /// This policy under quotas of keys, once there are any.
    by_quotas: OnceLock<Box<PolicyByQuotas>>,
}

/// The policy that decides an ask.
pub(super) enum FoundPolicy<'a> {
    /// Kept as long as the limiter.
    Kept(&'a PreparedPolicy),
    /// In force since a replacement.
    Replaced(Guard<Arc<InForce>>),
    /// Under the quotas of the key.
    UnderQuotas(Arc<PreparedPolicy>),
}

impl InForce {
    /// A policy without overrides.
    pub(super) fn plain(prepared: PreparedPolicy, written: Arc<Policy>, replacements: u64) -> Self {
        let (over, given, known_keys, ends_us) = (None, Vec::new(), None, u64::MAX);
        Self { prepared, written, replacements, over, given, known_keys, ends_us, by_quotas: OnceLock::new() }
    }

    /// Whether overrides of the policy or of keys change it, so that it has to be looked up for each ask.
    fn is_overridden(&self) -> bool {
        self.over.is_some() || !self.given.is_empty()
    }

    /// The quotas that an operator has given this key. An override of the key alone takes precedence over quotas that the key brings,
    /// and these over an override for new keys.
    fn given_quotas(&self, key: KeyRef<'_>, brings_quotas: bool, now_us: u64) -> Option<&Quotas> {
        if self.given.is_empty() {
            return None;
        }
        let key_override = {
            let key = key.to_key();
            self.given.binary_search_by(|over| over.key().cmp(&Some(&key))).ok()
        };
        let is_new = || self.known_keys.as_ref().is_some_and(|is_known| !is_known(key));
        let over = match key_override {
            Some(index) => &self.given[index],
            None => self.given.first().filter(|over| over.key().is_none() && !brings_quotas && is_new())?,
        };
        over.stands_at(now_us).then_some(&over.key_quotas)
    }
}

impl Handle {
    pub(super) fn new(
        store: Arc<dyn Store>,
        first: PreparedPolicy,
        written: Arc<Policy>,
        opened_at: Option<&'static Location<'static>>,
    ) -> Self {
        Self {
            opened_at,
            opened_twice: Once::new(),
            always_answers: store.always_answers(),
            store,
            current: ArcSwap::from_pointee(InForce::plain(first.clone(), Arc::clone(&written), 0)),
            replacing: Mutex::new(0),
            first: InForce::plain(first, written, 0),
            remembered: Default::default(),
            replacements: AtomicU64::new(0),
            #[cfg(feature = "tokio")]
            queues: crate::wait::Queues::default(),
            #[cfg(feature = "tokio")]
            waiting: Arc::default(),
        }
    }

    /// The name of the policy.
    pub(super) fn name(&self) -> &str {
        self.first.prepared.policy().name()
    }
}

/// Equal limiters are the same handle, with equal [quotas of keys](RateLimiter::with_quotas) if any. For
/// caches of values that are derived from [`policy`](RateLimiter::policy).
impl PartialEq for RateLimiter {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.is(other) && self.quotas == other.quotas
    }
}

impl RateLimiter {
    pub(super) fn of(handle: Arc<Handle>) -> Self {
        Self { handle, quotas: None, coming: None }
    }

    /// A limiter that decides by this policy until another one is in force, also before it takes effect for others.
    pub(super) fn before(&self, coming: &Arc<InForce>) -> Self {
        Self { handle: Arc::clone(&self.handle), quotas: None, coming: Some(Arc::clone(coming)) }
    }

    /// Whether both are the handle of the same policy on the same store.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// The policy in force: the policy of the code, or as changed by an [override](super::Overrides); for a key with
    /// [quotas of its own](Self::with_quotas), with these quotas.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(self.find(self.quotas.as_ref(), None).prepared().numbers())
    }

    /// The policy that code has put in force, by opening or [replacing](Self::replace) it: it applies again when the
    /// current override ends. For a key with [quotas of its own](Self::with_quotas), it has these quotas.
    pub fn own_policy(&self) -> Arc<Policy> {
        let written = match self.kept() {
            Some(kept) => Arc::clone(&kept.written),
            None => Arc::clone(&self.handle.current.load().written),
        };
        // If the policy cannot have these quotas, its own quotas decide.
        let under_quotas = self.quotas.as_ref().and_then(|quotas| written.under(quotas).ok());
        under_quotas.map_or(written, Arc::new)
    }

    /// The store that decides.
    ///
    /// Limiters of one store can be asked [together](super::check_all).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.handle.store
    }

    /// The limiter for a key that has quotas of its own, for example from a customer's plan: it decides by these quotas in place of
    /// the quotas of the policy.
    ///
    /// Keys, queues, refunds and overrides of the mode are those of this limiter. If the quotas of a key change, the
    /// units that it has spent still count under the new ones. A limiter of some quotas can be kept and shared by all keys with
    /// these quotas. Making it again takes a few nanoseconds for kept [`Quotas`] or clones of them, and a map lookup for others. A check
    /// alone needs no limiter: see [`Check::under`](super::Check::under).
    ///
    /// After a [replacement](Self::replace) these quotas replace the quotas of the new policy; if that policy cannot have them,
    /// its own quotas decide, and the log says so.
    ///
    /// # Memory
    /// A policy takes quotas of keys from the first call on, or once a layer [enables it](Self::remember): then a key
    /// takes 64 bytes of a [`MemoryStore`](crate::MemoryStore) instead of 24 or 48. Up to 65,535
    /// different quotas of a policy may be in use there at once: by keys in debt, or because they were asked for lately.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let api = Policy::gcra("api", "10/min").on(&MemoryStore::new())?;
    /// let ada = api.with_quotas("500/min burst 50")?; // from a row of a database
    ///
    /// let decision = ada.check("ada").cost(40).now().expect("memory answers at once")?;
    /// assert_eq!((decision.capacity(), decision.remaining()), (50, 10));
    ///
    /// // Her plan changes, and the 40 units still count.
    /// let ada = api.with_quotas("500/min burst 60")?;
    /// assert_eq!(ada.peek("ada").now().expect("memory answers at once")?.remaining(), 20);
    /// // A check without quotas uses the quotas of the policy.
    /// assert_eq!(api.check("bob").now().expect("memory answers at once")?.capacity(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the quotas cannot be read, when their number or their names differ from the policy's, when the policy's algorithm or
    /// the store cannot support them, and when more different quotas are in use than the store has room for. The message names them.
    pub fn with_quotas<Q>(&self, quotas: Q) -> Result<Self, ConfigError>
    where
        Q: TryInto<Quotas>,
        ConfigError: From<Q::Error>,
    {
        let quotas = quotas.try_into()?;
        self.check_quotas(&quotas)?;
        Ok(self.under(Some(quotas)))
    }

    pub(super) fn under(&self, quotas: Option<Quotas>) -> Self {
        Self { quotas, ..self.clone() }
    }

    /// Checks that keys can have these quotas.
    ///
    /// # Errors
    /// As [`with_quotas`](Self::with_quotas).
    #[inline]
    pub(super) fn check_quotas(&self, quotas: &Quotas) -> Result<(), ConfigError> {
        let by_quotas = self.kept().and_then(|kept| kept.by_quotas.get());
        match by_quotas.and_then(|by_quotas| by_quotas.get(quotas)) {
            Some(Some(_)) => Ok(()),
            _ => self.prepare_quotas(quotas),
        }
    }

    #[inline(never)]
    fn prepare_quotas(&self, quotas: &Quotas) -> Result<(), ConfigError> {
        if !self.find(None, None).prepared().policy().takes_quotas() {
            self.remember(Policy::taking_quotas)?;
        }
        let current;
        let in_force = match self.kept() {
            Some(kept) => kept,
            None => {
                current = self.in_force();
                &**current
            }
        };
        let prepare = || prepare(&*self.handle.store, &in_force.prepared, quotas);
        match in_force.by_quotas.get_or_init(Box::default).get_or_prepare(quotas, || prepare().map(Some))? {
            Some(_) => Ok(()),
            // The log has the error already.
            None => prepare().map(drop),
        }
    }

    /// The policy that decides an ask with these quotas, if finding it takes a few loads.
    #[inline(always)]
    pub(super) fn find_kept(&self, quotas: Option<&Quotas>) -> Option<&PreparedPolicy> {
        let kept = self.kept()?;
        match quotas {
            None => Some(&kept.prepared),
            Some(quotas) => kept.by_quotas.get()?.get(quotas)?.as_deref(),
        }
    }

    /// The policy that decides an ask with these quotas: in place of them, with the quotas that an operator has given the key.
    #[inline]
    pub(super) fn find(&self, quotas: Option<&Quotas>, key: Option<KeyRef<'_>>) -> FoundPolicy<'_> {
        self.find_kept(quotas).map_or_else(|| self.find_late(quotas, key), FoundPolicy::Kept)
    }

    #[inline(never)]
    fn find_late(&self, quotas: Option<&Quotas>, key: Option<KeyRef<'_>>) -> FoundPolicy<'_> {
        if let Some(kept) = self.kept() {
            let under_quotas = quotas.and_then(|quotas| self.prepared_under(kept, quotas));
            return under_quotas.map_or(FoundPolicy::Kept(&kept.prepared), FoundPolicy::UnderQuotas);
        }
        let in_force = self.in_force();
        let given = key
            .and_then(|key| in_force.given_quotas(key, quotas.is_some(), self.handle.store.now_us()))
            .or(quotas);
        match given.and_then(|quotas| self.prepared_under(&in_force, quotas)) {
            Some(under_quotas) => FoundPolicy::UnderQuotas(under_quotas),
            None => FoundPolicy::Replaced(in_force),
        }
    }

    fn prepared_under(&self, in_force: &InForce, quotas: &Quotas) -> UnderQuotas {
        let under_quotas = in_force.by_quotas.get_or_init(Box::default).get_or_prepare(quotas, || {
            prepare(&*self.handle.store, &in_force.prepared, quotas).map(Some).or_else(|error| {
                log_refused(quotas, &error);
                // There may be room for them at another time; any other error lasts as long as the policy.
                if error.kind() == ConfigErrorKind::QuotasExhausted { Err(error) } else { Ok(None) }
            })
        });
        under_quotas.ok().flatten()
    }

    /// The policy in force, if it is kept as long as the limiter and no override changes it.
    #[inline]
    fn kept(&self) -> Option<&InForce> {
        let replacements = self.replacements();
        if let Some(coming) = &self.coming
            && (coming.replacements > replacements
                || coming.replacements == replacements && !coming.is_overridden())
        {
            return Some(coming);
        }
        if replacements == 0 {
            return Some(&self.handle.first);
        }
        let mut remembered = self.handle.remembered.iter().filter_map(OnceLock::get);
        remembered.find(|kept| kept.replacements == replacements)
    }

    /// The policy in force. An override that has expired is ended first, unless another thread is ending it.
    fn in_force(&self) -> Guard<Arc<InForce>> {
        let in_force = self.handle.current.load();
        if in_force.ends_us == u64::MAX || self.handle.store.now_us() < in_force.ends_us {
            return in_force;
        }
        self.end_override();
        self.handle.current.load()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn queues(&self) -> &crate::wait::Queues {
        &self.handle.queues
    }

    /// Asks the store that all asks belong to.
    #[inline]
    pub(super) fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // One test rules out all rare cases. A decision is large, and even inspecting an answer would copy it, which takes a tenth of the
        // time of a decision in memory.
        if self.handle.always_answers && asks.iter().all(|ask| ask.policy().is_plain()) {
            return self.handle.store.decide(asks);
        }
        self.decide_with_care(asks)
    }

    /// Decides when a policy is off or suspends keys, or when the store may not answer.
    #[inline(never)]
    fn decide_with_care(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        match () {
            () if asks.iter().any(is_off) => self.decide_without_off(asks),
            () if asks.iter().any(suspends) => suspension::decide(&self.handle.store, asks),
            () => ask_by_policy(&*self.handle.store, asks),
        }
    }

    /// Decides without asks of policies that are off: these asks spend nothing, and have no numbers if other asks do.
    #[cold]
    fn decide_without_off(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let (mut places, mut rest) = (SmallVec::<[u8; 4]>::new(), SmallVec::<[Ask<'_>; 4]>::new());
        for (place, ask) in (0_u8..).zip(asks).filter(|(_, ask)| !is_off(ask)) {
            places.push(place);
            rest.push(*ask);
        }
        if rest.is_empty() {
            let each = asks.iter().map(|ask| (&**ask.numbers(), false));
            let decision = assumed(each, SystemClock::new().now_us(), Duration::ZERO).by(DecidedBy::Off);
            return DecisionFuture::ready(Ok(decision));
        }
        self.decide(&rest).map(move |result| Ok(result?.of_asks(&places)))
    }
}

/// More methods for authors of layers. Services do not need them.
#[doc(hidden)]
impl RateLimiter {
    /// Reads the policy in force in place, which is cheaper than [`policy`](RateLimiter::policy).
    #[inline]
    pub fn with_policy<T>(&self, read: impl FnOnce(&Policy) -> T) -> T {
        match self.find_kept(self.quotas.as_ref()) {
            Some(prepared) => read(prepared.numbers()),
            None => read(self.find_late(self.quotas.as_ref(), None).prepared().numbers()),
        }
    }

    /// The number of times that the policy was replaced: values derived from [`policy`](RateLimiter::policy) are out of date if it
    /// has changed.
    #[inline]
    pub fn replacements(&self) -> u64 {
        // Acquire: pairs with the release in `replace`.
        self.handle.replacements.load(Ordering::Acquire)
    }

    /// From now on the store remembers more about keys than the policy in code requires: [`Policy::with_refunds`], so that a refund is
    /// exact, or [`Policy::taking_quotas`], so that keys may bring [quotas of their own](RateLimiter::with_quotas). Replacements keep it.
    ///
    /// # Errors
    /// When the store cannot support it.
    pub fn remember(&self, more: impl Fn(&Policy) -> Policy) -> Result<(), ConfigError> {
        let written = self.own_policy();
        if more(&written) == *written || !self.replace_by(more, Inherit::Spent)? {
            return Ok(());
        }
        let in_force = self.handle.current.load();
        let free = self.handle.remembered.iter().find(|remembered| remembered.get().is_none());
        if let Some(free) = free.filter(|_| !in_force.is_overridden()) {
            // If another thread has filled the slot first, its value is as good.
            let InForce { prepared, written, replacements, .. } = &**in_force;
            _ = free.set(InForce::plain(prepared.clone(), Arc::clone(written), *replacements));
        }
        Ok(())
    }

    /// This limiter under the quotas that an operator has given this key for a time, by an [override](super::Overrides) of the key alone or
    /// of new keys; `None` if the key has none. A check of the key looks for these quotas by itself: this is for middleware that shows the
    /// numbers that decide.
    #[must_use]
    pub fn given(&self, key: KeyRef<'_>) -> Option<Self> {
        if self.kept().is_some() {
            return None;
        }
        let in_force = self.in_force();
        let quotas = in_force.given_quotas(key, self.quotas.is_some(), self.handle.store.now_us())?;
        Some(self.under(Some(quotas.clone())))
    }
}

impl FoundPolicy<'_> {
    #[inline]
    pub(super) fn prepared(&self) -> &PreparedPolicy {
        match self {
            Self::Kept(prepared) => prepared,
            Self::Replaced(in_force) => &in_force.prepared,
            Self::UnderQuotas(prepared) => prepared,
        }
    }
}

/// The policy with these quotas. Its keys stay where they are, and are judged by these numbers.
///
/// # Errors
/// As [`RateLimiter::with_quotas`].
fn prepare(
    store: &dyn Store,
    opened: &PreparedPolicy,
    quotas: &Quotas,
) -> Result<Arc<PreparedPolicy>, ConfigError> {
    let policy = opened.policy().under(quotas)?;
    if policy == **opened.policy() {
        return Ok(Arc::new(opened.clone()));
    }
    let prepared = opened.under(Arc::new(OwnQuotas::new(Arc::new(policy))));
    store.admit(&prepared).map_err(|error| {
        if error.kind() == ConfigErrorKind::QuotasExhausted {
            store.notice(&Event::QuotasRefused(Subject::of(opened.policy().name())));
        }
        error.in_policy(opened.policy().name())
    })?;
    Ok(Arc::new(prepared.with_short_way_of(store)))
}

#[cfg(feature = "tracing")]
fn log_refused(quotas: &Quotas, error: &ConfigError) {
    tracing::error!(%quotas, %error, "a key cannot have its own quotas under the policy in force: those of the policy decide");
}

#[cfg(not(feature = "tracing"))]
fn log_refused(_: &Quotas, _: &ConfigError) {}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateLimiter({})", self.policy())
    }
}

/// The number of places, which take 32 KiB.
const PLACES: usize = 2_048;
/// The most policies that are kept. A handle keeps this many for up to four replacements of its policy, and a store has room for more, so
/// that it can free unused quotas.
const MOST: usize = 12_288;

/// One policy under the quotas of keys. The first 2,048 of them have a place, which the quotas remember, and stay as long as the
/// policy; the others are dropped when there is no room, and prepared again when needed.
pub(super) struct PolicyByQuotas {
    /// Identifies it within this process.
    number: u64,
    places: Box<[OnceLock<UnderQuotas>]>,
    all: RwLock<HashMap<Quotas, (UnderQuotas, Option<usize>)>>,
}

/// The policy under some quotas; `None` if it cannot have them, so that its own quotas decide.
pub(super) type UnderQuotas = Option<Arc<PreparedPolicy>>;

impl PolicyByQuotas {
    /// The policy under quotas that remember its place.
    #[inline]
    pub(super) fn get(&self, quotas: &Quotas) -> Option<&UnderQuotas> {
        self.places.get(quotas.place_in(self.number)?)?.get()
    }

    /// The policy under these quotas, as `prepare` makes it if it is not kept.
    ///
    /// # Errors
    /// The error of `prepare`, which is not kept.
    pub(super) fn get_or_prepare(
        &self,
        quotas: &Quotas,
        prepare: impl FnOnce() -> Result<UnderQuotas, ConfigError>,
    ) -> Result<UnderQuotas, ConfigError> {
        if let Some(under) = self.get(quotas) {
            return Ok(under.clone());
        }
        let known = read(&self.all).get(quotas).cloned();
        let (under, place) = match known {
            Some(known) => known,
            None => self.put(quotas, prepare()?),
        };
        if let Some(place) = place {
            quotas.remember_place(self.number, place);
        }
        Ok(under)
    }

    fn put(&self, quotas: &Quotas, under: UnderQuotas) -> (UnderQuotas, Option<usize>) {
        let mut all = write(&self.all);
        if let Some(known) = all.get(quotas) {
            return known.clone();
        }
        if all.len() >= MOST {
            all.retain(|_, (_, place)| place.is_some());
        }
        // Nothing is dropped before all places are taken.
        let place = Some(all.len()).filter(|place| *place < PLACES);
        if let Some(place) = place {
            self.places[place].get_or_init(|| under.clone());
        }
        all.insert(quotas.clone(), (under.clone(), place));
        (under, place)
    }
}

impl Default for PolicyByQuotas {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: it only has to be a different number each time.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let places = (0..PLACES).map(|_| OnceLock::new()).collect();
        Self { number, places, all: RwLock::default() }
    }
}

/// Whether the ask passes without a store, because its policy is off. A refund is not, because only the store can give back units that were
/// spent before.
#[inline]
fn is_off(ask: &Ask<'_>) -> bool {
    ask.policy().policy().mode() == PolicyMode::Off && (ask.mode().asks() || ask.mode() == Mode::Charge)
}
