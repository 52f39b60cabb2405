//! What a recorder of the `metrics` facade is told: everything once, whenever it came.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::Event;
use sluicegate_core::{Key, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store};
use sluicegate_in_flight::{Class, InFlight};
use sluicegate_observed::{METRICS, Observed};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around;
use sluicegate_tests::memory::answer;
use sluicegate_tests::memory::store;

use super::counts::observed;

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new().set_buckets(&[0.005]).expect("a bucket").build_recorder()
}

/// What a scrape says after a refresh.
async fn scrape(recorder: &PrometheusRecorder, stores: &[&Observed]) -> String {
    let _local = metrics::set_default_local_recorder(recorder);
    for store in stores {
        store.refresh().await;
    }
    recorder.handle().run_upkeep();
    recorder.handle().render()
}

/// The value of a series.
fn value(scrape: &str, series: &str) -> Option<f64> {
    let line = scrape.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().expect("a number"))
}

fn limiter(store: &Observed, name: &str, quota: &str) -> RateLimiter {
    Policy::gcra(name, quota).on(store).expect("the policy fits the store")
}

/// A handle that is made before there is a recorder does nothing for ever.
#[tokio::test]
async fn what_was_counted_before_there_was_a_recorder_is_told_to_it_once() {
    let (store, _) = observed("before");
    let login = limiter(&store, "login", "5/min");
    for _ in 0..7 {
        _ = answer(login.check("ada"));
    }
    let recorder = recorder();
    let requests = |result| {
        format!(
            r#"rate_limit_requests_total{{policy="login",result="{result}",decided_by="store",mode="enforce"}}"#
        )
    };
    for _ in 0..3 {
        let told = scrape(&recorder, &[&store]).await;
        assert_eq!(value(&told, &requests("allowed")), Some(5.0), "{told}");
        assert_eq!(value(&told, &requests("rejected")), Some(2.0), "{told}");
        assert_eq!(value(&told, r#"rate_limit_units_total{policy="login",kind="spent"}"#), Some(5.0));
        assert_eq!(
            value(&told, r#"rate_limit_near_total{policy="login"}"#),
            Some(1.0),
            "none of five was left"
        );
    }
    _ = answer(login.check("ada"));
    let told = scrape(&recorder, &[&store]).await;
    assert_eq!(value(&told, &requests("rejected")), Some(3.0), "{told}");
    let another = self::recorder();
    let told = scrape(&another, &[&store]).await;
    assert_eq!(
        value(&told, &requests("rejected")),
        Some(3.0),
        "another recorder hears all of it, too: {told}"
    );
}

#[test]
fn decisions_tell_by_themselves_once_a_second() {
    let (store, clock) = observed("by-themselves");
    let login = limiter(&store, "login", "100/min");
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        for _ in 0..5 {
            clock.advance(Duration::from_secs(1));
            _ = answer(login.check("ada"));
        }
    });
    let series =
        r#"rate_limit_requests_total{policy="login",result="allowed",decided_by="store",mode="enforce"}"#;
    assert_eq!(value(&recorder.handle().render(), series), Some(5.0));
}

#[tokio::test]
async fn two_stores_with_a_policy_of_one_name_are_one_series() {
    let ((one, _), (other, _)) = (observed("one-of-two"), observed("other-of-two"));
    for store in [&one, &other] {
        _ = answer(limiter(store, "login", "5/min").check("ada"));
    }
    let told = scrape(&recorder(), &[&one, &other, &one]).await;
    let series =
        r#"rate_limit_requests_total{policy="login",result="allowed",decided_by="store",mode="enforce"}"#;
    assert_eq!(value(&told, series), Some(2.0), "{told}");
}

#[tokio::test]
async fn a_policy_that_is_gone_is_zero_and_its_gauges_are_no_number() {
    let (store, _) = observed("gone");
    let login = limiter(&store, "login", "5/min");
    _ = answer(login.check("ada"));
    let recorder = recorder();
    let told = scrape(&recorder, &[&store]).await;
    let info = |mode| {
        format!(r#"rate_limit_policy_info{{policy="login",algorithm="gcra",mode="{mode}",hidden="false"}}"#)
    };
    let quota = r#"rate_limit_quota{policy="login",quota="0"}"#;
    assert_eq!((value(&told, &info("enforce")), value(&told, quota)), (Some(1.0), Some(5.0)), "{told}");
    assert_eq!(value(&told, r#"rate_limit_quota_period_seconds{policy="login",quota="0"}"#), Some(60.0));
    let shadow = Policy::gcra("login", "9/min").shadow().build().expect("a policy");
    login.replace(shadow, sluicegate_core::limiter::Inherit::Spent).expect("it fits");
    let told = scrape(&recorder, &[&store]).await;
    assert_eq!((value(&told, &info("enforce")), value(&told, &info("shadow"))), (Some(0.0), Some(1.0)));
    assert_eq!(value(&told, quota), Some(9.0));
    drop(login);
    let told = scrape(&recorder, &[&store]).await;
    assert_eq!(value(&told, &info("shadow")), Some(0.0), "{told}");
    assert!(value(&told, quota).is_some_and(f64::is_nan), "{told}");
    assert!(value(&told, r#"rate_limit_waiting{policy="login"}"#).is_some_and(f64::is_nan));
}

#[tokio::test]
async fn ten_thousand_hostile_policies_and_keys_make_no_more_series_than_closed_sets_have() {
    let (memory, _) = store();
    let store = Observed::named("hostile", memory).expect("the name is free");
    let recorder = recorder();
    for number in 0..10_000_u64 {
        let policy = Policy::gcra(format!("p{number}"), "1/min").table_size(1).on(&store).expect("it fits");
        for _ in 0..2 {
            _ = answer(policy.check(("<script>", number)));
        }
        if number % 1_000 == 0 {
            _ = scrape(&recorder, &[&store]).await;
        }
    }
    let told = scrape(&recorder, &[&store]).await;
    let policies = told.lines().filter(|line| line.starts_with("rate_limit_requests_total{"));
    // Allowed and rejected, of 256 policies and of all others.
    assert_eq!(policies.count(), 257 * 2);
    let other =
        r#"rate_limit_requests_total{policy="other",result="rejected",decided_by="store",mode="enforce"}"#;
    assert_eq!(value(&told, other), Some(10_000.0 - 256.0));
    assert!(!told.contains("script"), "no key is a label");
}

#[tokio::test]
async fn policies_that_are_made_per_customer_are_one_series_under_the_name_that_they_are_counted_as() {
    let (store, _) = observed("tenants");
    let tenant = |number: u32| {
        let policy = Policy::gcra(format!("tenant-{number}"), "1/h").table_size(1).suspend(2, "1h", "1h");
        policy.counted_as("tenants").on(&store).expect("it fits")
    };
    let tenants: Vec<_> = (0..300).map(tenant).collect();
    for limiter in &tenants {
        for _ in 0..4 {
            _ = answer(limiter.check("ada"));
        }
    }
    let told = scrape(&recorder(), &[&store]).await;
    let requests = |result| {
        format!(
            r#"rate_limit_requests_total{{policy="tenants",result="{result}",decided_by="store",mode="enforce"}}"#
        )
    };
    let counts = ["allowed", "rejected", "suspended"].map(|result| value(&told, &requests(result)));
    assert_eq!(counts, [Some(300.0), Some(600.0), Some(300.0)], "{told}");
    assert_eq!(value(&told, r#"rate_limit_suspensions_total{policy="tenants"}"#), Some(300.0));
    assert!(!told.contains("tenant-") && store.snapshot().policies.is_empty(), "{told}");

    let wrong =
        Policy::gcra("tenant-1", "1/h").counted_as("All tenants").build().expect_err("capitals, a blank");
    assert_eq!(wrong.kind(), ConfigErrorKind::Name);
    let said = wrong.to_string();
    assert!(said.contains("\"All tenants\"") && said.contains("counted as"), "{said}");
}

#[tokio::test]
async fn routes_beyond_the_first_256_count_together() {
    let (store, _) = observed("routes");
    let as_store: Arc<dyn Store> = (&store).into();
    let recorder = recorder();
    let _local = metrics::set_default_local_recorder(&recorder);
    let took = Duration::from_millis(3);
    for number in 0..1_000 {
        let route = format!("/route-{number}");
        as_store.notice(&Event::Routed { route: Some(&route), outcome: Outcome::Denied, took });
    }
    as_store.notice(&Event::Routed { route: Some("/route-0"), outcome: Outcome::Suspended, took });
    let told = scrape(&recorder, &[&store]).await;
    let requests = |route, result| {
        value(&told, &format!(r#"rate_limit_route_requests_total{{route="{route}",result="{result}"}}"#))
    };
    let first = ["allowed", "rejected", "suspended"].map(|result| requests("/route-0", result));
    assert_eq!(first, [Some(0.0), Some(1.0), Some(1.0)], "{told}");
    assert_eq!((requests("/route-255", "rejected"), requests("/route-256", "rejected")), (Some(1.0), None));
    assert_eq!(requests("other", "rejected"), Some(744.0));
    let durations = |part, route| {
        value(&told, &format!(r#"rate_limit_route_duration_seconds_{part}{{route="{route}"}}"#))
    };
    assert_eq!((durations("count", "/route-0"), durations("sum", "/route-0")), (Some(2.0), Some(0.006)));
    assert_eq!((durations("count", "other"), durations("count", "/route-256")), (Some(744.0), None));
}

#[tokio::test]
async fn what_a_limit_that_adapts_sheds_is_told_by_class_and_apart_what_it_would_shed() {
    let (store, _) = observed("sheds");
    let (enforced, tried) = (InFlight::adaptive("api"), InFlight::adaptive("tried").mode(PolicyMode::Shadow));
    let [enforced, tried] = [enforced, tried].map(|builder| {
        let limit = builder.at_least(1).at_most(1).wait_up_to(Duration::ZERO).build().expect("a name");
        store.in_flight(&limit);
        limit
    });
    let held =
        [enforced.try_acquire("ada"), tried.try_acquire("ada")].map(|permit| permit.expect("the first"));
    for class in [Class::Sheddable, Class::Sheddable, Class::CriticalPlus] {
        assert!(enforced.request("ada").class(class).try_acquire().is_err());
        assert!(tried.request("ada").class(class).try_acquire().is_ok());
    }
    let told = scrape(&recorder(), &[&store]).await;
    let shed = |policy: &str, class: &str, mode: &str| {
        let labels = format!(r#"policy="{policy}",class="{class}",mode="{mode}""#);
        value(&told, &format!("rate_limit_shed_total{{{labels}}}"))
    };
    let of = |policy: &'static str, mode: &'static str| {
        ["critical-plus", "critical", "sheddable"].map(|class| shed(policy, class, mode))
    };
    assert_eq!(of("api", "enforce"), [Some(1.0), Some(0.0), Some(2.0)], "{told}");
    assert_eq!(of("tried", "shadow"), [Some(1.0), None, Some(2.0)]);
    assert_eq!(of("tried", "enforce"), [Some(0.0); 3]);
    assert_eq!(value(&told, r#"rate_limit_adaptive_limit{policy="api"}"#), Some(1.0));
    assert_eq!(value(&told, r#"rate_limit_in_flight{policy="tried"}"#), Some(1.0));
    drop(held);
}

/// A store that is not in memory: each of its answers is timed.
#[tokio::test]
async fn a_decision_is_timed_for_each_of_its_policies_by_who_has_made_it() {
    let recorder = recorder();
    let told = {
        let _local = metrics::set_default_local_recorder(&recorder);
        let far = Observed::named("far", around::late(&store().0)).expect("a free name");
        let away = Observed::named("away", Resilient::new(around::broken(true))).expect("a free name");
        let [ip, user] = ["ip", "user"].map(|name| limiter(&far, name, "1/h"));
        for _ in 0..3 {
            _ = check_all([ip.check("::1"), user.check("ada")]).await.expect("an answer");
        }
        for on_outage in [OnOutage::Local, OnOutage::Allow] {
            let name = format!("{on_outage:?}").to_lowercase();
            let policy = Policy::gcra(name, "9/h").on_outage(on_outage).on(&away).expect("it fits");
            _ = policy.check("ada").await.expect("an answer");
        }
        scrape(&recorder, &[&far, &away]).await
    };
    let timed = |store, policy, by| {
        let of = format!(r#"store="{store}",policy="{policy}",decided_by="{by}""#);
        value(&told, &format!("rate_limit_duration_seconds_count{{{of}}}"))
    };
    assert_eq!(["ip", "user"].map(|policy| timed("far", policy, "store")), [Some(3.0); 2], "{told}");
    assert_eq!(timed("away", "local", "fallback"), Some(1.0), "{told}");
    assert_eq!(timed("away", "allow", "outage"), Some(1.0), "{told}");
    assert_eq!(timed("away", "allow", "store"), None, "a decider that has decided nothing has no series");
}

/// The list is what dashboards and alerts are checked against.
#[tokio::test]
async fn what_is_told_is_what_is_listed_with_these_labels() {
    let (store, _) = observed("listed");
    let login = limiter(&store, "login", "1/s");
    store.watch("customer", &login, "ada").expect("a free name");
    let uploads = InFlight::builder("uploads", 1).on(&store).expect("a name");
    store.in_flight(&uploads);
    let service =
        InFlight::adaptive("service").at_most(1).wait_up_to(Duration::ZERO).build().expect("a name");
    store.in_flight(&service);
    let budget = limiter(&store, "budget", "10/month");
    let plans = ["2/s", "3/s"].map(|quota| login.with_quotas(quota).expect("memory keeps it"));
    let recorder = recorder();
    let told = {
        let _local = metrics::set_default_local_recorder(&recorder);
        for _ in 0..1_000 {
            _ = answer(login.check("ada").reserve(Duration::from_secs(2)));
        }
        _ = uploads.try_acquire("ada").expect("one");
        for key in ["ada", "bob", "ada"] {
            _ = answer(budget.check(key).cost(if key == "bob" { 5 } else { 4 }));
        }
        scrape(&recorder, &[&store]).await
    };
    let mut seen = std::collections::BTreeSet::new();
    for line in told.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').expect("all have labels");
        let labels: Vec<_> = labels
            .split_once('}')
            .expect("an end")
            .0
            .split(',')
            .map(|label| label.split_once('=').expect("a value").0)
            .collect();
        let base =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let metric = METRICS.iter().find(|metric| metric.name == base);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the list"));
        let labels: Vec<_> = labels.into_iter().filter(|label| *label != "le").collect();
        assert_eq!(labels, metric.labels, "{line}");
        assert!(told.contains(&format!("# HELP {base} {}", metric.help)), "{base} has no help");
        seen.insert(metric.name);
    }
    // A memory store has no breaker, and nothing was undecided.
    let missing: Vec<_> =
        METRICS.iter().map(|metric| metric.name).filter(|name| !seen.contains(name)).collect();
    let expected = [
        // Of layers that count routes.
        "rate_limit_route_requests_total",
        "rate_limit_route_duration_seconds",
        "rate_limit_undecided_total",
        "rate_limit_suspensions_total",
        "rate_limit_breaker_state",
        "rate_limit_unsettled_keys",
        // None was refused.
        "rate_limit_key_quotas_refused_total",
        // Of stores that lease, and of those that keep refusals.
        "rate_limit_leased_units",
        "rate_limit_leased_keys",
        "rate_limit_refusals_kept",
        // All is as usual.
        "rate_limit_alarm",
        "rate_limit_forwarded_faults_total",
        // Of files of rules.
        "rate_limit_rules_reloads_total",
        "rate_limit_rules_loaded_timestamp_seconds",
    ];
    assert_eq!(missing, expected, "{told}");
    assert_eq!(value(&told, r#"rate_limit_key_quotas{policy="login"}"#), Some(2.0), "{told}");
    drop((plans, budget));
    let warnings = |percent| {
        value(&told, &format!(r#"rate_limit_budget_warnings_total{{policy="budget",percent="{percent}"}}"#))
    };
    assert_eq!([50, 80, 100].map(warnings), [Some(2.0), Some(1.0), None], "{told}");
    assert_eq!(value(&told, r#"rate_limit_wait_seconds_count{policy="login"}"#), Some(2.0), "{told}");
    let durations = |policy| {
        format!(r#"rate_limit_duration_seconds_count{{store="listed",policy="{policy}",decided_by="store"}}"#)
    };
    let durations = value(&told, &durations("login")).expect("some of 1,000");
    assert!((64.0..3_200.0).contains(&durations), "each of 64 that is timed counts for 64: {durations}");
}

#[tokio::test]
async fn a_watched_key_is_told_under_its_name_and_by_the_quota_that_has_least() {
    let (store, _) = observed("watched");
    let login = Policy::gcra("login", "10/min").and("100/h").on(&store).expect("it fits");
    store.watch("customer-a", &login, "ada").expect("a free name");
    _ = answer(login.check("ada").cost(8));
    let recorder = recorder();
    let told = scrape(&recorder, &[&store]).await;
    let series = r#"rate_limit_remaining_ratio{policy="login",watched="customer-a"}"#;
    assert_eq!(value(&told, series), Some(0.2), "{told}");
    assert!(!told.contains("ada"));
    assert_eq!(store.snapshot().policies[0].totals.allowed, 1, "to look is no request");
    drop(login);
    let told = scrape(&recorder, &[&store]).await;
    assert!(value(&told, series).is_some_and(f64::is_nan), "{told}");
}

#[test]
fn a_watched_key_that_cannot_be_told_is_refused_and_named() {
    let (store, _) = observed("watched-badly");
    let login = limiter(&store, "login", "5/min");
    store.watch("a", &login, 1).expect("a free name");
    let refused = |name: &str, limiter: &RateLimiter| {
        let error = store.watch(name, limiter, Key::from("ada")).expect_err("it cannot be watched");
        (error.kind(), error.to_string())
    };
    let (kind, message) = refused("a", &login);
    assert!(kind == ConfigErrorKind::NameTaken && message.contains("\"a\""), "{message}");
    assert!(refused("A B", &login).1.contains("\"A B\""));
    let elsewhere = Policy::gcra("login", "5/min").on(MemoryStore::new()).expect("it fits");
    let (kind, message) = refused("b", &elsewhere);
    assert!(kind == ConfigErrorKind::OtherStore && message.contains("watched-badly"), "{message}");
    for number in 1..100 {
        store.watch(format!("n{number}"), &login, number).expect("there is room for 100");
    }
    assert!(refused("one-more", &login).1.contains("100 at most"));
}
