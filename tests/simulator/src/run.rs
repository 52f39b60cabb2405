//! What has become of a plan: [`Run`], and whether the law was kept.

use sluicegate_core::{ConfigError, Quota};

use crate::fault::Fault;
use crate::law::{Admission, Excess, Law};
use crate::log::Log;
use crate::plan::Plan;

/// A run is played at most so often again.
pub(crate) const AGAIN: usize = 20;

/// What has become of a plan.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan.
    pub plan: Plan,
    /// What was decided.
    pub log: Log,
    /// What befell the fleet, and when, in microseconds.
    pub faults: Vec<(u64, Fault)>,
    /// The quotas that were in force, each from a moment of the shared store's clock on.
    pub quotas: Vec<(u64, Quota)>,
    /// How long requests came, in microseconds.
    pub lasted_us: u64,
    /// Calls to the shared store.
    pub calls: u64,
    /// How often a memory forgot a key because others needed the room: it may be admitted more than its quota allows.
    pub forgotten: u64,
}

/// A key that was admitted more than the law allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The place of the key.
    pub key: usize,
    /// The instance that was alone, by its number; none if it is about all that was admitted with the shared store's knowledge.
    pub alone: Option<u64>,
    /// By how much.
    pub excess: Excess,
}

impl Run {
    /// The first of these in which there was room for all keys; the last, if there was none.
    pub(crate) fn with_room(
        again: usize,
        mut play: impl FnMut() -> Result<Self, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut run = play()?;
        for _ in 0..again {
            if run.forgotten == 0 {
                break;
            }
            run = play()?;
        }
        Ok(run)
    }

    /// What the plan's algorithm allows: under the largest of the quotas that were in force.
    #[must_use]
    pub fn law(&self) -> Law {
        let largest = self.quotas.iter().map(|(_, quota)| quota).max_by_key(|quota| quota.limit());
        Law::of(self.plan.algorithm, largest.unwrap_or(&self.plan.quota))
    }

    /// All keys that were admitted more than this allows, the worst first: by all together, and by instances that were alone,
    /// each of which has its share; and while each of several quotas was in force, more than that one does. What nobody counted, by
    /// a policy that allows requests in an outage, has no law.
    #[must_use]
    pub fn broken(&self, law: Law) -> Vec<Broken> {
        let shared = || self.log.shared.iter().zip(&self.log.losses).enumerate();
        let all = shared().filter_map(|(key, (list, losses))| {
            Some(Broken { key, alone: None, excess: law.check(list, losses).err()? })
        });
        let share = law.share(self.plan.instances as u64);
        let alone = self.log.alone.iter().filter_map(|((instance, key), list)| {
            let losses = self.log.forgotten.get(&(*instance, *key)).map_or(&[][..], Vec::as_slice);
            Some(Broken { key: *key, alone: Some(*instance), excess: share.check(list, losses).err()? })
        });
        let mut broken: Vec<_> = all.chain(alone).collect();
        for (index, (from_us, quota)) in self.quotas.iter().enumerate().filter(|_| self.quotas.len() > 1) {
            let to_us = self.quotas.get(index + 1).map_or(u64::MAX, |(next_us, _)| *next_us);
            let law = Law::of(self.plan.algorithm, quota);
            broken.extend(shared().filter_map(|(key, (list, losses))| {
                let is_under = |one: &&Admission| one.from_us >= *from_us && one.to_us < to_us;
                let list: Vec<_> = list.iter().filter(is_under).copied().collect();
                Some(Broken { key, alone: None, excess: law.check(&list, losses).err()? })
            }));
        }
        broken.sort_by_key(|broken| std::cmp::Reverse(broken.excess.units));
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs that differ by what was forgotten; how many were played, and the number of the one that is taken.
    fn taken(again: usize, forgotten: &[u64]) -> (usize, u64) {
        let run = Run {
            plan: Plan::default(),
            log: Log::default(),
            faults: vec![],
            quotas: vec![],
            lasted_us: 0,
            calls: 0,
            forgotten: 0,
        };
        let mut played = 0;
        let run = Run::with_room(again, || {
            played += 1;
            Ok(Run { forgotten: forgotten[played - 1], calls: played as u64, ..run.clone() })
        });
        let run = run.expect("the policy is possible");
        (played, run.calls)
    }

    #[test]
    fn a_run_in_which_a_key_had_to_make_room_is_played_again() {
        assert_eq!(taken(5, &[0, 0]), (1, 1));
        assert_eq!(taken(5, &[2, 1, 0, 0]), (3, 3));
        assert_eq!(taken(2, &[9, 9, 9, 0]), (3, 3));
        assert_eq!(taken(0, &[1, 0]), (1, 1));
    }
}
