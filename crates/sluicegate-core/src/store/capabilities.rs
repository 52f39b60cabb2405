//! The traits of a store by which the stores around it act ([`Capabilities`]), and the messages that they pass to it ([`Notice`]).
//!
//! Also the places of wrappers ([`Place`]), the [short way](ShortWay) of a policy with one quota, the side of a store that the instances of a
//! service share ([`Shared`]), and handles ([`store_handle`](crate::store_handle), [`IntoStore`]).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Ask, Event, Inherit, Listener, PreparedPolicy, SharedPermits, ShortAnswer, Store};
use crate::clock::{Clock, SystemClock};
use crate::error::{ConfigError, ConfigErrorKind, StoreError};
use crate::key::KeyRef;

/// The traits of a store that other stores and limiters act by. They are those of the store and its inner stores together.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::{MemoryStore, Store};
///
/// let store: Arc<dyn Store> = MemoryStore::new().into();
/// let capabilities = store.capabilities();
/// assert!(capabilities.always_answers && capabilities.shared.is_none());
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Capabilities<'a> {
    /// Whether each ask is answered at once, and never with an error that [may pass](crate::StoreError::may_succeed_later), so that
    /// no answer has to be checked for an outage.
    pub always_answers: bool,
    /// The highest place among the store and its inner stores, if any has one.
    pub place: Option<Place>,
    /// The clock that the store decides by, as nearly as this process knows it; `None` for the machine's clock.
    pub clock: Option<&'a dyn Clock>,
    /// The side of the store that instances of a service share. Without it operators' overrides apply to this instance only.
    pub shared: Option<&'a dyn Shared>,
    /// The parts of the store that fail on their own; `None` if it is one part.
    pub parts: Option<&'a dyn Parts>,
}

impl<'a> Capabilities<'a> {
    /// Those of a store that may fail, by the machine's clock, with nothing shared, in one part.
    pub fn new() -> Self {
        Self { always_answers: false, place: None, clock: None, shared: None, parts: None }
    }
}

