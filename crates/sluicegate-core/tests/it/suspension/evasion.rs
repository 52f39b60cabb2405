//! No cost, no plan, no other limit, no wait, no replaced policy and no shadow evades a suspension.

use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Key, Outcome, Policy};

use super::{check, refused, suspended};
use crate::support::{answer, secs, store};

fn api(quota: &str) -> PolicyBuilder {
    Policy::fixed_window("api", quota).suspend(3, "1min", "30min")
}

#[test]
fn a_refusal_counts_once_whatever_it_costs() {
    let (store, _clock) = store();
    let limiter = api("10/d").on(&store).unwrap();
    assert_eq!(answer(limiter.check("ada").cost(1_000_000)).outcome(), Outcome::Impossible);
    assert_eq!(answer(limiter.check("ada").cost(11)).outcome(), Outcome::Impossible);
    suspended(&answer(limiter.check("ada").cost(u64::MAX)), secs(1_800));
    suspended(&answer(limiter.check("ada").cost(0)), secs(1_800));
    assert_eq!(answer(limiter.suspensions().release("ada")).remaining(), 10, "none of it has spent anything");
    for cost in [7, 4, 4] {
        drop(answer(limiter.check("ada").cost(cost)));
    }
    suspended(&answer(limiter.check("ada").cost(4)), secs(1_800));
}

#[test]
fn replacing_the_policy_frees_no_key_and_forgets_no_refusal() {
    for inherit in [Inherit::Spent, Inherit::Reset, Inherit::AsIs, Inherit::Proportional, Inherit::Additive] {
        let (store, clock) = store();
        let limiter = api("1/d").on(&store).unwrap();
        for key in ["ada", "bob"] {
            assert!(check(&limiter, key).is_allowed());
        }
        refused(&limiter, "ada", 2);
        suspended(&check(&limiter, "ada"), secs(1_800));
        refused(&limiter, "bob", 2);
        limiter.replace(api("1/2d").build().unwrap(), inherit).unwrap();
        suspended(&check(&limiter, "ada"), secs(1_800));
        drop(answer(limiter.charge("bob", 5)));
        suspended(&check(&limiter, "bob"), secs(1_800));
        // Other numbers of the suspension hold from then on.
        let stricter = Policy::fixed_window("api", "1/2d").suspend(2, "2min", "1h").build().unwrap();
        limiter.replace(stricter, inherit).unwrap();
        suspended(&check(&limiter, "ada"), secs(1_800));
        drop(answer(limiter.charge("eve", 5)));
        refused(&limiter, "eve", 1);
        suspended(&check(&limiter, "eve"), secs(3_600));
        clock.advance(secs(1_800));
        drop(answer(limiter.charge("ada", 5)));
        refused(&limiter, "ada", 1);
        suspended(&check(&limiter, "ada"), secs(7_200));
    }
}

#[test]
fn terms_that_count_fewer_suspensions_let_nobody_off() {
    let (store, clock) = store();
    let limiter = Policy::fixed_window("api", "1/d").suspend(2, "1min", "10min").on(&store).unwrap();
    drop(answer(limiter.charge("ada", 5)));
    for minutes in [10, 20, 40, 80, 160] {
        refused(&limiter, "ada", 1);
        suspended(&check(&limiter, "ada"), secs(minutes * 60));
        clock.advance(secs(minutes * 60));
        drop(answer(limiter.charge("ada", 5)));
    }
    let longer = Policy::fixed_window("api", "1/d").suspend(2, "1min", "1d").up_to("1d");
    limiter.replace(longer.build().unwrap(), Inherit::Spent).unwrap();
    refused(&limiter, "ada", 1);
    suspended(&check(&limiter, "ada"), secs(86_400));
}

#[test]
fn a_suspension_that_is_taken_out_of_the_policy_refuses_nobody() {
    let (store, _clock) = store();
    let limiter = api("1/d").on(&store).unwrap();
    drop(answer(limiter.suspensions().suspend("ada", secs(60))));
    limiter.replace(Policy::fixed_window("api", "1/d").build().unwrap(), Inherit::Spent).unwrap();
    assert!(check(&limiter, "ada").is_allowed());
    refused(&limiter, "ada", 20);
}

#[test]
fn a_policy_in_shadow_counts_nothing_and_suspends_nobody() {
    let (store, _clock) = store();
    let limiter = api("1/d").shadow().on(&store).unwrap();
    assert!(check(&limiter, "ada").is_allowed());
    refused(&limiter, "ada", 20);
    limiter.replace(api("1/d").build().unwrap(), Inherit::Spent).unwrap();
    refused(&limiter, "ada", 2);
    suspended(&check(&limiter, "ada"), secs(1_800));
    limiter.replace(api("1/d").shadow().build().unwrap(), Inherit::Spent).unwrap();
    refused(&limiter, "ada", 20);
    limiter.replace(api("1/d").build().unwrap(), Inherit::Spent).unwrap();
    suspended(&check(&limiter, "ada"), secs(1_800));
}

