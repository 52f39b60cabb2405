//! The waiting rooms of a request, and the queue that may keep it: [`RoomExplained`], [`DeferralExplained`].

use std::fmt;

use sluicegate_core::Quota;
use sluicegate_core::policy::TimeSpan;
use sluicegate_core::support::ceil_seconds;
use sluicegate_tower::room::RoomNumbers;

/// A waiting room that a request comes to. A request that shows no pass waits there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RoomExplained {
    /// Its name.
    pub name: String,
    /// The rate in the file.
    pub rate: Quota,
    /// Its current numbers; `None` in a tool, which has no line.
    ///
    /// They are from one moment, and estimates if the line is long: visitors who leave are noticed only at their turn.
    pub numbers: Option<RoomNumbers>,
}

/// A policy that defers, for a request that may exceed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeferralExplained {
    /// Its name. Its quotas, which jobs are run by, are listed with the limit.
    pub policy: String,
    /// The most bytes of a body that the queue of the program keeps; a request with a longer one is refused. `None` in a tool, which has no
    /// queue.
    pub longest_body: Option<usize>,
}

/// Writes `defers what exceeds orders to the queue of the program, bodies up to 65536 bytes`.
impl fmt::Display for DeferralExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "defers what exceeds {} to the queue of the program", self.policy)?;
        self.longest_body.map_or(Ok(()), |bytes| write!(f, ", bodies up to {bytes} bytes"))
    }
}

/// Writes `waiting room sale, 50/s, 120 wait, a newcomer for about 3s`.
impl fmt::Display for RoomExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rate, numbers } = self;
        write!(f, "waiting room {name}, {rate}")?;
        let Some(now) = numbers else { return Ok(()) };
        let plain = |rate: Quota| Quota::new(rate.limit(), rate.period());
        if plain(now.rate) != plain(*rate) {
            write!(f, ", set to {}", plain(now.rate))?;
        }
        match now.mode {
            "open" => f.write_str(", open to all")?,
            "paused" => f.write_str(", paused")?,
            _ => {}
        }
        if let Some(active) = now.active {
            write!(f, ", {active} are inside")?;
        }
        write!(f, ", {} wait", now.waiting)?;
        match now.wait.filter(|wait| !wait.is_zero()) {
            // As much as an estimate is worth.
            Some(wait) => {
                let seconds = ceil_seconds(wait);
                write!(
                    f,
                    ", a newcomer for about {}",
                    TimeSpan::from(std::time::Duration::from_secs(seconds))
                )
            }
            None => Ok(()),
        }
    }
}
