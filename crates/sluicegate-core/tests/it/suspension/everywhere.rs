//! Suspended by one policy, and refused by others.

use std::net::Ipv4Addr;

use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::{Key, Outcome, Policy};

use super::{check, refused, suspended};
use crate::support::{answer, secs, store};

#[test]
fn a_key_is_refused_by_all_policies_that_say_everywhere_and_by_no_other() {
    let (store, clock) = store();
    let login =
        Policy::fixed_window("login", "1/d").suspend(2, "1min", "30min").everywhere().on(&store).unwrap();
    let search = Policy::fixed_window("search", "100/d").everywhere().on(&store).unwrap();
    let upload =
        Policy::fixed_window("upload", "1/d").suspend(3, "1min", "1h").everywhere().on(&store).unwrap();
    let alone = Policy::fixed_window("alone", "100/d").suspend(2, "1min", "30min").on(&store).unwrap();
    assert!(check(&login, "ada").is_allowed() && check(&upload, "ada").is_allowed());
    refused(&login, "ada", 1);
    refused(&upload, "ada", 2);
    suspended(&check(&login, "ada"), secs(1_800));
    for limiter in [&search, &upload, &login] {
        suspended(&check(limiter, "ada"), secs(1_800));
        assert!(answer(limiter.peek("bob")).is_allowed());
    }
    assert!(check(&alone, "ada").is_allowed());
    clock.advance(secs(1_800));
    assert!(check(&search, "ada").is_allowed());
    suspended(&answer(search.suspensions().suspend("ada", secs(60))), secs(60));
    suspended(&check(&login, "ada"), secs(60));
    drop(answer(upload.suspensions().release("ada")));
    assert!(check(&search, "ada").is_allowed());
}

#[test]
fn one_request_of_several_such_policies_is_refused_by_all_of_them() {
    let (store, _clock) = store();
    let [one, two] = ["one", "two"].map(|name| {
        Policy::fixed_window(name, "1/d").suspend(2, "1min", "30min").everywhere().on(&store).unwrap()
    });
    let ada = Key::from("ada");
    let both = || answer(check_all([one.check(&ada), two.check(&ada)]));
    assert!(both().is_allowed());
    assert_eq!(both().outcome(), Outcome::Denied);
    // Both have counted twice, and the first of them has suspended the key.
    suspended(&both(), secs(1_800));
    let again = both();
    suspended(&again, secs(1_800));
    assert!(again.quotas().iter().all(|status| status.is_suspended()));
}

#[test]
fn an_address_is_suspended_elsewhere_only_if_that_was_asked_for_by_name() {
    let address = Ipv4Addr::new(203, 0, 113, 9);
    for named in [false, true] {
        let (store, _clock) = store();
        let say = |policy: sluicegate_core::policy::PolicyBuilder| match named {
            true => policy.everywhere_with_addresses(),
            false => policy.everywhere(),
        };
        let login = say(Policy::fixed_window("login", "1/d").suspend(1, "1min", "30min")).on(&store).unwrap();
        let search = say(Policy::fixed_window("search", "100/d")).on(&store).unwrap();
        assert!(answer(login.check(address)).is_allowed());
        suspended(&answer(login.check(address)), secs(1_800));
        suspended(&answer(login.check(address)), secs(1_800));
        assert_eq!(answer(search.check(address)).is_allowed(), !named);
        // An address beside something else is a key of its own.
        let both = (address, "ada");
        drop(answer(login.charge(both, 5)));
        suspended(&answer(login.check(both)), secs(1_800));
        suspended(&answer(search.check(both)), secs(1_800));
    }
}

#[test]
fn a_policy_that_is_replaced_by_one_that_says_everywhere_takes_part_from_then_on_and_frees_no_key() {
    let (store, clock) = store();
    let login =
        Policy::fixed_window("login", "1/d").suspend(1, "1min", "30min").everywhere().on(&store).unwrap();
    let plainly = || Policy::fixed_window("search", "1/d").suspend(2, "1min", "30min");
    let search = plainly().on(&store).unwrap();
    drop(answer(login.suspensions().suspend("ada", secs(60))));
    assert!(check(&search, "ada").is_allowed() && check(&search, "bob").is_allowed());
    refused(&search, "bob", 1);
    suspended(&check(&search, "bob"), secs(1_800));
    let everywhere = || plainly().everywhere().build().unwrap();
    search.replace(everywhere(), Inherit::Spent).unwrap();
    suspended(&check(&search, "ada"), secs(60));
    suspended(&check(&search, "bob"), secs(1_800));
    assert!(check(&login, "bob").is_allowed(), "it was suspended by one policy alone");
    // Of two suspensions the longer one counts.
    drop(answer(login.suspensions().suspend("bob", secs(60))));
    suspended(&check(&search, "bob"), secs(1_800));
    clock.advance(secs(1_800));
    refused(&search, "bob", 1);
    suspended(&check(&search, "bob"), secs(3_600));
    suspended(&check(&login, "bob"), secs(3_600));
}

#[test]
fn by_hand_a_key_is_suspended_for_as_long_as_was_said_last_and_released_also_from_before_it_was_everywhere() {
    let (store, _clock) = store();
    let plainly = || Policy::fixed_window("api", "100/d").suspend(2, "1min", "30min");
    let api = plainly().on(&store).unwrap();
    for key in ["ada", "bob"] {
        suspended(&answer(api.suspensions().suspend(key, secs(900))), secs(900));
    }
    api.replace(plainly().everywhere().build().unwrap(), Inherit::Spent).unwrap();
    suspended(&answer(api.suspensions().suspend("ada", secs(60))), secs(60));
    assert!(answer(api.suspensions().release("bob")).is_allowed());
    // A policy that says everywhere no longer asks about keys that are suspended so.
    api.replace(plainly().build().unwrap(), Inherit::Spent).unwrap();
    assert!(answer(api.peek("ada")).is_allowed());
}