#[test]
fn of_several_limits_only_the_one_that_refused_counts_a_refusal() {
    let (store, _clock) = store();
    let narrow = Policy::fixed_window("narrow", "1/d").suspend(3, "1min", "1h").on(&store).unwrap();
    let wide = Policy::fixed_window("wide", "100/d").suspend(3, "1min", "30min").on(&store).unwrap();
    let (ada, eve) = (Key::from("ada"), Key::from("eve"));
    let both = || answer(check_all([narrow.check(&ada), wide.check(&eve)]));
    assert!(both().is_allowed());
    for _ in 0..2 {
        assert_eq!(both().outcome(), Outcome::Denied);
    }
    let third = both();
    suspended(&third, secs(3_600));
    assert_eq!((third.quotas().len(), third.deciding().policy_index()), (2, 0));
    assert!(third.quotas()[1].passed() && !third.quotas()[1].is_suspended());
    suspended(&both(), secs(3_600));
    assert_eq!(answer(wide.peek(&eve)).remaining(), 99, "what is refused spends nothing anywhere");
    drop(answer(wide.charge(&eve, 200)));
    refused(&wide, "eve", 2);
    suspended(&check(&wide, "eve"), secs(1_800));
    let all = both();
    assert!(all.quotas().iter().all(|status| status.is_suspended()));
    suspended(&all, secs(3_600));
}

#[test]
fn two_limits_that_refuse_each_count() {
    let (store, _clock) = store();
    let [one, two] = ["one", "two"]
        .map(|name| Policy::fixed_window(name, "1/d").suspend(2, "1min", "1h").on(&store).unwrap());
    let (ada, eve) = (Key::from("ada"), Key::from("eve"));
    let both = || answer(check_all([one.check(&ada), two.check(&eve)]));
    assert!(both().is_allowed());
    assert_eq!(both().outcome(), Outcome::Denied);
    let second = both();
    assert!(second.quotas().iter().all(|status| status.is_suspended()), "{second:?}");
    suspended(&answer(two.peek(&eve)), secs(3_600));
}

#[test]
fn policies_that_suspend_as_one_share_refusals_and_suspensions() {
    let (store, _clock) = store();
    let tier = |name, quota| {
        Policy::fixed_window(name, quota).suspend(4, "1min", "30min").suspend_as("plan").on(&store).unwrap()
    };
    let (free, pro) = (tier("free", "1/d"), tier("pro", "2/d"));
    for limiter in [&free, &pro, &pro] {
        assert!(check(limiter, "ada").is_allowed());
    }
    refused(&free, "ada", 2);
    refused(&pro, "ada", 1);
    suspended(&check(&free, "ada"), secs(1_800));
    suspended(&check(&pro, "ada"), secs(1_800));
    let other = Policy::fixed_window("max", "1/d").suspend(5, "1min", "30min").suspend_as("plan");
    let error = other.on(&store).unwrap_err().to_string();
    assert!(
        error.contains("\"plan.strikes\"") && error.contains("4/min") && error.contains("5/min"),
        "{error}"
    );
}

#[test]
fn what_waits_and_is_refused_counts_and_a_turn_stays_given() {
    let (store, clock) = store();
    let policy = Policy::gcra("queue", "1/s burst 1").wait_up_to(secs(2)).suspend(2, "1min", "30min");
    let limiter = policy.on(&store).unwrap();
    for delay in [0, 1, 2] {
        assert_eq!(check(&limiter, "ada").delay(), secs(delay));
    }
    let mut turn = answer(limiter.check("bob").reserve(secs(2)));
    refused(&limiter, "ada", 1);
    suspended(&check(&limiter, "ada"), secs(1_800));
    drop(answer(limiter.suspensions().suspend("bob", secs(60))));
    let mut receipt = turn.take_receipt(0).unwrap();
    assert!(
        answer(limiter.refund("bob", 1).of(&mut receipt)).is_allowed(),
        "what is reported is no question"
    );
    assert!(answer(limiter.charge("bob", 1)).is_allowed());
    clock.advance(secs(60));
    assert!(check(&limiter, "bob").is_allowed());
}

/// A flood of suspended keys once freed those that had been suspended before.
#[test]
fn a_full_table_keeps_every_suspension_that_was_announced_and_announces_no_other() {
    let (store, clock) = store();
    let limiter = Policy::gcra("p", "1/h").suspend(1, "1min", "1h").table_size(64).on(&store).unwrap();
    let mut announced = Vec::new();
    for number in 0..500 {
        let key = format!("key {number}");
        drop(check(&limiter, &key));
        match check(&limiter, &key).outcome() {
            Outcome::Suspended => announced.push(key),
            outcome => assert_eq!(outcome, Outcome::Denied, "it is refused like any other"),
        }
    }
    assert!((32..=200).contains(&announced.len()), "{} suspensions fit", announced.len());
    clock.advance(secs(3_000));
    for key in &announced {
        assert_eq!(answer(limiter.peek(key)).outcome(), Outcome::Suspended, "{key} was told so");
    }
    clock.advance(secs(600));
    drop(check(&limiter, "late"));
    assert_eq!(check(&limiter, "late").outcome(), Outcome::Suspended, "what has ended makes room");
}
