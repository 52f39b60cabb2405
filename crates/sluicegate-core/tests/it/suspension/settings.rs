//! What can be said of a suspension, and what is refused with the value and what would be accepted.

use std::time::Duration;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::policy::{MAX_QUOTAS, PolicyBuilder};
use sluicegate_core::{MemoryStore, Policy, Quota};

use crate::support::{secs, store};

fn api() -> PolicyBuilder {
    Policy::gcra("api", "100/min")
}

#[test]
fn a_suspension_says_what_it_was_told() {
    let policy = api().suspend(100, "10min", secs(1_800)).up_to("1d").remember("2d").build().unwrap();
    let suspension = policy.suspension().unwrap();
    assert_eq!(suspension.after(), Some((100, secs(600))));
    let minutes = [0, 1, 2, 5, 6, 200].map(|before| suspension.lasts(before).unwrap().as_secs() / 60);
    assert_eq!(minutes, [30, 60, 120, 960, 1_440, 1_440]);
    assert_eq!(suspension.remembers(), Some(secs(172_800)));
    assert!(!suspension.is_everywhere());
    let longer = api().suspend(1, "1s", "3d").build().unwrap();
    let longer = longer.suspension().unwrap();
    assert_eq!((longer.lasts(5), longer.remembers()), (Some(secs(259_200)), Some(secs(259_200))));
    assert_eq!(policy.share("part", 1, 4).unwrap().suspension(), policy.suspension());
    assert_eq!(policy.buckets(), 2);
    assert_eq!(api().build().unwrap().suspension(), None);
}

#[test]
fn what_cannot_be_is_refused_with_its_value() {
    let ten_years = Duration::from_secs(315_360_001);
    for (policy, parts) in [
        (api().suspend(0, "10min", "30min"), ["after 0 refusals", "1 to 2000"]),
        (api().suspend(2_001, "10min", "30min"), ["after 2001 refusals", "1 to 2000"]),
        (api().suspend(9, Duration::ZERO, "30min"), ["count refusals within 0ns", "use 1ms"]),
        (api().suspend(9, "10min", Duration::ZERO), ["suspend a key for 0ns", "use 1ms"]),
        (api().suspend(9, "10min", Duration::from_micros(999)), ["suspend a key for 999us", "use 1ms"]),
        (api().suspend(9, "10min", ten_years), ["315360001s", "3650d"]),
        (api().suspend(9, ten_years, "30min"), ["within 315360001s", "3650d"]),
        (api().suspend(9, "10min", "30min").up_to(Duration::ZERO), ["up to 0ns", "use 1ms"]),
        (api().suspend(9, "10min", "30min").up_to("29min"), ["suspension of 30min", "29min"]),
        (
            api().suspend(9, "10min", "30min").remember(Duration::ZERO),
            ["remember a suspension for 0ns", "use 1ms"],
        ),
        (api().suspend(9, "10min", "30min").remember("5min"), ["remembered for 5min", "raise `remember`"]),
        (api().suspend(9, "1s", "1ms").up_to("2ms").remember("1d"), ["up to 2ms", "remembered for 1d"]),
        (api().up_to("1d"), ["1d is a span", "add `suspend`"]),
        (api().everywhere().remember("3d"), ["3d is a span", "add `suspend`"]),
        (api().suspend_as("plan"), ["\"plan\"", "add `suspend`"]),
    ] {
        let error = policy.build().unwrap_err();
        assert_eq!((error.kind(), error.policy()), (ConfigErrorKind::Policy, Some("api")), "{error}");
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    for (policy, part) in [
        (api().suspend(9, "10 parsecs", "30min"), "\"10 parsecs\" is not a time"),
        (api().suspend(9, "10min", "soon"), "\"soon\" is not a time"),
        (api().suspend(9, "10min", "30min").up_to("0d"), "\"0d\""),
    ] {
        let error = policy.build().unwrap_err();
        assert_eq!(error.policy(), Some("api"), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn names_of_a_suspension_are_refused_for_policies_and_too_long_ones_for_it() {
    for name in ["api.strikes", "a.suspended", "x.suspensions"] {
        let error = Policy::gcra(name, "1/s").build().unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Name);
        let message = error.to_string();
        assert!(message.contains(name) && message.contains("leave that ending out"), "{message}");
        let whole = api().build().unwrap();
        assert!(whole.share(name, 1, 2).is_err());
    }
    let named = |name: &str| Policy::gcra(name, "1/s").suspend(1, "1s", "1s").build();
    assert!(named(&"x".repeat(52)).is_ok());
    let error = named(&"x".repeat(53)).unwrap_err();
    assert!(error.to_string().contains("at most 52 characters"), "{error}");
    let shorter = Policy::gcra("x".repeat(64), "1/s").suspend(1, "1s", "1s").suspend_as("x");
    assert!(shorter.build().is_ok());
    let error = api().suspend(1, "1s", "1s").suspend_as("All Plans").build().unwrap_err();
    assert!(error.to_string().contains("\"All Plans\""), "{error}");
}

#[test]
fn a_policy_of_as_many_quotas_as_fit_leaves_no_room_for_a_suspension() {
    let of = |quotas: u64| {
        (1..quotas).fold(api().suspend(1, "1s", "1s"), |policy, quota| policy.and(Quota::new(1, secs(quota))))
    };
    let most = MAX_QUOTAS as u64;
    assert!(of(most - 1).build().is_ok() && of(most - 2).everywhere().build().is_ok());
    for (policy, quotas, room) in [(of(most), 16, 15), (of(most - 1).everywhere(), 15, 14)] {
        let error = policy.build().unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::TooManyQuotas);
        let said = format!(
            "a policy of {quotas} quotas leaves no room for its suspension: use {room} quotas at most"
        );
        assert!(error.to_string().contains(&said), "{error}");
    }
}

#[test]
fn a_policy_whose_buckets_the_store_cannot_keep_is_not_opened() {
    let small = MemoryStore::builder().log_entries(16 * 50).build().unwrap();
    let error = api().suspend(51, "10min", "30min").on(&small).unwrap_err();
    assert_eq!(error.policy(), Some("api.strikes"));
    assert!(error.to_string().contains("log_entries(816)"), "{error}");
    assert!(small.stats().slots == 0, "nothing of it is left");
    assert!(api().suspend(50, "10min", "30min").on(&small).is_ok());
}

#[test]
fn a_name_is_taken_by_a_policy_that_suspends_otherwise() {
    let (store, _clock) = store();
    let first = api().suspend(3, "10min", "30min").on(&store).unwrap();
    assert!(first.is(&api().suspend(3, "10min", "30min").up_to("1d").on(&store).unwrap()));
    assert!(api().suspend(4, "10min", "30min").on(&store).is_err());
    assert!(api().on(&store).is_err());
}