crate::setters! { small Capabilities<'a>
    /// Sets whether it [always answers](Self::always_answers).
    fn always_answers(it, always_answers: bool) { it.always_answers = always_answers }

    /// Sets the [clock](Self::clock).
    fn clock(it, clock: &'a dyn Clock) { it.clock = Some(clock) }

    /// Sets the [shared side](Self::shared).
    fn shared(it, shared: &'a dyn Shared) { it.shared = Some(shared) }

    /// Sets the [parts](Self::parts).
    fn parts(it, parts: &'a dyn Parts) { it.parts = Some(parts) }
}

impl Default for Capabilities<'_> {
    fn default() -> Self {
        Self::new()
    }
}

crate::debug_as!(Capabilities<'a>, of => (of.always_answers, of.place, of.shared.is_some(), of.parts.is_some()));

/// A store in parts that fail on their own, such as the nodes of a cluster, so that a store around it can leave out one of them.
pub trait Parts {
    /// The parts that would decide these asks, one bit each.
    ///
    /// A bit stands for the same part as long as the store lives. Parts that cannot be distinguished share a bit.
    fn parts(&self, asks: &[Ask<'_>]) -> u64;
}

/// A message to a store beside asks. A wrapper passes it on to its inner store.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// An event that never reaches [`Store::decide`], for stores that count or log. Told in the middle of requests, so a store must not
    /// block.
    Event(&'a Event<'a>),
    /// A listener, which receives the events that arise in the store from now on.
    Listener(&'a Arc<dyn Listener>),
    /// A policy that was opened in place of another one is in force, and the old one is not: the second step, which a policy that is
    /// opened and then dropped never takes. Most stores have nothing to do here, because a policy that [`Store::open`] has prepared
    /// takes effect when it is asked for.
    Replaced {
        /// The policy before.
        old: &'a PreparedPolicy,
        /// The policy in force.
        new: &'a PreparedPolicy,
        /// The rule by which it takes over the keys of the old one.
        inherit: Inherit,
    },
    /// Another store decides while this one has no connection, so that decisions must not wait for the first connection.
    Fallback,
}

impl fmt::Debug for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => f.debug_tuple("Event").field(event).finish(),
            Self::Listener(_) => f.write_str("Listener"),
            Self::Replaced { old, new, inherit } => {
                write!(f, "Replaced({} -> {}, {inherit:?})", old.policy(), new.policy())
            }
            Self::Fallback => f.write_str("Fallback"),
        }
    }
}

/// Shorthands for the most frequent questions and messages.
impl dyn Store {
    /// Whether it [always answers](Capabilities::always_answers).
    pub fn always_answers(&self) -> bool {
        self.capabilities().always_answers
    }

    /// The highest [place](Capabilities::place) among it and its inner stores.
    pub fn place(&self) -> Option<Place> {
        self.capabilities().place
    }

    /// The time of the [clock](Capabilities::clock) that it decides by, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.capabilities().clock.map_or_else(|| SystemClock::new().now_us(), Clock::now_us)
    }

    /// The side that instances [share](Capabilities::shared).
    pub fn shared(&self) -> Option<&dyn Shared> {
        self.capabilities().shared
    }

    /// Keeps permits for all instances, or returns `false` if the store counts everything in this process, so that there is nothing to
    /// share.
    ///
    /// # Errors
    /// When instances share the store, but it cannot share permits.
    #[doc(hidden)]
    pub fn share_permits(&self, permits: &Arc<dyn SharedPermits>) -> Result<bool, ConfigError> {
        match self.capabilities() {
            Capabilities { shared: Some(shared), .. } => shared.share_permits(permits).map(|()| true),
            Capabilities { always_answers: true, .. } => Ok(false),
            _ => Err(cannot_share(permits)),
        }
    }

    /// The [parts](Capabilities::parts) that would decide these asks, one bit each.
    pub fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        self.capabilities().parts.map_or(1, |parts| parts.parts(asks))
    }

    /// Tells it of an [event](Notice::Event).
    pub fn notice(&self, event: &Event<'_>) {
        self.notify(&Notice::Event(event));
    }

    /// Adds a [listener](Notice::Listener).
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.notify(&Notice::Listener(&listener));
    }

    /// Tells it of a policy that has been [replaced](Notice::Replaced).
    pub fn replaced(&self, old: &PreparedPolicy, new: &PreparedPolicy, inherit: Inherit) {
        self.notify(&Notice::Replaced { old, new, inherit });
    }
}

/// The place of a store wrapper among the others of this family, from inside out.
///
/// | wrong order | effect of the outer store |
/// |---|---|
/// | `Resilient` around `Leased` | take answers out of leases for answers of the store, and never open its breaker |
/// | `Leased` around `DenyCache` | wait for a refill that the cache refuses |
/// | any around itself | do its work twice |
///
/// So a wrapper goes only around those of lower places. A store without a place goes anywhere.
///
/// ```
/// use sluicegate_core::store::Place;
///
/// assert!(Place::DenyCache > Place::Leased && Place::Leased > Place::Resilient);
/// assert_eq!(Place::Shard.to_string(), "Sharded or Regional");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Divides quotas among several buckets or several stores: `Sharded`, `Regional`.
    Shard,
    /// Survives the outage of the inner store: `Resilient`.
    Resilient,
    /// Spends locally from batches of units: `Leased`.
    Leased,
    /// Refuses locally what the store has refused: `DenyCache`.
    DenyCache,
    /// Counts all decisions: `Observed`.
    Observed,
}

impl Place {
    /// All places, the innermost first.
    pub const ALL: [Self; 5] = [Self::Shard, Self::Resilient, Self::Leased, Self::DenyCache, Self::Observed];

