//! The traits of a store by which the stores around it act ([`Capabilities`]), and the messages that they pass to it ([`Notice`]).

use std::fmt;
use std::sync::Arc;

use super::shared::cannot_share;
use super::{Ask, Event, Inherit, Listener, Place, PreparedPolicy, Shared, SharedPermits, Store};
use crate::clock::{Clock, SystemClock};
use crate::error::ConfigError;

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

    /// Sets whether it [always answers](Self::always_answers).
    #[must_use]
    pub fn always_answers(self, always_answers: bool) -> Self {
        Self { always_answers, ..self }
    }

    /// Sets the [clock](Self::clock).
    #[must_use]
    pub fn clock(self, clock: &'a dyn Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Sets the [shared side](Self::shared).
    #[must_use]
    pub fn shared(self, shared: &'a dyn Shared) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// Sets the [parts](Self::parts).
    #[must_use]
    pub fn parts(self, parts: &'a dyn Parts) -> Self {
        Self { parts: Some(parts), ..self }
    }
}

impl Default for Capabilities<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Capabilities<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Capabilities");
        shown.field("always_answers", &self.always_answers).field("place", &self.place);
        shown
            .field("shared", &self.shared.is_some())
            .field("parts", &self.parts.is_some())
            .finish_non_exhaustive()
    }
}

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
