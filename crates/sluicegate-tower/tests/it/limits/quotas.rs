//! Quotas that requests bring for their keys.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, StatusCode};
use serde_json::json;
use sluicegate_core::policy::Quotas;
use sluicegate_core::{Key, MemoryStore, Policy, Quota};
use sluicegate_tower::key::{HeaderKey, RequestView};
use sluicegate_tower::limits::{ChosenQuotas, Limits};
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::task::JoinSet;
use tower::Layer;

use crate::support::{Handler, described, number, paused_store, problem, send, service, store};

/// A request of a customer, whose plan stands in a header.
fn of(customer: &str, plan: &str) -> Request<()> {
    let request = Request::get("/").header("x-customer", customer);
    let request = if plan.is_empty() { request } else { request.header("x-plan", plan) };
    request.body(()).unwrap()
}

fn plan(request: RequestView<'_>) -> ChosenQuotas {
    match request.headers.get("x-plan").and_then(|plan| plan.to_str().ok()) {
        Some("all") => ChosenQuotas::Unlimited,
        Some("closed") => ChosenQuotas::Refuse(StatusCode::PAYMENT_REQUIRED),
        plan => plan.map(str::parse::<Quotas>).transpose().into(),
    }
}

fn limit(store: &MemoryStore) -> Limit {
    let api = Policy::sliding_log("api", "2/h").on(store).unwrap();
    Limit::new(api).key(HeaderKey::new("x-customer").unwrap())
}

