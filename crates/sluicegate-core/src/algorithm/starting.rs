//! Buckets in which an unknown key starts with less than a whole burst.

use super::shape::Shape;
use super::{FixedWindow, Gcra, Numbers, Slot, Spent, State};

/// A bucket in which an unknown key starts with less than a burst.
///
/// The state is that of the bucket, but ends later: a bucket that is full is kept for as long as a full burst takes to refill
/// ([`Quota::starting_with`](crate::Quota::starting_with) says why), and only a key with a state that has ended is a newcomer. So
/// `State::until_us` also says for this rule when a store may forget the state; and [`State::REST`] stands for an unknown key, not for a
/// full one.
///
/// # Source
/// Bucket4j's `Bandwidth.initialTokens`, with `ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(keep)`, where `keep` is
/// the time in which a full burst refills. Deviation: the time for which a full bucket is kept counts from the moment at which
/// it became full, not from the last write.
///
/// # Rounding
/// None beyond that of the bucket.
///
/// # State
/// The state of the bucket.
///
/// # Example
/// Sixty a minute, but a newcomer may spend only three at once.
///
/// ```
/// use sluicegate_core::algorithm::{Rule, State};
/// use sluicegate_core::{Algorithm, Quota};
///
/// const SECOND: u64 = 1_000_000;
/// let rule = Rule::new(Algorithm::Gcra, Quota::per_minute(60).starting_with(3))?;
/// let known = rule.begun(0);
/// assert_eq!((rule.remaining(State::REST, 0), rule.remaining(known, 0)), (3, 3));
/// assert_eq!(rule.remaining(known, 57 * SECOND), 60);
/// // It was full after 57 seconds, and is kept for a minute more.
/// assert_eq!(known.until_us, 117 * SECOND);
/// assert_eq!(rule.remaining(known, 117 * SECOND), 3);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Starting<S> {
    bucket: S,
    /// The units of a burst that a newcomer lacks; at least one.
    missing: u64,
}

/// GCRA, the greedy token bucket or the leaky bucket, under which newcomers start with less than a burst.
pub type StartingGcra = Starting<Gcra>;

/// A token bucket that refills at intervals, under which newcomers start with less than a burst.
pub type StartingWindow = Starting<FixedWindow>;

#[expect(private_bounds, reason = "only the buckets that are named above are of this kind")]
impl<S: Shape> Starting<S> {
    pub(super) fn new(bucket: S, missing: u64) -> Self {
        Self { bucket, missing }
    }

    /// The bucket alone, in which an unknown key has a whole burst.
    pub(super) fn bucket(&self) -> S {
        self.bucket
    }

    /// The time for which a full bucket is kept, in microseconds.
    fn keep_us(&self) -> u64 {
        self.bucket.longest_spend_us()
    }

    fn newcomer(&self, now_us: u64) -> State {
        self.bucket.spend(State::REST, now_us, now_us, self.missing)
    }

    /// The bucket's own state of a key that is known.
    fn stripped(&self, state: State) -> State {
        if state.aux == 0 && !self.bucket.is_level() {
            // A window without units is at rest, even if the clock has gone back.
            return State::REST;
        }
        State { until_us: state.until_us.saturating_sub(self.keep_us()), ..state }
    }

    /// The spend, with the states of the bucket alone.
    fn told(&self, spent: &Spent) -> Spent {
        Spent { before: self.stripped(spent.before), after: self.stripped(spent.after), ..*spent }
    }

    /// Whether nothing can be given back: an unknown key has spent nothing, and a full one owes nothing.
    fn owes_nothing(&self, state: State, now_us: u64) -> bool {
        state.until_us <= now_us || self.stripped(state).until_us <= now_us
    }
}

impl<S: Shape> Shape for Starting<S> {
    fn capacity(&self) -> u64 {
        self.bucket.capacity()
    }

    fn with_debt(self, units: u64) -> Self {
        Self { bucket: self.bucket.with_debt(units), ..self }
    }

    fn rounding_up(self) -> Self {
        Self { bucket: self.bucket.rounding_up(), ..self }
    }

    fn debt_ceiling(&self) -> u64 {
        self.bucket.debt_ceiling()
    }

