//! Decisions that check in the same call whether keys are suspended.
//!
//! A peek at the suspension follows the asks. A store decides all of them together or not at all, so if the key is
//! suspended no policy of the request spends anything. In memory the peek is left out as long as no key is suspended under
//! the policy, which the store knows without looking at a key; a single quota of one key then takes the short way of its policy,
//! which counts a refusal by itself, unless it may be the one that suspends the key.
//!
//! A refusal by one of the policies then counts as a strike, in a call of its own that the answer waits for: so the refusal
//! that suspends a key says so itself, in every process alike. A refusal of a suspended key is no strike, and neither is a refusal
//! in an outage, which no store has counted.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use smallvec::SmallVec;

use super::strike::{Striker, buckets_of, suspended, waits};
use crate::decision::Decision;
use crate::few::few;
use crate::key::KeyRef;
use crate::policy::PolicyMode;
use crate::store::{Ask, DecideResult, DecidedBy, DecisionFuture, Mode, PreparedPolicy, Store};
use crate::wrap::ask_by_policy;

/// The asks with a suspension to check.
type Watched = SmallVec<[StrikeWatch; 2]>;

type Strikers = SmallVec<[Striker; 1]>;

struct StrikeWatch {
    /// The ask.
    place: u8,
    /// The peeks at its suspension; empty if it is certain that its key is not suspended.
    peeks: Range<u8>,
    /// The capacity of its first quota.
    capacity: u64,
}

/// Whether an ask may be refused because its key is suspended.
#[inline]
pub(crate) fn suspends(ask: &Ask<'_>) -> bool {
    ask.policy().suspension().is_some()
        && ask.mode().asks()
        && ask.policy().policy().mode() == PolicyMode::Enforce
}

/// Whether the store knows without a call that this key is at rest in this bucket.
fn is_at_rest(bucket: &PreparedPolicy, key: KeyRef<'_>) -> bool {
    bucket.short_way().is_some_and(|short_way| short_way.is_at_rest(&key))
}

/// Decides asks of which at least one [suspends].
pub(crate) fn decide(store: &Arc<dyn Store>, asks: &[Ask<'_>]) -> DecisionFuture {
    let count = asks.len();
    let (mut watched, mut all) = (Watched::new(), SmallVec::<[Ask<'_>; 4]>::new());
    for (place, ask) in (0_u8..).zip(asks).filter(|(_, ask)| suspends(ask)) {
        let mut peeks = 0..0;
        for bucket in buckets_of(ask.policy(), ask.key()).filter(|bucket| !is_at_rest(bucket, ask.key())) {
            if all.is_empty() {
                all.extend_from_slice(asks);
            }
            let Ok(peek) = u8::try_from(all.len()) else { break };
            peeks = if peeks.is_empty() { peek..peek + 1 } else { peeks.start..peek + 1 };
            all.push(Ask::new(bucket, ask.key(), 1, Mode::Peek));
        }
        let first = ask.numbers().quotas().first();
        let capacity = first.map_or(0, |quota| quota.rule().capacity());
        watched.push(StrikeWatch { place, peeks, capacity });
    }
    let answer = ask_by_policy(&**store, if all.is_empty() { asks } else { &all });
    if all.is_empty() && matches!(answer.known(), Some(Ok(decision)) if decision.is_allowed()) {
        return answer;
    }
    let striker = |watch: &StrikeWatch| {
        let ask = &asks[usize::from(watch.place)];
        Striker::new(watch.place, ask).filter(|_| ask.mode().spends())
    };
    // An answer that has come at once is read at once, and so are those that follow it.
    let (is_here, answer) = match answer.now() {
        Ok(Err(error)) => return DecisionFuture::ready(Err(error)),
        Ok(Ok(decision)) => {
            let (decision, counts) = read(decision, count, &watched);
            if !counts || !watched.iter().any(|watch| striker(watch).is_some()) {
                return DecisionFuture::ready(Ok(decision));
            }
            (true, DecisionFuture::ready(Ok(decision)))
        }
        Err(pending) => (store.always_answers(), pending),
    };
    let (store, strikers) = (Arc::clone(store), few(watched.iter().filter_map(striker)));
    let work = async move {
        let (decision, counts) = read(answer.await?, count, &watched);
        Ok(if counts { strike(&store, strikers, decision).await } else { decision })
    };
    finished(is_here, Box::pin(work))
}

/// The decision about the first asks, whose keys may be suspended; and whether it is a refusal that counts.
fn read(decision: Decision, count: usize, watched: &Watched) -> (Decision, bool) {
    if decision.is_allowed() || decision.decided_by() == DecidedBy::Outage {
        return (decision.of_first(count), false);
    }
    let peeks = |watch: &StrikeWatch| {
        let place = watch.place;
        watch.peeks.clone().map(move |peek| (peek, place))
    };
    let waits = waits(&decision, watched.iter().flat_map(peeks));
    match waits.is_empty() {
        true => (decision.of_first(count), true),
        false => {
            let of = |place: u8| watched.iter().find(|watch| watch.place == place);
            let capacity = |place: u8| of(place).map_or(0, |watch| watch.capacity);
            (suspended(&decision, decision.at_us(), count, &waits, capacity), false)
        }
    }
}

/// Counts a refusal for each policy that has refused.
async fn strike(store: &Arc<dyn Store>, strikers: Strikers, mut refused: Decision) -> Decision {
    for striker in strikers {
        if striker.has_refused(&refused)
            && let Some(suspension) = striker.strike(store).await
        {
            // The statuses are known, because a quota of this ask has refused.
            let wait = (striker.place, suspension.wait);
            refused = suspended(&refused, suspension.at_us, usize::MAX, &[wait], |_| 0);
        }
    }
    refused
}

/// Begins work of several calls: at once if it is `here`, in memory, or if there is a tokio runtime, which the timers
/// of other stores need. If the future is dropped, the tokio runtime on which it was begun finishes the work: a client that
/// hangs up does not evade the consequences of its refusal.
pub(crate) fn finished(
    is_here: bool,
    work: Pin<Box<dyn Future<Output = DecideResult> + Send>>,
) -> DecisionFuture {
    #[cfg(feature = "tokio")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        return DecisionFuture::begun_boxed(&runtime, work);
    }
    if is_here { DecisionFuture::polled_boxed(work) } else { DecisionFuture::pending(work) }
}