#[tokio::test]
async fn each_customer_is_held_to_its_own_quota_and_told_of_it() {
    let (store, _) = store();
    let limits = [
        limit(&store).quota_by(plan),
        limit(&store).quota_by_async(|request| {
            let chosen = plan(request);
            async move {
                tokio::task::yield_now().await;
                chosen
            }
        }),
    ];
    for (group, limit) in limits.into_iter().enumerate() {
        let (service, handler) = service(limit);
        let name = |customer: u64| format!("customer-{customer}-{group}");
        // By turns, so that no quota is asked twice in a row.
        for round in 0..12_u64 {
            for customer in 0..20_u64 {
                let own = 3 + customer % 7;
                let response = send(&service, of(&name(customer), &format!("{own}/h"))).await;
                let status = if round < own { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
                assert_eq!(response.status(), status, "round {round} of {own}");
                assert_eq!(number(&response, "x-ratelimit-limit"), Some(own));
                let told = ["ratelimit-policy", "ratelimit"]
                    .map(|field| described(&response, field).unwrap()[0].clone());
                assert_eq!(told.each_ref().map(|(name, _)| &**name), ["api", "api"]);
                assert_eq!((told[0].1["q"], told[1].1["r"]), (own, own.saturating_sub(round + 1)));
                if round < own {
                    let policy = handler.last_seen().unwrap().policy().unwrap().to_string();
                    assert_eq!(policy, format!("api: {own}/h (sliding-log)"));
                } else {
                    let body = problem(response).await;
                    assert_eq!((&body["limit"], &body["violated-policies"]), (&json!(own), &json!(["api"])));
                }
            }
        }
        let none = send(&service, of(&name(99), "")).await;
        assert_eq!(number(&none, "x-ratelimit-limit"), Some(2));
        assert_eq!(handler.last_seen().unwrap().policy().map(Policy::name), Some("api"));
        assert!(described(&send(&service, of(&name(0), "all")).await, "ratelimit").is_none());
        assert_eq!(send(&service, of(&name(0), "closed")).await.status(), StatusCode::PAYMENT_REQUIRED);
    }
}

#[tokio::test]
async fn an_explanation_names_the_quota_of_the_key() {
    let (store, _) = store();
    let limits = Limits::new(limit(&store).quota_by(plan));
    for (plan, numbers) in [
        ("5/h", "api: 5/h (sliding-log)"),
        ("70/d", "api: 70/d (sliding-log)"),
        ("", "api: 2/h (sliding-log)"),
    ] {
        let explained = limits.explain(&of("ada", plan)).await;
        assert_eq!(explained.limits[0].asks.as_ref().unwrap().policy.to_string(), numbers);
    }
}

#[tokio::test]
async fn a_plan_that_changes_counts_what_was_spent_under_the_one_before() {
    let (store, _) = store();
    let (service, _) = service(limit(&store).quota_by(plan));
    for _ in 0..4 {
        assert_eq!(send(&service, of("ada", "4/h")).await.status(), StatusCode::OK);
    }
    assert_eq!(send(&service, of("ada", "4/h")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    let grown = send(&service, of("ada", "6/h")).await;
    assert_eq!((grown.status(), number(&grown, "x-ratelimit-remaining")), (StatusCode::OK, Some(1)));
    assert_eq!(send(&service, of("ada", "3/h")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

/// A request that would be let through because nobody could say by which quota is the one that must not be.
#[tokio::test]
async fn a_quota_that_cannot_be_refuses_the_request_and_spends_nothing() {
    let (store, _) = store();
    let other = Policy::gcra("other", "9/min").on(&store).unwrap();
    let layer = RateLimitLayer::builder(Limit::new(other.clone()).key(Key::from("anyone")))
        .and(limit(&store).quota_by(plan))
        .build()
        .unwrap();
    let service = layer.layer(Handler::default());
    for plan in ["5/fortnight", "5/h burst 9", "5/h, 7/d"] {
        let refused = send(&service, of("ada", plan)).await;
        assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR, "{plan}");
    }
    let left = other.peek(Key::from("anyone")).now().unwrap().unwrap().remaining();
    assert_eq!(left, 9);
    assert_eq!(send(&service, of("ada", "5/h")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn refunds_go_to_the_key_under_its_own_quota() {
    let (store, _) = store();
    let limit =
        limit(&store).quota_by(|_| Some(Quota::per_hour(3))).refund_if(|head| head.status.is_success());
    let (service, _) = service(limit);
    for _ in 0..9 {
        let response = send(&service, of("ada", "")).await;
        assert_eq!(
            (response.status(), number(&response, "x-ratelimit-remaining")),
            (StatusCode::OK, Some(3))
        );
    }
}

/// The answer of a database to every question.
#[derive(Clone, Copy)]
enum Answer {
    PerHour(u64),
    Error,
    Never,
}

/// A database that answers after 100 ms, and counts what it is asked.
#[derive(Clone)]
struct Database {
    asked: Arc<AtomicUsize>,
    answer: Arc<Mutex<Answer>>,
}

impl Database {
    fn new(answer: Answer) -> Self {
        Self { asked: Arc::default(), answer: Arc::new(Mutex::new(answer)) }
    }

    async fn quota(self) -> Result<Quota, &'static str> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let answer = *self.answer.lock().unwrap();
        match answer {
            Answer::PerHour(limit) => Ok(Quota::per_hour(limit)),
            Answer::Error => Err("the database is down"),
            Answer::Never => std::future::pending().await,
        }
    }

    fn limit(&self) -> Limit {
        let api = Policy::gcra("api", "2/h").on(paused_store()).unwrap();
        let database = self.clone();
        Limit::new(api).key(HeaderKey::new("x-customer").unwrap()).quota_by_cached(
            Duration::from_secs(60),
            |request| Some(request.headers.get("x-customer")?.to_str().ok()?.to_owned()),
            move |_| database.clone().quota(),
        )
    }
}

#[tokio::test(start_paused = true)]
async fn quotas_of_a_database_are_asked_for_once_at_a_time_and_stay_while_it_is_down() {
    use Answer::{Error, Never, PerHour};
    let database = Database::new(PerHour(1_000));
    let (service, _) = service(database.limit());
    for (step, (pause_ms, answer, asked, limits)) in [
        (0, PerHour(1_000), 1, vec![(1_000, 50)]),
        (59_000, PerHour(2_000), 1, vec![(1_000, 50)]),
        (2_000, PerHour(2_000), 2, vec![(1_000, 49), (2_000, 1)]),
        (0, PerHour(3_000), 2, vec![(2_000, 50)]),
        (61_000, Error, 3, vec![(2_000, 50)]),
        (500, Error, 3, vec![(2_000, 50)]),
        (600, Error, 4, vec![(2_000, 50)]),
        (1_100, Never, 5, vec![(2_000, 50)]),
        (1_100, PerHour(3_000), 6, vec![(2_000, 49), (3_000, 1)]),
    ]
    .into_iter()
    .enumerate()
    {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        *database.answer.lock().unwrap() = answer;
        let began = tokio::time::Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..50 {
            let service = service.clone();
            all.spawn(async move { number(&send(&service, of("acme", "")).await, "x-ratelimit-limit") });
        }
        let mut shown = BTreeMap::new();
        for limit in all.join_all().await {
            *shown.entry(limit.unwrap()).or_insert(0) += 1;
        }
        assert_eq!(shown.into_iter().collect::<Vec<_>>(), limits, "step {step}");
        assert_eq!(database.asked.load(Ordering::Relaxed), asked, "step {step}");
        assert!(began.elapsed() <= Duration::from_secs(1), "step {step}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_database_never_told_has_the_quota_of_the_policy_while_it_is_down() {
    let database = Database::new(Answer::Error);
    let (service, _) = service(database.limit());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(send(&service, of("acme", "")).await.status().as_u16());
    }
    assert_eq!((statuses, database.asked.load(Ordering::Relaxed)), (vec![200, 200, 429], 1));
}

#[tokio::test(start_paused = true)]
async fn of_invented_keys_the_last_ten_thousand_are_remembered() {
    let database = Database::new(Answer::PerHour(5));
    let (service, _) = service(database.limit());
    for customer in 0..=10_000 {
        send(&service, of(&customer.to_string(), "")).await;
    }
    for (customer, asked) in [("9999", 10_001), ("0", 10_002)] {
        send(&service, of(customer, "")).await;
        assert_eq!(database.asked.load(Ordering::Relaxed), asked, "{customer}");
    }
}
