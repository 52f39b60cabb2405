//! Turns that are given up, and requests that wait for one limit and are counted by another.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::algorithm::Anchor;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::{Inherit, Receipt};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{Ask, Mode, PreparedPolicy};
use sluicegate_core::{Algorithm, Decision, Key, Policy, Quota, Store};

use crate::support::{ALL, answer, is_queue, secs, store};

const WAIT: Mode = Mode::Reserve { longest: secs(3_600) };

/// A store, asked as middleware asks it.
pub(crate) struct Desk {
    store: Arc<dyn Store>,
    pub(crate) clock: ManualClock,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let (store, clock) = store();
        Self { store: store.into(), clock }
    }

    pub(crate) fn open(&self, policy: PolicyBuilder) -> PreparedPolicy {
        let policy = Arc::new(policy.build().expect("the policy is good"));
        self.store.open(policy, None).expect("it fits")
    }

    fn replace(&self, old: &PreparedPolicy, policy: PolicyBuilder, how: Inherit) -> PreparedPolicy {
        let policy = Arc::new(policy.build().expect("the policy is good"));
        self.store.open(policy, Some((old, how))).expect("it fits")
    }

    pub(crate) fn ask(&self, policy: &PreparedPolicy, cost: u64, mode: Mode) -> Decision {
        let key = Key::from("k");
        answer(self.store.decide(&[Ask::new(policy, key.as_ref(), cost, mode)]))
    }

    /// Asks both with the same key.
    pub(crate) fn both(&self, [a, b]: [&PreparedPolicy; 2], mode: Mode) -> Decision {
        let key = Key::from("k");
        answer(self.store.decide(&[a, b].map(|policy| Ask::new(policy, key.as_ref(), 1, mode))))
    }

    /// Carries out a mode that is about receipts.
    pub(crate) fn of(&self, mode: Mode, about: &[(&PreparedPolicy, &Receipt)]) -> bool {
        let key = Key::from("k");
        let asks: Vec<_> = about
            .iter()
            .map(|(policy, receipt)| Ask::new(policy, key.as_ref(), receipt.cost(), mode).of(receipt))
            .collect();
        answer(self.store.decide(&asks)).is_allowed()
    }

    fn remaining(&self, policy: &PreparedPolicy) -> u64 {
        self.ask(policy, 1, Mode::Peek).remaining()
    }

    /// The wait until one unit passes.
    fn wait(&self, policy: &PreparedPolicy) -> Duration {
        self.ask(policy, 1, Mode::Peek).retry_after().unwrap_or_default()
    }

    /// A turn with its receipt and its delay.
    fn turn(&self, policy: &PreparedPolicy) -> (Receipt, Duration) {
        let mut decision = self.ask(policy, 1, WAIT);
        assert!(decision.is_allowed(), "{decision:?}");
        (decision.take_receipt(0).expect("it is allowed"), decision.delay())
    }
}

fn waiting() -> impl Iterator<Item = Algorithm> {
    ALL.into_iter().filter(|algorithm| !is_queue(*algorithm))
}

#[test]
fn the_last_turn_goes_back_and_is_the_next_ones() {
    for algorithm in waiting() {
        let desk = Desk::new();
        let policy = desk.open(Policy::builder("p", algorithm, "2/min"));
        assert!(desk.ask(&policy, 2, Mode::Spend).is_allowed());
        let (receipt, delay) = desk.turn(&policy);
        assert!(!delay.is_zero(), "{algorithm}");
        assert!(desk.of(Mode::Return, &[(&policy, &receipt)]), "{algorithm}");
        assert_eq!(desk.turn(&policy).1, delay, "{algorithm}");
    }
}

/// A turn that another one depends on was given back as a refund, and two went at once.
#[test]
fn a_turn_before_another_one_stays_where_its_time_matters() {
    for algorithm in waiting() {
        let desk = Desk::new();
        let policy = desk.open(Policy::builder("p", algorithm, "1/s"));
        assert!(desk.ask(&policy, 1, Mode::Spend).is_allowed());
        let [(first, at_first), (_second, at_second)] = [desk.turn(&policy), desk.turn(&policy)];
        assert!(at_first < at_second, "{algorithm}");
        let returned = desk.of(Mode::Return, &[(&policy, &first)]);
        // Whatever the store does, the turn after them is no sooner than if all had stayed, or takes the place that is free.
        let next = desk.turn(&policy).1;
        assert_ne!(next, at_second, "{algorithm}: two at one instant");
        assert!(returned || next > at_second, "{algorithm}");
        let is_bucket = policy.policy().quotas()[0].rule().fits_one_word();
        assert!(!(is_bucket && returned), "{algorithm}: an arrival time tells no turn from another");
    }
}