    /// Checks that a wrapper of this place may go around that store. Call it when the wrapper is built. A
    /// [`Wrap`](crate::wrap::Wrap) with a place is checked again whenever a policy is opened.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] when the store has this place or a higher one.
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_resilient::Resilient;
    ///
    /// let resilient = Resilient::new(MemoryStore::new());
    /// let error = Resilient::builder(&resilient).build().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "Resilient is around a store that is Resilient already: the order, from outside in, is \
    ///      Observed, DenyCache, Leased, Resilient, Sharded or Regional"
    /// );
    /// ```
    pub fn around(self, store: &dyn Store) -> Result<(), ConfigError> {
        match store.place() {
            Some(within) if within >= self => {
                let order: Vec<_> = Self::ALL.iter().rev().map(Self::to_string).collect();
                let problem = format!(
                    "{self} is around a store that is {within} already: the order, from outside in, is {}",
                    order.join(", ")
                );
                Err(ConfigError::new(ConfigErrorKind::Store, problem))
            }
            _ => Ok(()),
        }
    }
}

/// The names of the stores of this place.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shard => "Sharded or Regional",
            Self::Resilient => "Resilient",
            Self::Leased => "Leased",
            Self::DenyCache => "DenyCache",
            Self::Observed => "Observed",
        })
    }
}

/// Spends from the single quota of one policy, and does nothing else. A [`Store`](super::Store) may offer it for a policy, so that a
/// check of one key makes no [`Ask`](super::Ask) and looks up nothing that was known when the policy was opened.
///
/// It decides as the store does, and leaves all cases to the store that one look at the key does not decide.
pub trait ShortWay: Send + Sync {
    /// Spends `cost` units of the key if they fit now. Otherwise refuses them, as the store does, if the policy does not wait, and counts
    /// the refusal if it counts towards a suspension. It leaves all cases that one look at the key does not decide to the store: then
    /// nothing has been spent or counted, and there is no answer.
    fn spend(&self, key: &KeyRef<'_>, cost: u64) -> Option<ShortAnswer>;

    /// Whether it is certain without a call that this key is at rest under the policy, so that a peek at it can be left out.
    /// By default it is `false`.
    fn is_at_rest(&self, key: &KeyRef<'_>) -> bool {
        _ = key;
        false
    }
}

/// What all instances of a service share through their store: a few bytes, such as operators' overrides, and permits. Authors of stores
/// offer it by [`Capabilities::shared`](super::Capabilities::shared).
pub trait Shared: Send + Sync {
    /// Writes, if the store still has the value that the writer has read, and returns the value that it has then; without a write, it only
    /// reads. The value is empty at first, and after the store has lost it.
    ///
    /// # Contract
    /// It starts its work when it is called, and finishes it even if the future is dropped. The listeners of the store receive
    /// the bytes that this or any other call reads or writes, by [`Event::Shared`](super::Event::Shared); a store passes new
    /// listeners the last bytes that it knows, and looks for changes every few seconds.
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture;

    /// Keeps the permits of a limit on requests under way for all instances of the service, from now on. By default it cannot.
    ///
    /// # Errors
    /// When the store cannot share permits.
    #[doc(hidden)]
    fn share_permits(&self, permits: &Arc<dyn SharedPermits>) -> Result<(), ConfigError> {
        Err(cannot_share(permits))
    }
}

/// The error of a store that instances share, and that cannot share permits.
pub(super) fn cannot_share(permits: &Arc<dyn SharedPermits>) -> ConfigError {
    let problem = format!(
        "the store cannot share the permits of {:?} among instances: put it on a single Redis store, or use `build`",
        permits.name()
    );
    ConfigError::new(ConfigErrorKind::Unsupported, problem)
}

/// The current value, or the reason why it is unknown.
pub type SharedFuture = Pin<Box<dyn Future<Output = Result<Arc<[u8]>, StoreError>> + Send>>;

/// The value to write, for [`Shared::exchange`].
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "it is what a compare-and-set takes, and nothing else")]
pub struct Write<'a> {
    /// The value that is replaced; it has to match to the byte.
    pub over: &'a [u8],
    /// The new value.
    pub bytes: &'a [u8],
    /// The time for which it is needed; after that the store may forget it.
    pub keep: Duration,
}

