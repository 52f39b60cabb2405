//! A policy as a store around a store has it: asks by hand, on a clock that stands still.

use std::sync::Arc;

use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::limiter::Receipt;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{Ask, Mode, PreparedPolicy, Store};
use sluicegate_core::{Decision, Key};

use crate::support::{answer, store};

pub(super) struct Scene {
    pub(super) store: Arc<dyn Store>,
    pub(super) policy: PreparedPolicy,
    pub(super) clock: ManualClock,
    pub(super) key: Key,
}

impl Scene {
    pub(super) fn of(policy: PolicyBuilder) -> Self {
        let (store, clock) = store();
        let store: Arc<dyn Store> = store.into();
        let policy = store.open(Arc::new(policy.build().expect("it is a policy")), None);
        Self { policy: policy.expect("it fits the store"), store, clock, key: Key::from("ada") }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    pub(super) fn ask(&self, cost: u64, mode: Mode) -> Ask<'_> {
        Ask::new(&self.policy, self.key.as_ref(), cost, mode)
    }

    pub(super) fn decide(&self, asks: &[Ask<'_>]) -> Decision {
        answer(self.store.decide(asks))
    }

    /// Spends this for a request that is here, and leases up to so many units: the receipts of both, if there are any.
    pub(super) fn refill(&self, cost: u64, units: u64) -> (Option<Receipt>, Option<Receipt>) {
        let mut decision = self.decide(&[self.ask(cost, Mode::Spend), self.ask(units, Mode::Lease)]);
        (decision.take_receipt(0), decision.take_receipt(1))
    }

    pub(super) fn spend(&self, cost: u64) -> Option<Receipt> {
        self.decide(&[self.ask(cost, Mode::Spend)]).take_receipt(0)
    }

    /// A lease of its own.
    pub(super) fn lease(&self, units: u64) -> Receipt {
        self.decide(&[self.ask(units, Mode::Lease)]).take_receipt(0).expect("there is something to lease")
    }

    /// Gives back so much of what the receipt is about.
    pub(super) fn refund(&self, receipt: &Receipt, cost: u64) {
        assert!(self.decide(&[self.ask(cost, Mode::Refund).of(receipt)]).is_allowed());
    }

    pub(super) fn remaining(&self) -> u64 {
        self.decide(&[self.ask(1, Mode::Peek)]).remaining()
    }

    /// The moments at which the units of a lease are over, the first one first.
    pub(super) fn ends(&self, lease: &Receipt) -> Vec<u64> {
        let lasts = |behind| lease.lasts(self.policy.policy(), behind).as_micros();
        (0..lease.cost())
            .rev()
            .map(|behind| lease.at_us() + u64::try_from(lasts(behind)).expect("it is no age"))
            .collect()
    }
}