/// A due turn that was dropped ten seconds later was refunded: two at one instant.
#[test]
fn a_turn_that_has_come_does_not_go_back() {
    for algorithm in waiting() {
        let desk = Desk::new();
        let policy = desk.open(Policy::builder("p", algorithm, "1/s"));
        assert!(desk.ask(&policy, 1, Mode::Spend).is_allowed());
        let (receipt, delay) = desk.turn(&policy);
        desk.clock.advance(delay);
        assert!(!desk.of(Mode::Return, &[(&policy, &receipt)]), "{algorithm}");
        assert_eq!(desk.remaining(&policy), 0, "{algorithm}");
    }
}

#[test]
fn a_turn_does_not_go_back_to_a_key_that_was_forgotten() {
    for (algorithm, keeps) in waiting().flat_map(|algorithm| [(algorithm, false), (algorithm, true)]) {
        let desk = Desk::new();
        let policy = Policy::builder("p", algorithm, "2/min");
        let policy = if keeps { policy.refunds() } else { policy };
        for by_replacing in [false, true] {
            let old = desk.open(policy.clone());
            assert!(desk.ask(&old, 2, Mode::Spend).is_allowed());
            let (receipt, _) = desk.turn(&old);
            let new = if by_replacing {
                desk.replace(&old, policy.clone(), Inherit::Reset)
            } else {
                let _ = desk.ask(&old, 0, Mode::Reset);
                old
            };
            // The same again, so that everything but the key's history is equal.
            assert!(desk.ask(&new, 2, Mode::Spend).is_allowed(), "{algorithm}");
            let (_, delay) = desk.turn(&new);
            assert!(!desk.of(Mode::Return, &[(&new, &receipt)]), "{algorithm} {keeps} {by_replacing}");
            assert!(desk.turn(&new).1 >= delay, "{algorithm}");
            let _ = desk.ask(&new, 0, Mode::Reset);
        }
    }
}

/// A plain refund of a turn that has not come gave room to others before it.
#[test]
fn a_refund_of_a_turn_that_has_not_come_is_no_more_than_giving_it_up() {
    for algorithm in waiting() {
        let desk = Desk::new();
        let policy = desk.open(Policy::builder("p", algorithm, "1/s"));
        assert!(desk.ask(&policy, 1, Mode::Spend).is_allowed());
        let [(first, _), (_second, at_second)] = [desk.turn(&policy), desk.turn(&policy)];
        assert!(desk.of(Mode::Refund, &[(&policy, &first)]));
        assert_ne!(desk.turn(&policy).1, at_second, "{algorithm}: two at one instant");
    }
}

#[test]
fn all_turns_of_a_request_go_back_or_none() {
    let desk = Desk::new();
    let [a, b] = ["a", "b"].map(|name| desk.open(Policy::gcra(name, "1/s")));
    assert!(desk.both([&a, &b], Mode::Spend).is_allowed());
    let mut both = desk.both([&a, &b], WAIT);
    assert_eq!(both.delay(), secs(1));
    let receipts =
        [both.take_receipt(0), both.take_receipt(1)].map(|receipt| receipt.expect("it is allowed"));
    let about = [(&a, &receipts[0]), (&b, &receipts[1])];
    // Somebody stands behind in one of the two.
    let (behind, _) = desk.turn(&b);
    let before = (desk.wait(&a), desk.wait(&b));
    assert!(!desk.of(Mode::Return, &about));
    assert_eq!((desk.wait(&a), desk.wait(&b)), before);
    assert!(desk.of(Mode::Return, &[(&b, &behind)]));
    assert!(desk.of(Mode::Return, &about));
    assert_eq!((desk.wait(&a), desk.wait(&b)), (secs(1), secs(1)));
}

