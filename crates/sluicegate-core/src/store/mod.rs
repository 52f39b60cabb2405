//! The [`Store`] trait, which keeps state and decides, for authors of stores and of wrappers
//! around them.
//!
//! Users of limiters need [`MemoryStore`](crate::MemoryStore) or the Redis store and never name
//! this module.
//!
//! # Writing a store
//! | part | what it does | see |
//! |---|---|---|
//! | [`Store::open`] | checks and prepares a policy, once | [`Registry`] keeps what was prepared, by name |
//! | [`Store::decide`] | answers all [`Ask`]s of one request, all or none | [`Judged`] and [`judge`], from slots to a decision |
//! | [`Store::limiters`] | returns a field | [`Limiters`] |
//! | [`Store::capabilities`] | says what the stores around it can rely on | [`Capabilities`] |
//!
//! The algorithms are [`Rule`](crate::algorithm::Rule)s. The suite of the crate `sluicegate-conformance`
//! tests a store: it compares the store with the one in memory
//! over random traces.
//!
//! # Writing a wrapper
//! A wrapper is a [`Wrap`](crate::wrap::Wrap): it decides, observes or refuses, and
//! forwards everything else.

mod ask;
#[cfg(feature = "tokio")]
mod background;
mod capabilities;
mod event;
mod permits;
mod prepared;

use std::sync::Arc;

pub(crate) use self::ask::DecideResult;
pub use self::ask::{Ask, DecisionFuture, Judged, Mode, judge};
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use self::background::KeptTask;
#[cfg(feature = "tokio")]
pub(crate) use self::background::spawn;
pub use self::capabilities::{
    Capabilities, IntoStore, Notice, Parts, Place, Shared, SharedFuture, ShortWay, Write,
};
pub use self::event::{
    Alarm, AlarmCause, Class, Event, ForwardedFault, Listener, Listeners, Subject, Undecided,
};
#[cfg(feature = "limiter")]
pub(crate) use self::permits::note_shared_store;
#[doc(hidden)]
pub use self::permits::{DemandsOf, PermitDemand, PermitGrant, SharedPermits, note_counted_alone};
pub use self::prepared::{KnownKeys, Limiters, OwnQuotas, PreparedPolicy, Registry, WeakPolicy};
pub(crate) use self::prepared::{SuspensionBuckets, make_room, name_taken};
pub use crate::algorithm::Inherit;
pub use crate::decision::{DecidedBy, QuotaStatus, ShortAnswer};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::Policy;
pub use crate::receipt::{SpentPart, Trace};
pub use crate::status::{BreakerState, DenyCacheStatus, LeaseStatus, ResilientStatus, StoreStatus};

/// Keeps the state of keys, and decides.
///
/// # Contract
/// - `decide` admits no more than the policies' algorithms define, under any concurrency.
/// - All spending asks of one call are granted together or not at all; a call that is not granted changes nothing.
/// - `decide` starts its work when it is called, and finishes it: a decision that is dropped, polled or not, undoes and
///   prevents nothing.
/// - Several asks for one bucket in one call see each other, in their order.
/// - A decision that spends reports the spent units, by [`QuotaStatus::spending`](crate::store::QuotaStatus::spending).
/// - A request's future may be dropped at any time, so nothing may be held between `decide` and the answer.
/// - A policy that `open` has prepared changes nothing until it is asked for, so that several policies can be opened, all or none.
///
/// Write a store wrapper as a [`Wrap`](crate::wrap::Wrap), which forwards all of this.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `Store`",
    label = "not a `Store` itself",
    note = "`MemoryStore`, `RedisStore` and the stores around them are handles: `let store: Arc<dyn Store> = MemoryStore::new().into();`",
    note = "a function that takes any store has an argument `store: impl IntoStore`, or `store: Arc<dyn Store>`, of which `.on(Arc::clone(&store))` makes a limit"
)]
pub trait Store: Send + Sync + 'static {
    /// Prepares a policy: checks that this store can keep it exactly, and precomputes whatever is possible.
    ///
    /// Opening an equal policy again gives the same buckets. With `replaces`, the new policy takes over the keys of
    /// an open one of the same name, as [`Inherit`] says.
    ///
    /// # Errors
    /// When the store cannot keep the policy exactly, or its name is open for a different one.
    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError>;

    /// Checks that this store can keep the quotas that a key brings ([`PreparedPolicy::numbers`]) exactly. By default it cannot: a store
    /// that does not decide by [`Ask::numbers`] would decide by the policy's own.
    ///
    /// # Errors
    /// When it cannot, or when there is no room for more different quotas in use at once.
    fn admit(&self, policy: &PreparedPolicy) -> Result<(), ConfigError> {
        let problem = format!(
            "this store keeps no quotas of keys ({}): give such keys a policy of their own",
            policy.numbers()
        );
        Err(ConfigError::new(ConfigErrorKind::Unsupported, problem))
    }

    /// Decides all asks of one request together: all spend, or none does.
    ///
    /// The asks are borrowed for the call, not for the future: a store that answers later copies
    /// them ([`OwnedAsk`](crate::wrap::OwnedAsk)).
    ///
    /// # Errors
    /// The future's error says that there is no answer:
    /// [`StoreErrorKind`](crate::error::StoreErrorKind) tells an outage from a mistake. The error also
    /// says whether the call may have spent nevertheless
    /// ([`StoreError::unsent`](crate::StoreError::unsent)).
    ///
    /// # Cancel safety
    /// The store completes each call, whether its future is polled or dropped: see [`DecisionFuture`].
    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture;

    /// The short way of a policy that this store has prepared, if there is one: for a policy that has a single quota. A limiter uses it instead of [`decide`](Self::decide) to check one key. By default there is none,
    /// so that a store wrapper sees all asks.
    fn short_way(&self, policy: &PreparedPolicy) -> Option<Arc<dyn ShortWay>> {
        _ = policy;
        None
    }

    /// The traits by which the stores around it act. By default it may fail, is in one part, and shares nothing.
    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::new()
    }

    /// Hears of an event, a listener, a replacement or a fallback. By default it ignores them, and no events arise in it.
    fn notify(&self, notice: &Notice<'_>) {
        _ = notice;
    }

    /// The state of the store and its inner stores. It may walk tables, so it is for gauges and pages that are read occasionally. By
    /// default it is empty.
    fn status(&self) -> StoreStatus {
        StoreStatus::default()
    }

    /// The handles of this store, one per name: a field that starts as its default.
    fn limiters(&self) -> &Limiters;
}