    fn longest_spend_us(&self) -> u64 {
        self.bucket.longest_spend_us().saturating_add(self.keep_us())
    }

    fn numbers(&self) -> Numbers {
        self.bucket.numbers().of_newcomers(self.missing)
    }

    /// The words of the bucket's own state; its time is the moment at which the bucket is full. An unknown key has three zeros.
    fn words(&self, state: State) -> [u64; 3] {
        if state == State::REST { [0; 3] } else { self.bucket.words(self.stripped(state)) }
    }

    fn of_words(&self, words: [u64; 3]) -> State {
        if words == [0; 3] { State::REST } else { self.kept(self.bucket.of_words(words), 0) }
    }

    fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot {
        self.bucket.slot(self.plain(state, now_us), now_us, cost)
    }

    fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State {
        if cost == 0 {
            return if state.until_us > now_us { state } else { self.begun(now_us) };
        }
        let plain = self.plain(state, now_us);
        self.kept(self.bucket.spend(plain, now_us, at_us, cost), at_us.max(now_us))
    }

    fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64) {
        let before = self.plain(state, now_us);
        let (after, taken) = self.bucket.charge(before, now_us, cost);
        let stays = after == before && state.until_us > now_us;
        (if stays { state } else { self.kept(after, now_us) }, taken)
    }

    fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State {
        if self.owes_nothing(state, now_us) {
            return state;
        }
        self.kept(self.bucket.refund(self.stripped(state), now_us, ago_us, cost), now_us)
    }

    fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64) {
        if self.owes_nothing(state, now_us) {
            return (state, 0);
        }
        let (plain, given) = self.bucket.give_back(self.stripped(state), now_us, &self.told(spent), give);
        (self.kept(plain, now_us), given)
    }

    fn begun(&self, now_us: u64) -> State {
        self.kept(self.newcomer(now_us), now_us)
    }

    fn full(&self, now_us: u64) -> State {
        self.kept(State::REST, now_us)
    }

    fn plain(&self, state: State, now_us: u64) -> State {
        if state.until_us <= now_us { self.newcomer(now_us) } else { self.stripped(state) }
    }

    fn kept(&self, state: State, now_us: u64) -> State {
        let rests_us = state.until_us.max(self.bucket.floor_us(now_us));
        State { until_us: rests_us.saturating_add(self.keep_us()), ..state }
    }

    fn without(&self, state: State, now_us: u64, turn: &Spent) -> Option<State> {
        let plain = self.bucket.take_back(self.stripped(state), &self.told(turn))?;
        Some(if plain.until_us <= now_us { self.full(now_us) } else { self.kept(plain, now_us) })
    }

    fn remaining(&self, state: State, now_us: u64) -> u64 {
        self.bucket.remaining(self.plain(state, now_us), now_us)
    }

    fn used(&self, state: State, now_us: u64) -> u64 {
        self.bucket.used(self.plain(state, now_us), now_us)
    }

    fn reset_after_us(&self, state: State, now_us: u64) -> u64 {
        self.bucket.reset_after_us(self.plain(state, now_us), now_us)
    }

    fn level(&self, state: State, now_us: u64) -> u64 {
        self.bucket.level(self.plain(state, now_us), now_us)
    }

    fn per_unit(&self) -> u64 {
        self.bucket.per_unit()
    }

    fn at_level(&self, level: u64, now_us: u64) -> State {
        self.kept(self.bucket.at_level(level, now_us), now_us)
    }

    fn outstanding(&self, state: State, now_us: u64) -> u64 {
        self.bucket.outstanding(self.plain(state, now_us), now_us)
    }

    fn weight(&self, state: State, now_us: u64) -> (u64, u64) {
        self.bucket.weight(self.plain(state, now_us), now_us)
    }

    fn drains_in(&self, span_us: u64) -> Option<u64> {
        self.bucket.drains_in(span_us)
    }

    fn is_level(&self) -> bool {
        self.bucket.is_level()
    }

    fn is_queue(&self) -> bool {
        self.bucket.is_queue()
    }

    fn aux_bound(&self) -> u64 {
        self.bucket.aux_bound()
    }
}
