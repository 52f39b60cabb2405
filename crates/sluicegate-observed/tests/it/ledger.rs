//! A ledger that is fed by events: what it has is what was spent, however often an entry is written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::Policy;
use sluicegate_core::store::Event;
use sluicegate_observed::{Events, Observed};
use sluicegate_tests::memory::answer;
use sluicegate_tests::random::Random;

use crate::counts::observed;

/// An entry: its id, its policy, and its units.
type Entry = (u64, String, i128);

fn entries(store: &Observed, room: usize) -> Events<Entry> {
    let number = AtomicU64::new(0);
    store.events(room, move |event| {
        let (subject, units) = match event {
            Event::Consumed { subject, units } | Event::Delayed { subject, units, .. } => {
                (subject, i128::from(*units))
            }
            Event::Charged { subject, units } => (subject, i128::from(*units)),
            Event::Refunded { subject, units } => (subject, -i128::from(*units)),
            _ => return None,
        };
        Some((number.fetch_add(1, Ordering::Relaxed), subject.policy?.to_owned(), units))
    })
}

#[tokio::test(start_paused = true)]
async fn a_ledger_has_what_was_spent_though_each_second_answer_of_its_database_is_lost() {
    let (store, _) = observed("ledger");
    let mut entries = entries(&store, 10_000);
    let budget = Policy::gcra("budget", "100000/month").refunds().on(&store).expect("it fits the store");
    let waits = Policy::gcra("waits", "1/s").refunds().on(&store).expect("it fits the store");
    let tried = Policy::gcra("tried", "5/month").shadow().on(&store).expect("it fits the store");
    let mut random = Random::new(7);
    for _ in 0..500 {
        let mut decision = answer(budget.check("ada").cost(50));
        _ = answer(tried.check("ada"));
        match random.below(4) {
            0 => _ = answer(budget.charge("ada", random.below(90))),
            1 => {
                let mut receipt = decision.take_receipt(0).expect("it has spent");
                _ = answer(budget.refund("ada", random.below(51)).of(&mut receipt));
            }
            _ => {}
        }
    }
    _ = answer(waits.check("ada"));
    // One that waits for its turn, and one that leaves before it comes.
    waits.check("ada").acquire(Duration::from_secs(3)).await.expect("its turn comes in time");
    _ = tokio::time::timeout(Duration::from_millis(1), waits.check("ada").acquire(Duration::from_secs(9)))
        .await;

    let (mut ledger, mut writes) = (BTreeMap::new(), 0);
    while let Some((id, policy, units)) = entries.try_next() {
        // An insert with a conflict on the id does nothing, and is repeated until its answer is not lost.
        loop {
            ledger.entry(id).or_insert_with(|| (policy.clone(), units));
            writes += 1;
            if writes % 2 == 0 {
                break;
            }
        }
    }
    assert_eq!(writes, 2 * ledger.len());
    let sum = |name: &str| -> i128 {
        ledger.values().filter(|(policy, _)| policy == name).map(|(_, units)| units).sum()
    };
    let used = 100_000 - answer(budget.peek("ada")).remaining();
    assert_eq!((sum("budget"), sum("waits"), sum("tried")), (used.into(), 2, 0));
}

#[test]
fn an_entry_that_did_not_fit_leaves_a_gap() {
    let (store, _) = observed("ledger-gap");
    let mut entries = entries(&store, 2);
    let budget = Policy::gcra("budget", "100/month").on(&store).expect("it fits the store");
    for _ in 0..3 {
        _ = answer(budget.check("ada"));
    }
    let first: Vec<_> = std::iter::from_fn(|| entries.try_next()).map(|(id, ..)| id).collect();
    _ = answer(budget.check("ada"));
    assert_eq!((first, entries.dropped()), (vec![0, 1], 1));
    assert_eq!(entries.try_next().map(|(id, ..)| id), Some(3));
}
