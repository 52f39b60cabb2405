//! The suite that every store has to pass.
//!
//! A store that leases is not exact: its numbers are those of what it holds. So the random traces are decided as in memory where
//! nothing is leased, and the other checks with leases.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_conformance::Conformance;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_fleet::leased::Leased;
use sluicegate_tests::memory::store_for;

fn suite(
    leases: impl FnOnce(MemoryStore, sluicegate_core::clock::ManualClock) -> Arc<dyn Store>,
) -> Conformance {
    let (memory, clock) = store_for(4_096, 1 << 22);
    Conformance::new(leases(memory, clock.clone()), clock)
}

#[tokio::test]
async fn examples_refusals_and_modes_are_those_of_every_store() {
    let suite = suite(|memory, clock| Leased::builder(memory).clock(clock).build().unwrap().into());
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.modes().await;
}

#[tokio::test]
async fn without_leases_it_decides_exactly_as_the_store_within() {
    let closed = {
        let (memory, clock) = store_for(4_096, 1 << 22);
        let store = Leased::builder(memory).clock(clock.clone()).build().unwrap();
        store.close(Duration::ZERO).await.unwrap();
        Conformance::new(&store, clock)
    };
    closed.worked_examples().await;
    closed.same_decisions_as_memory(Duration::ZERO, 3, 30).await;
    closed.same_refunds_as_memory(4, 20).await;
    closed.same_replacements_as_memory(5, 20).await;
}
