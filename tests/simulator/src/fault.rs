//! What befalls a fleet, and when.

use sluicegate_tests::random::Random;

use crate::network::Cut;
use crate::plan::Plan;
use crate::server::Lost;

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The instance at this place is gone.
    Crash(usize),
    /// The instance at this place is told to end.
    Close(usize),
    /// An instance starts at this place.
    Start(usize),
    /// Every third instance, from this one on, is cut off.
    Part(usize, Cut),
    /// The instance at this place stands still for this many microseconds: requests and answers wait for it, and its leases end.
    Pause(usize, u64),
    /// The store forgets everything.
    Flush,
    /// A replica takes the store's place, which is behind by this many microseconds.
    Failover(u64),
    /// The policies are replaced on all instances: by ones of twice the quota, or of the quota as it was.
    Replace,
    /// A key is reset.
    Reset(usize),
}

/// The faults of a run of this length, in their order, each with its moment in microseconds.
pub(crate) fn faults(plan: &Plan, lasts_us: u64) -> Vec<(u64, Fault)> {
    const LONGEST_US: u64 = 3_000_000;
    const LONGEST_BEHIND_US: u64 = 1_000_000;
    let mut random = Random::new(plan.seed ^ 0x6661_756c_7473);
    let mut all = Vec::new();
    for (times, fault) in [(plan.crashes, Fault::Crash as fn(usize) -> Fault), (plan.closes, Fault::Close)] {
        for _ in 0..times {
            let (at_us, place) = (random.below(lasts_us), random.index(plan.instances));
            all.push((at_us, fault(place)));
            all.push((at_us + 1_100_000 + random.below(LONGEST_US - 1_100_000), Fault::Start(place)));
        }
    }
    for _ in 0..plan.partitions {
        let (at_us, first) = (random.below(lasts_us), random.index(3));
        let cut = if random.below(2) == 0 { Cut::Silent } else { Cut::Refused };
        all.push((at_us, Fault::Part(first, cut)));
        all.push((at_us + random.below(LONGEST_US), Fault::Part(first, Cut::Whole)));
    }
    for _ in 0..plan.pauses {
        let (at_us, place) = (random.below(lasts_us), random.index(plan.instances));
        all.push((at_us, Fault::Pause(place, random.below(LONGEST_US))));
    }
    all.extend((0..plan.flushes).map(|_| (random.below(lasts_us), Fault::Flush)));
    all.extend((0..plan.failovers).map(|_| {
        let (at_us, behind_us) = (random.below(lasts_us), random.below(LONGEST_BEHIND_US));
        (at_us, Fault::Failover(behind_us))
    }));
    all.extend((0..plan.replacements).map(|_| (random.below(lasts_us), Fault::Replace)));
    // Popular keys, which have something to lose.
    let popular = plan.keys.div_ceil(4);
    all.extend((0..plan.resets).map(|_| (random.below(lasts_us), Fault::Reset(random.index(popular)))));
    all.sort_by_key(|(at_us, _)| *at_us);
    all
}

/// What the shared stores lose, in the order in which that happens.
pub(crate) fn losses(faults: &[(u64, Fault)]) -> Vec<Lost> {
    let lost = |fault: &Fault| match fault {
        Fault::Flush => Some(Lost::All),
        Fault::Failover(_) => Some(Lost::Late),
        _ => None,
    };
    faults.iter().filter_map(|(_, fault)| lost(fault)).collect()
}
