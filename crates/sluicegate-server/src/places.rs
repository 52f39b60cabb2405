//! The places of connections: [`Places`].

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::counter;
use sluicegate_core::support::Seldom;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::app::FULL_TOTAL;
use crate::connection::Activity;

/// The connections beyond the bound, for probes.
const FOR_PROBES: usize = 8;

/// The time in which a connection makes room for another one.
const MAKES_ROOM: Duration = Duration::from_secs(1);

/// The places for connections of a listener. When all are taken, the stranger that is idle longest makes room.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    for_probes: Arc<Semaphore>,
    taken: Vec<Weak<Activity>>,
    /// Connections that can make room, the first one first. Found once for many that are told to.
    next: VecDeque<(RoomRank, Weak<Activity>)>,
}

/// A place, until it is dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    pub(crate) is_for_probes: bool,
}

/// The order in which connections make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoomRank {
    pub(crate) is_known: bool,
    pub(crate) is_busy: bool,
    pub(crate) since: Instant,
}

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        let free = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let for_probes = Arc::new(Semaphore::new(FOR_PROBES));
        Self { free, for_probes, taken: Vec::new(), next: VecDeque::new() }
    }

    /// A place for a new connection, for which another one may have to make room first.
    pub(crate) fn wait(&mut self, activity: &Arc<Activity>) -> impl Future<Output = Option<Place>> + use<> {
        let (free, for_probes) = (Arc::clone(&self.free), Arc::clone(&self.for_probes));
        let permit = Arc::clone(&free).try_acquire_owned().ok();
        let makes_room = permit.is_none() && self.make_room();
        if self.taken.len() == self.taken.capacity() {
            self.taken.retain(|taken| taken.strong_count() > 0);
        }
        self.taken.push(Arc::downgrade(activity));
        async move {
            let permit = match permit {
                None if makes_room => {
                    timeout(MAKES_ROOM, free.acquire_owned()).await.ok().and_then(Result::ok)
                }
                permit => permit,
            };
            let for_probes = || for_probes.try_acquire_owned().ok();
            let is_for_probes = permit.is_none();
            let permit = permit.or_else(for_probes)?;
            Some(Place { _permit: permit, is_for_probes })
        }
    }

    /// Tells a connection to make room; returns whether there was one.
    fn make_room(&mut self) -> bool {
        static FULL: Seldom = Seldom::new();
        let mut is_searched = false;
        let told = loop {
            let Some((rank, next)) = self.next.pop_front() else {
                if is_searched {
                    break None;
                }
                is_searched = true;
                self.search();
                continue;
            };
            // It may have been busy meanwhile.
            if let Some(activity) = next.upgrade().filter(|activity| activity.rank() == Some(rank)) {
                break Some(activity);
            }
        };
        let result = if told.is_some() { "made_room" } else { "turned_away" };
        counter!(FULL_TOTAL, "result" => result).increment(1);
        if FULL.is_due() {
            tracing::warn!(
                result,
                "all connections that --max-connections allows are open; said once a second"
            );
        }
        told.is_some_and(|told| {
            told.make_room();
            true
        })
    }

    fn search(&mut self) {
        let open = self.taken.iter().filter_map(|taken| Some((taken.upgrade()?.rank()?, Weak::clone(taken))));
        let mut next: Vec<_> = open.collect();
        next.sort_by_key(|(rank, _)| *rank);
        self.next = next.into();
    }
}