/// `ip 100/s burst 100` with `user 1/min`: the user's second request waits a minute, and everybody else on that address was
/// refused for 59 seconds.
#[test]
fn one_who_waits_for_a_limit_of_its_own_is_counted_at_once_by_one_that_others_share() {
    for shared in ALL {
        let desk = Desk::new();
        let ip = desk.open(Policy::builder("ip", shared, Quota::per_second(100)));
        let user = desk.open(Policy::gcra("user", "1/min"));
        assert!(desk.both([&ip, &user], WAIT).is_allowed());
        desk.clock.advance(secs(10));
        let waits = desk.both([&ip, &user], WAIT);
        assert_eq!(waits.delay(), secs(50), "{shared}");
        let statuses: Vec<_> = waits.quotas().iter().map(|status| status.remaining()).collect();
        assert_eq!(statuses, [99, 0], "{shared}");
        let [ip_us, user_us] =
            [0, 1].map(|ask| waits.receipt(ask).expect("it has spent").at_us() - waits.at_us());
        assert_eq!((ip_us, user_us), (0, 50_000_000), "{shared}");
        desk.clock.advance(secs(10));
        assert!(desk.ask(&ip, 100, Mode::Spend).is_allowed(), "{shared}: and it drains from then on");
    }
}

/// Each limit counts from its own turn, so that one with a short line is not closed until the end of a longer one.
#[test]
fn a_request_that_waits_for_two_limits_proceeds_at_the_later_turn_and_delays_neither() {
    for algorithm in waiting() {
        let desk = Desk::new();
        let short = desk.open(Policy::builder("short", algorithm, Quota::per_second(1)));
        let long = desk.open(Policy::gcra("long", "1/min"));
        assert!(desk.both([&short, &long], WAIT).is_allowed());
        let mut both = desk.both([&short, &long], WAIT);
        assert_eq!(both.delay(), secs(60), "{algorithm}");
        assert!(desk.turn(&short).1 < secs(4), "{algorithm}");
        let receipts = [0, 1].map(|ask| both.take_receipt(ask).expect("it has spent"));
        assert!(receipts[0].at_us() - both.at_us() < 3_000_000, "{algorithm}");
    }
}

#[test]
fn several_asks_of_one_bucket_see_each_other_in_their_order() {
    for algorithm in ALL {
        let desk = Desk::new();
        let policy = desk.open(Policy::builder("p", algorithm, Quota::per_minute(5)));
        let key = Key::from("k");
        let call = |asks: &[(u64, Mode)]| {
            let ask = |&(cost, mode): &(u64, Mode)| Ask::new(&policy, key.as_ref(), cost, mode);
            answer(desk.store.decide(&asks.iter().map(ask).collect::<Vec<_>>()))
        };
        let spend = |cost| (cost, Mode::Spend);
        assert!(call(&[spend(5), (2, Mode::Refund), spend(2)]).is_allowed(), "{algorithm}");
        assert_eq!(desk.remaining(&policy), 0, "{algorithm}");
        assert!(call(&[(0, Mode::Reset), spend(5)]).is_allowed(), "{algorithm}");
        assert!(!call(&[spend(1), (0, Mode::Reset)]).is_allowed(), "{algorithm}: in their order");
        assert!(!call(&[(3, Mode::Refund), spend(4)]).is_allowed(), "{algorithm}");
        assert_eq!(desk.remaining(&policy), 0, "{algorithm}: a refused call changes nothing");
        assert!(call(&[(0, Mode::Reset), (4, Mode::Charge), spend(1)]).is_allowed(), "{algorithm}");
        assert!(!call(&[(1, Mode::Refund), (1, Mode::Charge), spend(1)]).is_allowed(), "{algorithm}");
    }
}

#[test]
fn a_window_gives_back_the_turn_of_a_window_that_others_have_joined() {
    let desk = Desk::new();
    let policy = desk.open(Policy::builder("p", Algorithm::FixedWindow(Anchor::Epoch), "2/s"));
    assert!(desk.ask(&policy, 2, Mode::Spend).is_allowed());
    let [(first, _), (_second, _)] = [desk.turn(&policy), desk.turn(&policy)];
    assert!(desk.of(Mode::Return, &[(&policy, &first)]));
    let delays = [desk.turn(&policy).1, desk.turn(&policy).1];
    assert_eq!(delays, [secs(1), secs(2)], "one place is free in the next window");
}
