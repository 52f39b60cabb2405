//! What was charged, beside what was admitted.

use std::time::Duration;

use sluicegate_core::RateLimiter;
use sluicegate_core::store::DecidedBy;
use sluicegate_redis::RedisStore;
use tokio::runtime::Runtime;

use crate::load::{KEYS, Kind, LEDGER, Record, key};
use crate::oracle::Admission;

/// Reads off the server what was charged.
pub(crate) struct Ledger {
    runtime: Runtime,
    limiter: RateLimiter,
}

impl Ledger {
    pub(super) fn of(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limiter = runtime.block_on(async {
            let redis = RedisStore::builder().deadline(Duration::from_secs(5)).connect(url).unwrap();
            redis.connected(Duration::from_secs(20)).await.expect("the store has recovered");
            Kind::Ledger.policy().on(&redis).unwrap()
        });
        Self { runtime, limiter }
    }

    /// What was charged so far, in all.
    pub(crate) fn charged(&self) -> u64 {
        let charged = |index| {
            let standing = self.runtime.block_on(self.limiter.peek(key(index)).start());
            LEDGER - standing.expect("the store has recovered").remaining()
        };
        (0..KEYS).map(charged).sum()
    }
}

/// What one key was admitted by one policy, on this basis.
pub(super) fn admitted(records: &[Record], policy: Kind, index: usize, basis: DecidedBy) -> Vec<Admission> {
    let of_it = |record: &&Record| record.kind.spends_from(policy) && record.key == index;
    let admitted = |record: &&Record| record.allowed && record.is(basis);
    let records = records.iter().filter(of_it).filter(admitted);
    records.map(|record| Admission { from: record.at, to: record.end() }).collect()
}

/// Of the ledger: what the store admitted, what the fallback did, and how many calls were given up at their deadline, so
/// that they may have been executed later.
pub(super) fn spent(records: &[Record], deadline: Duration) -> (u64, u64, u64) {
    let ledger = || records.iter().filter(|record| record.kind == Kind::Ledger);
    let admitted = |basis| ledger().filter(|record| record.allowed && record.is(basis)).count();
    let is_given_up = |record: &&Record| {
        record.is(DecidedBy::Fallback) && record.took + Duration::from_millis(5) >= deadline
    };
    let given_up = ledger().filter(is_given_up).count();
    let [store, alone, given_up] =
        [admitted(DecidedBy::Store), admitted(DecidedBy::Fallback), given_up].map(|count| count as u64);
    (store, alone, given_up)
}
