//! Restates a decision with a suspended key.

use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::micros;
use crate::decision::Decision;
use crate::few::{few, sort_few};
use crate::store::{QuotaStatus, judge};

/// A suspension that has just begun, or was found while a refusal was counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewSuspension {
    /// The moment that the wait is counted from, in microseconds of the store's clock.
    pub(super) at_us: u64,
    pub(super) wait: Duration,
}

/// The asks with suspended keys, and the waits of these. `watches` has each peek with the index of its ask.
pub(super) fn waits(decision: &Decision, watches: impl Iterator<Item = (u8, u8)>) -> AskWaits {
    let refused = |peek: u8| {
        let mut own = decision.quotas().iter().filter(|status| status.policy_index() == usize::from(peek));
        own.find(|status| !status.passed())
    };
    few(watches.filter_map(|(peek, place)| Some((place, refused(peek)?.available_after()))))
}

type AskWaits = SmallVec<[(u8, Duration); 2]>;

/// The decision for its first `count` asks; those at these indexes are suspended for these times. If the store has no status
/// for such an ask, because it knew that the key was suspended and looked no further, the first quota of the ask gets one;
/// `capacity` gives that quota's capacity.
pub(super) fn suspended(
    decision: &Decision,
    count: usize,
    waits: &[(u8, Duration)],
    capacity: impl Fn(u8) -> u64,
) -> Decision {
    at(decision, decision.at_us(), count, waits, capacity)
}

/// This decision, after the key of the ask at this index was suspended.
pub(super) fn suspended_by(decision: &Decision, place: u8, suspension: &NewSuspension) -> Decision {
    // The statuses are known, because a quota of this ask has refused.
    at(decision, suspension.at_us, usize::MAX, &[(place, suspension.wait)], |_| 0)
}

fn at(
    decision: &Decision,
    at_us: u64,
    count: usize,
    waits: &[(u8, Duration)],
    capacity: impl Fn(u8) -> u64,
) -> Decision {
    let longest = |place: u8| {
        let own = waits.iter().filter(|(of, _)| *of == place);
        own.map(|(_, wait)| *wait).max()
    };
    let own = decision.quotas().iter().filter(|status| status.policy_index() < count);
    let stated = |status: &QuotaStatus| {
        let place = u8::try_from(status.policy_index()).unwrap_or(u8::MAX);
        longest(place).map_or(*status, |wait| status.suspended_for_us(micros(wait)))
    };
    let mut statuses: SmallVec<[QuotaStatus; 4]> = few(own.map(stated));
    for (place, _) in waits {
        let is_stated = statuses.iter().any(|status| status.policy_index() == usize::from(*place));
        if let Some(wait) = longest(*place).filter(|_| !is_stated) {
            let unknown = QuotaStatus::at_rest((*place, 0), capacity(*place));
            statuses.push(unknown.suspended_for_us(micros(wait)));
        }
    }
    sort_few(&mut statuses, |status| (status.policy_index(), status.quota_index()));
    judge(at_us, 0, statuses).by(decision.decided_by())
}
