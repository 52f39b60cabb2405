//! Reserved turns, and the requests that wait for them: first come, first served, without polling.
//!
//! A store gives turns: moments at which a cost may proceed. Requests that wait for the same limiters and keys with the same
//! costs form a queue, which has one turn for each of them, and the first request proceeds at the first turn, whichever
//! request reserved it. When a request leaves, the requests behind it move up, and the last turn of the queue goes back to the store.
//!
//! # Invariants
//! - Requests are in the order of their own turns, and up to each request there are as many turns as requests. So none proceeds
//!   after its own turn.
//! - A turn is used once, given back once, or passes unused. The store takes back only its last turn, so a turn before that of another
//!   cost or instance is offered again when a later one has gone back, or the next request with its costs moves up to it. Without an
//!   answer a turn is lost.
//! - A turn that has come is spent, polled or not: a request that is not polled delays no other.
//!
//! # Locking
//! There is one mutex per limiter, the first that the request waits for. Under it no store is asked, no waker is called and nothing is
//! awaited.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::key::Key;
use crate::receipt::{DecidedBy, Receipt};

/// Answers are at most this late; a larger difference means that the clock was set.
const LATEST_ANSWER: Duration = Duration::from_secs(1);

/// The most turns that are searched for a request, which bounds the work caused by other requests that leave.
const MOST_LOOKED_AT: usize = 16;

/// The requests that wait under a limiter, the first of their limiters.
///
/// Memory is bounded by the callers, who bound the waiting requests, and by the longest waits, which bound the turns that a store gives.
#[derive(Default)]
pub(crate) struct Queues(Mutex<WaitLines>);

#[derive(Default)]
struct WaitLines {
    next: u64,
    by_key: HashMap<Arc<LineKey>, Line>,
}

/// The requests that wait for the same limiters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LineKey {
    /// The limiters, by their addresses, and keys that they wait for, in the order of the asks. Each waiting request keeps its limiters open.
    pub(crate) limits: SmallVec<[(usize, Key); 1]>,
    /// Turns of a store and of its fallback use different clocks.
    pub(crate) by: DecidedBy,
}

/// The cost of each ask.
pub(crate) type AskCosts = SmallVec<[u64; 2]>;

/// A turn that the store has given.
pub(crate) struct ReservedTurn {
    /// When it comes, in microseconds of the decider's clock.
    pub(crate) spent_us: u64,
    /// The spend under each limiter of the line; `None` if it has spent nothing.
    pub(crate) receipts: SmallVec<[Option<Receipt>; 1]>,
}

/// The moment of a request's own turn, and its number.
type Rank = (Instant, u64);

/// A turn that no request needs, with its rank and its costs.
pub(crate) type SurplusTurn = (Rank, (AskCosts, ReservedTurn));

/// The place of a waiting request.
pub(crate) struct TurnPlace {
    pub(crate) line: Arc<LineKey>,
    costs: AskCosts,
    rank: Rank,
}

/// Wake-ups that are due after the lock is released.
type Wakers = SmallVec<[Waker; 2]>;

impl TurnPlace {
    /// The latest time at which the request proceeds.
    pub(crate) fn at_latest(&self) -> Instant {
        self.rank.0
    }
}

impl Queues {
    /// Enters a request with the turn that it has reserved, which comes at this moment. If it moves up to a turn that was given up, the last
    /// turn has to be [given back](Self::start_returns).
    pub(crate) fn enter(&self, line: LineKey, costs: AskCosts, at: Instant, turn: ReservedTurn) -> TurnPlace {
        let mut lines = self.lock();
        lines.next += 1;
        let number = lines.next;
        let line = Arc::new(line);
        let line = lines.by_key.get_key_value(&line).map_or(line, |(known, _)| Arc::clone(known));
        let entered = lines.by_key.entry(Arc::clone(&line)).or_default();
        let rank = (entered.aligned(at, turn.spent_us), number);
        let queue = entered.queues.entry(costs.clone()).or_default();
        let now = Instant::now();
        let mut wakers = queue.advance(now);
        queue.requests.insert(rank, None);
        queue.turns.insert(rank, turn);
        let usable =
            |(at, (of, _)): &(&Rank, &(AskCosts, ReservedTurn))| **at < rank && at.0 > now && *of == costs;
        let free = entered.surplus.iter().take(MOST_LOOKED_AT).find(usable).map(|(at, _)| *at);
        if let Some((free, (_, turn))) = free.and_then(|free| entered.surplus.remove_entry(&free)) {
            queue.turns.insert(free, turn);
            let last = queue.turns.pop_last();
            entered.surplus.extend(last.map(|(at, turn)| (at, (costs.clone(), turn))));
        }
        wakers.extend(queue.news());
        drop(lines);
        wakers.into_iter().for_each(Waker::wake);
        TurnPlace { line, costs, rank }
    }