/// A store to put policies on: [`MemoryStore`](crate::MemoryStore) or another handle, by value or by reference, or an
/// `Arc<dyn Store>`, if the store is chosen at run time.
///
/// Every `Into<Arc<dyn Store>>` implements it; it exists so that the compiler can explain a missing implementation.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::{ConfigError, MemoryStore, Policy, RateLimiter, Store};
///
/// fn limiters(shared: Option<Arc<dyn Store>>) -> Result<[RateLimiter; 2], ConfigError> {
///     let store = shared.unwrap_or_else(|| MemoryStore::new().into());
///     let login = Policy::gcra("login", "5/min").on(Arc::clone(&store))?;
///     let search = Policy::gcra("search", "10/s").on(store)?;
///     Ok([login, search])
/// }
/// # limiters(None).map(drop)?;
/// # Ok::<(), ConfigError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no store",
    label = "a store is expected here",
    note = "a store is a handle already, which clones share: write `MemoryStore::new()` or `&store`, without an `Arc` around it",
    note = "an `Arc<dyn Store>` goes by value: `Arc::clone(store)` of a `store: &Arc<dyn Store>`; there is none behind a `&dyn Store`",
    note = "a generic function takes `impl IntoStore` instead of `impl Store`"
)]
pub trait IntoStore: Into<Arc<dyn Store>> {}

#[diagnostic::do_not_recommend]
impl<S: Into<Arc<dyn Store>>> IntoStore for S {}

/// Makes a type a handle to a store: policies are put on it by value or by reference. For authors of stores.
///
/// The type is a tuple struct with an `Arc` of the [`Store`](crate::Store) as its first field. With a getter after its name,
/// `Debug` shows the value of the getter.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::limiter::Inherit;
/// use sluicegate_core::store::{Ask, DecisionFuture};
/// use sluicegate_core::wrap::{Within, Wrap};
/// use sluicegate_core::{ConfigError, MemoryStore, Policy, store_handle};
///
/// /// A store that only forwards.
/// #[derive(Clone)]
/// pub struct Through(Arc<Front>);
///
/// store_handle!(Through, title);
///
/// impl Through {
///     fn title(&self) -> &'static str {
///         "nothing of its own"
///     }
/// }
///
/// struct Front(Within);
///
/// impl Wrap for Front {
///     type Own = ();
///
///     fn within(&self) -> &Within {
///         &self.0
///     }
///
///     fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
///         Ok(())
///     }
///
///     fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
///         self.0.decide(asks)
///     }
/// }
///
/// let store = Through(Arc::new(Front(Within::new(MemoryStore::new()))));
/// let login = Policy::gcra("login", "5/min").on(&store)?;
/// assert!(login.check("ada").now().expect("memory answers at once")?.is_allowed());
/// assert_eq!(format!("{store:?}"), r#"Through("nothing of its own")"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! store_handle {
    ($handle:ident) => {
        impl ::std::convert::From<&$handle> for ::std::sync::Arc<dyn $crate::Store> {
            fn from(store: &$handle) -> Self {
                ::std::sync::Arc::clone(&store.0) as Self
            }
        }

        impl ::std::convert::From<$handle> for ::std::sync::Arc<dyn $crate::Store> {
            fn from(store: $handle) -> Self {
                store.0
            }
        }
    };
    ($handle:ident, $shown:ident) => {
        $crate::store_handle!($handle);

        impl ::std::fmt::Debug for $handle {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(::std::stringify!($handle)).field(&self.$shown()).finish()
            }
        }
    };
}
