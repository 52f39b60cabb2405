//! One key in one sliding log: one look at the log, as in a table.

use super::counts_rejected;
use crate::decision::{Decision, QuotaStatus};
use crate::memory::bucket::Bucket;
use crate::memory::logs::Logs;
use crate::memory::store::PolicyBuckets;
use crate::store::{Ask, DecisionFuture, Mode};

impl PolicyBuckets {
    /// Decides one key in one bucket of logs. An ask that does not spend now, or is told where its entry is, is left to the
    /// general case.
    #[inline]
    pub(super) fn decide_log(&self, logs: &Logs, bucket: &Bucket, ask: &Ask<'_>) -> DecisionFuture {
        let in_general = || DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        if ask.mode() != Mode::Spend || bucket.accounts() {
            return in_general();
        }
        let (hash, cost) = (self.context.hash(bucket.salt, ask.key()), ask.cost());
        let mut shard = logs.lock(Logs::shard_of(hash));
        let is_held = bucket.holds.any();
        // Read under the lock, as in the general case.
        let now_us = self.context.clock.now_us();
        let spent = if is_held { None } else { shard.spend_now(hash, now_us, cost) };
        drop(shard);
        let Some((passed, left)) = spent.filter(|(passed, _)| *passed || !counts_rejected(ask)) else {
            return in_general();
        };
        let status = QuotaStatus::at_rest((0, 0), bucket.capacity)
            .with_remaining(left.remaining)
            .with_reset_after_us(left.reset_after_us);
        let status = match passed {
            true => status.with_more_after_us(left.available_after_us).spending(cost),
            false => status.refused_for_us(left.available_after_us),
        };
        DecisionFuture::ready(Ok(Decision::single(now_us, status)))
    }
}