    /// The turn, if it has come; otherwise the time until which to wait.
    pub(crate) fn poll(&self, place: &TurnPlace, waker: &Waker) -> Result<ReservedTurn, Instant> {
        let mut lines = self.lock();
        let Some(queue) = lines.queue(place) else { return Err(place.at_latest()) };
        // No task has to be woken for a request that is being polled.
        queue.requests.entry(place.rank).and_modify(|waker| *waker = None);
        let wakers = queue.advance(Instant::now());
        let turn = queue.come.remove(&place.rank.1).ok_or_else(|| queue.wait(place.rank, waker));
        lines.tidy(place);
        drop(lines);
        wakers.into_iter().for_each(Waker::wake);
        turn
    }

    /// Leaves the queue: the requests behind move up, and the last turn has to be [given back](Self::start_returns). Returns `false` if
    /// the request's turn has come.
    pub(crate) fn leave(&self, place: &TurnPlace) -> bool {
        let now = Instant::now();
        let mut lines = self.lock();
        let Some(queue) = lines.queue(place) else { return false };
        let mut wakers = queue.advance(now);
        queue.come.remove(&place.rank.1);
        let was_waiting = queue.requests.remove(&place.rank).is_some();
        let surplus = if was_waiting { queue.turns.pop_last() } else { None };
        wakers.extend(queue.news());
        if let Some(line) = lines.by_key.get_mut(&place.line) {
            line.surplus.retain(|(at, _), _| *at > now);
            line.surplus.extend(surplus.map(|(at, turn)| (at, (place.costs.clone(), turn))));
        }
        if !was_waiting {
            lines.tidy(place);
        }
        drop(lines);
        wakers.into_iter().for_each(Waker::wake);
        was_waiting
    }

    /// The latest turn that no request needs, if no caller gives back turns of the line yet. Then this caller does, until
    /// [`next_return`](Self::next_return) has none.
    pub(crate) fn start_returns(&self, place: &TurnPlace) -> Option<SurplusTurn> {
        let mut lines = self.lock();
        let line = lines.by_key.get_mut(&place.line)?;
        let turn = if line.is_returning { None } else { line.surplus.pop_last() };
        line.is_returning |= turn.is_some();
        lines.tidy(place);
        turn
    }

    /// The next turn to give back: the latest, because the store takes back only its last turn. None is left after a turn that the store
    /// has kept, but for later ones.
    pub(crate) fn next_return(&self, place: &TurnPlace, kept: Option<SurplusTurn>) -> Option<SurplusTurn> {
        let mut lines = self.lock();
        let line = lines.by_key.get_mut(&place.line)?;
        let after = kept.as_ref().map(|(rank, _)| *rank);
        line.surplus.extend(kept);
        let next = line.surplus.last_entry().filter(|last| Some(*last.key()) != after);
        let next = next.map(std::collections::btree_map::OccupiedEntry::remove_entry);
        line.is_returning = next.is_some();
        lines.tidy(place);
        next
    }

    /// Gives back no more of the turns: they pass unused.
    pub(crate) fn stop_returns(&self, place: &TurnPlace) {
        let mut lines = self.lock();
        if let Some(line) = lines.by_key.get_mut(&place.line) {
            line.is_returning = false;
        }
        lines.tidy(place);
    }

    /// Whether the store still has to answer about a turn that was given up.
    pub(crate) fn are_returning(&self) -> bool {
        self.lock().by_key.values().any(|line| line.is_returning)
    }

