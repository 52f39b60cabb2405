//! Leases from buckets in several places.

use std::time::Duration;

use sluicegate_core::Policy;
use sluicegate_core::store::DecidedBy;
use sluicegate_fleet::Sharded;
use sluicegate_fleet::leased::Leased;
use sluicegate_tests::memory::{answer, store};

use super::lease;

/// Once the parts were not told when it was spent, and gave all of it back.
#[test]
fn a_refund_over_parts_counts_the_time_since_the_spend() {
    let (memory, clock) = store();
    let sharded = Sharded::builder(&memory, 2).policy("api").build().unwrap();
    let leased = Leased::builder(&sharded).clock(clock.clone()).build().unwrap();
    let limiter = Policy::fixed_window("api", "100/min").on(&leased).unwrap();
    let plain = Policy::fixed_window("api", "100/min").on(&sharded).unwrap();
    clock.advance(Duration::from_secs(59));
    lease(&limiter, "ada");
    let spends = (0..10).map(|_| answer(limiter.check("ada")));
    let local = spends.filter(|decision| decision.decided_by() == DecidedBy::Lease);
    let mut receipts: Vec<_> = local.filter_map(|mut decision| decision.take_receipt(0)).collect();
    assert!(!receipts.is_empty());
    clock.advance(Duration::from_secs(2));
    assert!((0..2).all(|_| answer(plain.check("ada").cost(50)).is_allowed()));
    for receipt in &mut receipts {
        drop(answer(limiter.refund("ada", 1).of(receipt)));
    }
    assert_eq!(answer(plain.peek("ada")).remaining(), 0, "their window has ended");
}
