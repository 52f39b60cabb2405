//! Limits whose size depends on who asks.

use std::time::Duration;

use http::{Request, StatusCode};
use serde_json::json;
use sluicegate_core::limiter::{Inherit, Overrides};
use sluicegate_core::policy::{Override, PolicyMode};
use sluicegate_core::{ConfigError, Key, MemoryStore, Policy};
use sluicegate_tower::Limit;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{Tiers, TiersBuilder};
use tower::Layer;

use crate::support::{
    Handler, all_fields, anonymous, answer, assert_no_duplicates, by_header, described, fields, number, on,
    problem, send, service, store,
};

/// Two sizes of one policy, a policy of its own, and no limit.
fn builder(store: &MemoryStore) -> TiersBuilder {
    Tiers::builder(&on(store, Policy::gcra("api", "2/min")))
        .tier("free", "2/min")
        .tier("plus", "6/min")
        .tier_with("pro", on(store, Policy::sliding_counter("pro", "100/min").and("5/s")))
        .unlimited("enterprise")
}

fn plans(store: &MemoryStore) -> Tiers {
    builder(store).default_tier("free").build().unwrap()
}

/// What authentication found out about a request.
#[derive(Clone)]
struct Plan(&'static str);

fn plan(request: RequestView<'_>) -> Option<&str> {
    request.extensions.get::<Plan>().map(|plan| plan.0)
}

fn on_plan(plan: &'static str) -> Request<()> {
    let mut request = anonymous();
    request.extensions_mut().insert(Plan(plan));
    request
}

#[tokio::test]
async fn each_request_is_asked_of_its_own_tier_and_shows_its_numbers() {
    let (store, _) = store();
    let (service, handler) = service(Limit::tiered(plans(&store), plan).key(Key::from("ada")));
    let free = send(&service, on_plan("free")).await;
    assert_eq!(
        fields(&free),
        [
            r#"ratelimit-policy: "api";q=2;w=60"#,
            r#"ratelimit: "api";r=1;t=30"#,
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 30",
        ]
    );
    assert_eq!(handler.last_seen().unwrap().policy().map(Policy::name), Some("api"));
    let pro = send(&service, on_plan("pro")).await;
    let policies = described(&pro, "ratelimit-policy").unwrap();
    assert_eq!(policies.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["pro.1min", "pro.1s"]);
    assert_eq!(number(&pro, "x-ratelimit-remaining"), Some(4));
    send(&service, on_plan("free")).await;
    let refused = send(&service, on_plan("free")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(problem(refused).await["violated-policies"], json!(["api"]));
    assert_eq!(send(&service, on_plan("pro")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_key_that_changes_its_tier_keeps_what_it_has_spent() {
    let (store, _) = store();
    let (service, _) = service(Limit::tiered(plans(&store), plan).key(Key::from("ada")));
    for (plan, numbers) in [
        ("free", (200, 2, 1)),
        ("free", (200, 2, 0)),
        ("free", (429, 2, 0)),
        ("plus", (200, 6, 3)),
        ("free", (429, 2, 0)),
    ] {
        let response = send(&service, on_plan(plan)).await;
        let number = |name: &str| number(&response, &format!("x-ratelimit-{name}")).unwrap();
        assert_eq!((response.status().as_u16(), number("limit"), number("remaining")), numbers, "{plan}");
    }
    assert_eq!(
        number(&send(&service, on_plan("pro")).await, "x-ratelimit-remaining"),
        Some(4),
        "its keys are others"
    );
}

#[tokio::test]
async fn an_override_of_a_policy_changes_its_own_keys_and_its_mode_those_of_all_tiers() {
    let (store, clock) = store();
    let (service, _) = service(Limit::tiered(plans(&store), plan).key(Key::from("ada")));
    let shown = async |plan| {
        let response = send(&service, on_plan(plan)).await;
        let numbers = ["limit", "remaining"].map(|name| number(&response, &format!("x-ratelimit-{name}")));
        (response.status().as_u16(), numbers.map(Option::unwrap))
    };
    assert_eq!(shown("free").await, (200, [2, 1]));
    let more = Override::builder("pro", "ada").quota("9/min").quota("7/s").lasting(Duration::from_secs(1));
    Overrides::of(&store).put(more).await.unwrap();
    assert_eq!((shown("free").await, shown("pro").await.1[0]), ((200, [2, 0]), 7));
    let off = Override::builder("api", "ada").mode(PolicyMode::Off).lasting(Duration::from_secs(1));
    Overrides::of(&store).put(off).await.unwrap();
    for tier in ["free", "plus"] {
        assert!(fields(&send(&service, on_plan(tier)).await).is_empty(), "{tier}");
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(shown("free").await, (429, [2, 0]), "a request ends it, although none was decided since");
    assert_eq!(shown("pro").await.1[0], 5);
}

#[tokio::test]
async fn an_unlimited_tier_is_not_asked_and_carries_no_fields() {
    let (store, _) = store();
    let (service, handler) = service(Limit::tiered(plans(&store), plan).key(Key::from("ada")));
    for _ in 0..200 {
        let response = send(&service, on_plan("enterprise")).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
    }
    assert_eq!(handler.calls(), 200);
}

#[tokio::test]
async fn whose_tier_is_not_known_is_in_the_default_one() {
    let (store, _) = store();
    let (service, _) = service(Limit::tiered(plans(&store), plan).key(Key::from("ada")));
    for request in [anonymous(), on_plan("Free"), on_plan("")] {
        assert!(described(&send(&service, request).await, "ratelimit").unwrap()[0].0 == "api");
    }
}

#[tokio::test]
async fn whose_tier_is_not_known_is_refused_if_that_is_wanted() {
    let (store, _) = store();
    let tiers = builder(&store).reject_unknown(StatusCode::PAYMENT_REQUIRED).build().unwrap();
    let (service, handler) = service(Limit::tiered(tiers, plan).key(Key::from("ada")));
    for request in [anonymous(), on_plan("gold")] {
        let refused = send(&service, request).await;
        assert_eq!(refused.status(), StatusCode::PAYMENT_REQUIRED);
        assert_eq!(problem(refused).await["detail"], "the request is in no known tier");
    }
    assert_eq!(send(&service, on_plan("pro")).await.status(), StatusCode::OK);
    assert_eq!(handler.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tier_may_be_looked_up() {
    let (store, _) = store();
    let look_up = |request: RequestView<'_>| {
        let name = plan(request).map(str::to_uppercase);
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            name.map(|name| name.to_lowercase())
        }
    };
    let limit = Limit::tiered_async(plans(&store), look_up).key(Key::from("ada"));
    let everybody = by_header(on(&store, Policy::gcra("all", "100/min")));
    let layer = all_fields(limit).and(everybody).build().unwrap();
    let service = layer.layer(Handler::default());
    for (request, names) in [
        (on_plan("pro"), &["pro.1min", "pro.1s", "all"][..]),
        (on_plan("free"), &["api", "all"]),
        (on_plan("enterprise"), &["all"]),
        (anonymous(), &["api", "all"]),
    ] {
        let response = send(&service, request).await;
        assert_no_duplicates(&response);
        let quotas = described(&response, "ratelimit").unwrap();
        assert_eq!(quotas.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), names);
    }
}

#[tokio::test]
async fn a_share_is_a_part_of_each_tier_in_buckets_of_its_own() {
    let (store, _) = store();
    let whole = plans(&store);
    let share = whole.share(1, 2, "ai").unwrap();
    let limits = [whole.clone(), share.clone()].map(|tiers| Limit::tiered(tiers, plan));
    let [all, ai] = limits.map(|limit| service(limit.key(Key::from("ada"))).0);
    let pro = send(&ai, on_plan("pro")).await;
    assert_eq!(fields(&pro)[0], r#"ratelimit-policy: "pro.ai.1min";q=50;w=60, "pro.ai.1s";q=3;w=1"#);
    assert_eq!(number(&pro, "x-ratelimit-remaining"), Some(2));
    assert_eq!(send(&ai, on_plan("enterprise")).await.status(), StatusCode::OK);
    assert_eq!(number(&send(&all, on_plan("pro")).await, "x-ratelimit-remaining"), Some(4));
    let plus = send(&ai, on_plan("plus")).await;
    assert_eq!(fields(&plus)[0], r#"ratelimit-policy: "api.ai";q=3;w=60"#);
    assert_eq!(number(&send(&ai, on_plan("free")).await, "x-ratelimit-limit"), Some(1));
    assert_eq!(number(&send(&all, on_plan("plus")).await, "x-ratelimit-remaining"), Some(5));
    assert_eq!(share.names().collect::<Vec<_>>(), ["free", "plus", "pro", "enterprise"]);
    assert!(whole.share(3, 2, "ai").is_err());
}

#[tokio::test]
async fn a_policy_is_replaced_at_run_time_for_all_of_its_tiers() {
    let (store, _) = store();
    let tiers = plans(&store);
    let (service, _) = service(Limit::tiered(tiers.clone(), plan).key(Key::from("ada")));
    send(&service, on_plan("plus")).await;
    let [free, plus] = ["free", "plus"].map(|tier| tiers.limiter(tier).unwrap());
    free.replace(Policy::sliding_log("api", "2/min").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(number(&send(&service, on_plan("plus")).await, "x-ratelimit-remaining"), Some(4));
    assert_eq!(plus.policy().to_string(), "api: 6/min (sliding-log)");
    assert_eq!(answer(free.peek("ada")).remaining(), 0);
    assert!(tiers.limiter("enterprise").is_none() && tiers.limiter("gold").is_none());
}

#[test]
fn what_cannot_be_tiers_is_refused_with_its_reason() {
    let ((here, _), (there, _)) = (store(), store());
    let message = |builder: TiersBuilder| builder.build().unwrap_err().to_string();
    let elsewhere = on(&there, Policy::gcra("gold", "5/min"));
    for (builder, part) in [
        (builder(&here), "`default_tier` with one of \"free\", \"plus\", \"pro\", \"enterprise\""),
        (builder(&here).default_tier("gold"), "\"gold\" is not among the tiers"),
        (builder(&here).unlimited("free").default_tier("pro"), "two tiers called \"free\""),
        (builder(&here).tier_with("gold", elsewhere.clone()).default_tier("pro"), "another store"),
        (builder(&here).tier("gold", "0/min").default_tier("pro"), "\"0/min\" is not a quota"),
        (builder(&here).tier("gold", "5/min, 9/h").default_tier("pro"), "2 quotas"),
        (
            builder(&here).tier("gold", "5/min by sliding-log").default_tier("pro"),
            "leave \"by sliding-log\" out",
        ),
        (Tiers::builder(&elsewhere).unlimited("all").default_tier("all"), "limit nothing"),
    ] {
        let message = message(builder);
        assert!(message.contains(part), "{message} says nothing of {part}");
    }
}

#[test]
fn a_fixed_cost_must_fit_into_every_tier() -> Result<(), ConfigError> {
    let (store, _) = store();
    let tiers = plans(&store);
    assert!(Limit::tiered(tiers.clone(), plan).cost(2).is_ok());
    let error = Limit::tiered(tiers, plan).cost(3).unwrap_err();
    assert!(error.to_string().contains("of 2/min in policy \"api\""), "{error}");
    Ok(())
}
