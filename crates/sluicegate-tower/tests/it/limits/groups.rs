//! Which of several limits apply: all, or only the first that matches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, StatusCode};
use sluicegate_core::{Key, MemoryStore, Policy};
use sluicegate_tower::Limit;
use sluicegate_tower::key::{Extraction, extract_fn};
use sluicegate_tower::limits::{Choose, Group, Limits, Tiers, method_in, path_in};
use tower::Layer;

use crate::support::{Handler, all_fields, by_header, described, from, on, send, store};

fn limit(store: &MemoryStore, name: &str) -> Limit {
    by_header(on(store, Policy::gcra(name, "100/min")))
}

/// The policies that a request was asked of.
async fn asked(limits: &Limits, request: &Request<()>) -> Vec<String> {
    let admitted = limits.decide(request).await.unwrap();
    let policies = admitted.decided().map(|decided| decided.policies.to_vec()).unwrap_or_default();
    policies.iter().map(|policy| policy.name().to_owned()).collect()
}

fn to(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(path).header("x-key", "ada").body(()).unwrap()
}

#[tokio::test]
async fn of_a_group_only_the_first_that_matches_applies_besides_all_others() {
    let (store, _) = store();
    let login = limit(&store, "login").only_if(path_in(["/login"]).unwrap());
    let writes = limit(&store, "writes").only_if(method_in([Method::POST]));
    let group = Group::new(Choose::First).and(login).and(writes).and(limit(&store, "rest"));
    let limits =
        Limits::builder(limit(&store, "flood")).and(group).and(limit(&store, "last")).build().unwrap();
    assert_eq!(asked(&limits, &to(Method::POST, "/login")).await, ["flood", "login", "last"]);
    assert_eq!(asked(&limits, &to(Method::POST, "/upload")).await, ["flood", "writes", "last"]);
    assert_eq!(asked(&limits, &to(Method::GET, "/")).await, ["flood", "rest", "last"]);
}

#[tokio::test]
async fn a_member_may_be_several_limits_under_one_condition() {
    let (store, _) = store();
    let upload = Group::new(Choose::All)
        .only_if(path_in(["/upload"]).unwrap())
        .and(limit(&store, "size"))
        .and(limit(&store, "count").only_if(method_in([Method::POST])));
    let group = Group::new(Choose::First).and(upload).and(limit(&store, "rest"));
    let limits = Limits::builder(group).build().unwrap();
    assert_eq!(asked(&limits, &to(Method::POST, "/upload")).await, ["size", "count"]);
    assert_eq!(asked(&limits, &to(Method::GET, "/upload")).await, ["size"], "the group has matched");
    assert_eq!(asked(&limits, &to(Method::GET, "/")).await, ["rest"]);
}

#[tokio::test]
async fn a_limit_that_matches_and_asks_nothing_is_still_the_first() {
    let (store, _) = store();
    let plans = Tiers::builder(&on(&store, Policy::gcra("plans", "5/min")))
        .tier("free", "5/min")
        .unlimited("pro")
        .default_tier("pro");
    let plan = Limit::tiered(plans.build().unwrap(), |_| None).key(Key::from("all"));
    let free_of_cost = limit(&store, "free-of-cost").cost_fn(|_| 0);
    for first in [plan, free_of_cost] {
        let group = Group::new(Choose::First).and(first).and(limit(&store, "rest"));
        assert_eq!(asked(&Limits::builder(group).build().unwrap(), &from("ada")).await, [""; 0]);
    }
}

#[tokio::test]
async fn one_policy_may_stand_in_two_members_of_which_one_applies() {
    let (store, _) = store();
    let api = on(&store, Policy::gcra("api", "10/min"));
    let reports = by_header(api.clone()).cost(5).unwrap().only_if(path_in(["/report"]).unwrap());
    let group = Group::new(Choose::First).and(reports).and(by_header(api));
    let service = all_fields(group).build().unwrap().layer(Handler::default());
    let report = send(&service, to(Method::GET, "/report")).await;
    assert_eq!(described(&report, "ratelimit").unwrap()[0].1["r"], 5);
    assert_eq!(described(&send(&service, from("ada")).await, "ratelimit").unwrap()[0].1["r"], 4);
}

#[tokio::test]
async fn limits_that_do_not_go_together_are_refused_where_they_meet_and_only_there() {
    let (store, _) = store();
    let api = on(&store, Policy::gcra("api", "10/min"));
    let twice = by_header(api.clone()).only_if(path_in(["/twice"]).unwrap());
    let many = |name: &str| {
        let policy = (1..12_u64)
            .fold(Policy::gcra(name, "100/s"), |policy, minutes| policy.and(format!("1000/{minutes}min")));
        by_header(on(&store, policy)).only_if(path_in(["/many"]).unwrap())
    };
    let limits = all_fields(by_header(api)).and(twice).and(many("first")).and(many("second"));
    let service = limits.build().unwrap().layer(Handler::default());
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    for path in ["/twice", "/many"] {
        let refused = send(&service, to(Method::GET, path)).await;
        assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR, "{path}");
    }
    let left = send(&service, from("ada")).await;
    assert_eq!(
        described(&left, "ratelimit").unwrap()[0].1["r"],
        8,
        "a request that is refused so spends nothing"
    );
}

#[tokio::test]
async fn a_condition_is_asked_once_whatever_other_limits_do() {
    let (store, _) = store();
    let asked = Arc::new(AtomicUsize::new(0));
    for (place, holds) in [[true, false], [false, true], [true, true], [false, false]].into_iter().enumerate()
    {
        for waits in [false, true] {
            let counted = |name: &str, holds| {
                let (limit, asked) = (limit(&store, &format!("{name}-{place}-{waits}")), Arc::clone(&asked));
                limit.only_if(move |_| asked.fetch_add(1, Ordering::Relaxed) < usize::MAX && holds)
            };
            let mut first = counted("first", holds[0]);
            if waits {
                first = first.key(extract_fn(|_| Extraction::pending(async { Ok(Key::from("ada")) })));
            }
            let limits = Limits::builder(first).and(counted("second", holds[1])).build().unwrap();
            let names = self::asked(&limits, &from("ada")).await;
            assert_eq!(names.len(), holds.iter().filter(|holds| **holds).count(), "{names:?}");
            assert_eq!(asked.swap(0, Ordering::Relaxed), 2, "{holds:?}");
        }
    }
}
