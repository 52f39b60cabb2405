//! The end of a process, which gives back its held units.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_core::limiter::Receipt;
use sluicegate_core::store::{Ask, DecisionFuture, Mode, PreparedPolicy};
use sluicegate_core::{Key, StoreError};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::units::PerQuota;
use super::{LeaseState, Leased};

/// The pause between two checks for pending refills.
const PAUSE: Duration = Duration::from_millis(10);

/// The number of concurrent returns.
const AT_ONCE: usize = 64;

impl Leased {
    /// Gives back the held units of this process to the store. Call it at the end of the process: after the last request was answered, and
    /// before the runtime ends.
    ///
    /// From then on, nothing is leased: requests go to the inner store. Pending refills are awaited and given back, too. A
    /// return without an answer is not repeated, because it may have arrived.
    ///
    /// A window gets all units back at once. A bucket gets back at once the units after which no other instance holds a lease: units that
    /// drain before another lease stay spent until they have drained, so that no span admits more than the quota allows.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redis = sluicegate_core::MemoryStore::new();
    /// # async fn serve() {}
    /// use std::time::Duration;
    /// use sluicegate_fleet::leased::Leased;
    ///
    /// let store = Leased::new(redis);
    /// serve().await; // such as `axum::serve(..).with_graceful_shutdown(..)`
    /// if let Err(unreturned) = store.close(Duration::from_secs(5)).await {
    ///     eprintln!("{unreturned}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unreturned`] when some units are not given back in time. They cannot be spent until they have drained, or their window
    /// is over.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its timer.
    ///
    /// # Cancel safety
    /// The held units are given back or lost; nothing is leased from then on.
    pub async fn close(&self, within: Duration) -> Result<(), Unreturned> {
        let now = Instant::now();
        // A time too long for the clock counts as a day.
        let until = now.checked_add(within).unwrap_or(now + Duration::from_secs(86_400));
        match self.0.0.give_back(until).await {
            0 => Ok(()),
            units => Err(Unreturned { units }),
        }
    }
}

/// The units that a process leaves behind, and that no instance can spend for a while. See [`Leased::close`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreturned {
    units: u64,
}

impl Unreturned {
    /// The number of units, including those whose return was not answered.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl fmt::Display for Unreturned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units } = self;
        let (noun, verb) = if *units == 1 { ("unit", "was") } else { ("units", "were") };
        write!(f, "{units} leased {noun} {verb} not given back to the store: give `close` more time")
    }
}

impl std::error::Error for Unreturned {}

/// The rest of a lease, on its way back.
struct LeaseRemainder {
    policy: PreparedPolicy,
    key: Key,
    receipt: Box<Receipt>,
    left: PerQuota<u64>,
}

impl LeaseRemainder {
    fn units(&self) -> u64 {
        self.left.iter().copied().max().unwrap_or(0)
    }

    fn order(&self) -> (&str, &[u8]) {
        (self.policy.policy().name(), self.key.as_bytes())
    }
}

impl LeaseState {
    /// Gives back all held units until then. Returns the number of units that were not given back.
    async fn give_back(self: &Arc<Self>, until: Instant) -> u64 {
        // Release: a later request leases nothing.
        self.is_closed.store(true, Ordering::Release);
        let mut lost = 0;
        loop {
            let (rests, are_under_way) = self.rests();
            let mut rests = rests.into_iter();
            while rests.len() > 0 {
                let batch: Vec<LeaseRemainder> = rests.by_ref().take(AT_ONCE).collect();
                if Instant::now() >= until {
                    lost += batch.iter().map(LeaseRemainder::units).sum::<u64>();
                    continue;
                }
                let answers: Vec<(u64, DecisionFuture)> =
                    batch.iter().map(|rest| (rest.units(), self.give(rest))).collect();
                for (units, answer) in answers {
                    let answer: Result<_, StoreError> = match timeout_at(until, answer).await {
                        Ok(answer) => answer,
                        Err(_) => {
                            lost += units;
                            continue;
                        }
                    };
                    match answer {
                        Ok(_) => self.returned(units),
                        Err(_) => lost += units,
                    }
                }
            }
            if !are_under_way || Instant::now() >= until {
                return lost;
            }
            sleep_until(until.min(Instant::now() + PAUSE)).await;
        }
    }

    fn give(&self, rest: &LeaseRemainder) -> DecisionFuture {
        let ask = Ask::new(&rest.policy, rest.key.as_ref(), 0, Mode::Refund);
        self.within.decide(&[ask.with_costs(&rest.left).of(&rest.receipt)])
    }

    fn returned(&self, units: u64) {
        self.table.set(0).counts.returned += units;
    }

    /// Takes out all held units, in the order of policies and keys, so that runs are repeatable. Also returns whether refills are
    /// pending.
    fn rests(&self) -> (Vec<LeaseRemainder>, bool) {
        let (mut rests, mut are_under_way) = (Vec::new(), false);
        let now_us = self.clock.now_us();
        for mut set in self.table.each() {
            set.walk(|policy, key, account, counts| {
                are_under_way |= account.is_in_flight();
                let Some(measures) = policy.measures().filter(|_| !account.units.is_empty()) else { return };
                counts.lost += account.units.expire(measures, now_us);
                let Some(policy) = policy.prepared() else {
                    counts.lost += account.units.clear();
                    return;
                };
                for grant in account.units.take() {
                    let (receipt, left) = grant.into_rest();
                    rests.push(LeaseRemainder { policy: policy.clone(), key: key.clone(), receipt, left });
                }
            });
        }
        rests.sort_by(|one, other| one.order().cmp(&other.order()));
        (rests, are_under_way)
    }
}