    /// The number of lines.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    fn lock(&self) -> MutexGuard<'_, WaitLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitLines {
    fn queue(&mut self, place: &TurnPlace) -> Option<&mut TurnQueue> {
        self.by_key.get_mut(&place.line)?.queues.get_mut(&place.costs)
    }

    /// Forgets the queue if it is empty, and the line if no request waits in it: then its turns depend on those of other instances.
    fn tidy(&mut self, place: &TurnPlace) {
        let Some(line) = self.by_key.get_mut(&place.line) else { return };
        if line
            .queues
            .get(&place.costs)
            .is_some_and(|queue| queue.requests.is_empty() && queue.come.is_empty())
        {
            line.queues.remove(&place.costs);
        }
        if line.queues.is_empty() && !line.is_returning {
            self.by_key.remove(&place.line);
        }
    }
}

#[derive(Default)]
struct Line {
    /// The requests with the same costs: they can use each other's turns.
    queues: HashMap<AskCosts, TurnQueue>,
    /// One moment by the clock of the store that gives the turns, in microseconds, and by our clock.
    moment: Option<(u64, Instant)>,
    /// Turns that no request needs any more.
    surplus: BTreeMap<Rank, (AskCosts, ReservedTurn)>,
    /// Whether a caller gives them back.
    is_returning: bool,
}

impl Line {
    /// The time of a turn by the store's clock. The store takes back only its last turn, so an answer that overtakes another must not swap
    /// the two turns.
    fn aligned(&mut self, at: Instant, spent_us: u64) -> Instant {
        let by_store = self.moment.and_then(|(us, moment)| {
            let apart = Duration::from_micros(spent_us.abs_diff(us));
            if spent_us < us { moment.checked_sub(apart) } else { moment.checked_add(apart) }
        });
        match by_store.filter(|by_store| at.max(*by_store) - at.min(*by_store) <= LATEST_ANSWER) {
            Some(by_store) => by_store,
            None => {
                self.moment = Some((spent_us, at));
                at
            }
        }
    }
}

#[derive(Default)]
struct TurnQueue {
    /// The waiting requests, and the tasks to wake, once they were polled.
    requests: BTreeMap<Rank, Option<Waker>>,
    /// As many turns, by the ranks of the requests that reserved them.
    turns: BTreeMap<Rank, ReservedTurn>,
    /// The turns of requests that may proceed, and were not polled since.
    come: HashMap<u64, ReservedTurn>,
    /// The first request and its turn, as far as the request knows.
    known_first: Option<(Rank, Instant)>,
}

impl TurnQueue {
    /// Lets all requests proceed whose turn has come, whether they are polled or not.
    fn advance(&mut self, now: Instant) -> Wakers {
        let mut wakers = Wakers::new();
        while let Some(due) = self.turns.first_entry().filter(|turn| turn.key().0 <= now)
            && let Some(((_, number), waker)) = self.requests.pop_first()
        {
            self.come.insert(number, due.remove());
            wakers.extend(waker);
        }
        wakers.extend(self.news());
        wakers
    }

    /// The task to wake, because its request is now the first or proceeds at another time than it knows.
    fn news(&mut self) -> Option<Waker> {
        let first = self.first()?;
        if self.known_first == Some(first) {
            return None;
        }
        self.known_first = Some(first);
        self.requests.first_entry()?.get_mut().take()
    }

    /// Lets the request wait on. Returns the time until which it waits: the first turn if it is the first, and otherwise its own turn.
    fn wait(&mut self, rank: Rank, waker: &Waker) -> Instant {
        self.requests.entry(rank).and_modify(|known| *known = Some(waker.clone()));
        match self.first() {
            Some((first, at)) if first == rank => {
                self.known_first = Some((first, at));
                at
            }
            _ => rank.0,
        }
    }

    fn first(&self) -> Option<(Rank, Instant)> {
        let (rank, _) = self.requests.first_key_value()?;
        let ((at, _), _) = self.turns.first_key_value()?;
        Some((*rank, *at))
    }
}

#[cfg(test)]
mod tests;
