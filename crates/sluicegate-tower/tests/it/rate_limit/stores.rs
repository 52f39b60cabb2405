//! Stores that answer late or not at all, and policies that are replaced.

use std::sync::Arc;

use http::StatusCode;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, QuotaStatus, judge};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Key, OnOutage, Policy, Store};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around;
use sluicegate_tower::Limit;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::respond::{Refusal, RefusalReason};
use tower::Layer;

use crate::support::{
    Handler, all_fields, answer, by_header, described, fields, from, number, on, problem, send, store,
};

#[tokio::test]
async fn when_the_store_fails_a_layer_holds_the_limit_by_itself_by_default() {
    let (store, _) = store();
    let failing = Policy::gcra("api", "1/h").on(around::lost(&store, StoreErrorKind::Timeout)).unwrap();
    let service = all_fields(by_header(failing)).build().unwrap().layer(Handler::default());
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let response = send(&service, from("ada")).await;
        assert_eq!(response.status(), status);
        assert!(fields(&response).contains(&"x-ratelimit-remaining: 0".to_owned()));
    }
}

#[tokio::test]
async fn when_the_store_fails_and_a_policy_allows_requests_pass_without_fields() {
    let (store, _) = store();
    let failing = Policy::gcra("api", "1/min").on_outage(OnOutage::Allow);
    let failing = failing.on(around::lost(&store, StoreErrorKind::Timeout)).unwrap();
    let handler = Handler::default();
    let service = all_fields(by_header(failing)).build().unwrap().decided().layer(handler.clone());
    for _ in 0..3 {
        let response = send(&service, from("ada")).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
        assert!(response.extensions().get::<Decided>().is_none());
    }
    assert_eq!(handler.calls(), 3);
    assert!(handler.last_seen().is_none());
}

#[tokio::test]
async fn when_the_store_fails_and_a_policy_denies_the_answer_is_a_503_that_hides_the_cause() {
    let (store, _) = store();
    let failing = around::lost(&store, StoreErrorKind::Unavailable);
    let open = Policy::gcra("open", "1/min").on(Arc::clone(&failing)).unwrap();
    let closed = Policy::gcra("closed", "1/min").on_outage(OnOutage::Deny).on(failing).unwrap();
    let handler = Handler::default();
    let layer = all_fields(by_header(open)).and(by_header(closed)).build().unwrap();
    let refused = send(&layer.layer(handler.clone()), from("ada")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    // An outage has no known end: a second keeps clients from hammering.
    assert_eq!(fields(&refused), ["cache-control: no-store", "retry-after: 1"]);
    assert_eq!(
        problem(refused).await,
        serde_json::json!({
            "type": "about:blank",
            "title": "Service Unavailable",
            "status": 503,
            "detail": "the rate limiter gave no answer",
        })
    );
    assert_eq!(handler.calls(), 0);
}

/// A store whose every decision says that nobody could make it.
fn dark() -> Arc<dyn Store> {
    around::around(&store().0, |memory: &Within, asks: &[Ask<'_>]| {
        let denies = asks.iter().any(|ask| ask.policy().policy().on_outage() == OnOutage::Deny);
        let found = answer(memory.decide(asks));
        let refused = |status: &QuotaStatus| if denies { status.refused_for_us(0) } else { *status };
        let decision = judge(0, 0, found.quotas().iter().map(refused));
        DecisionFuture::ready(Ok(decision.by(DecidedBy::Outage)))
    })
}

fn in_the_dark(policy: PolicyBuilder) -> Limit {
    by_header(policy.on(dark()).unwrap())
}

#[tokio::test]
async fn a_decision_that_nobody_made_has_no_numbers_to_show() {
    let handler = Handler::default();
    let service = all_fields(in_the_dark(Policy::gcra("api", "1/min")))
        .build()
        .unwrap()
        .decided()
        .layer(handler.clone());
    let passed = send(&service, from("ada")).await;
    assert_eq!((passed.status(), fields(&passed)), (StatusCode::OK, vec![]));
    assert!(passed.extensions().get::<Decided>().is_none() && handler.last_seen().is_none());
    let respond = |refusal: &Refusal<'_>| {
        assert!(matches!(refusal.reason(), RefusalReason::Outage) && refusal.decided().is_none());
        http::Response::builder().status(refusal.status()).body("closed".into()).unwrap()
    };
    let closed = in_the_dark(Policy::gcra("api", "1/min").on_outage(OnOutage::Deny));
    let service = all_fields(closed).respond(respond).build().unwrap().layer(handler.clone());
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fields(&refused), ["cache-control: no-store", "retry-after: 1"]);
    assert_eq!(handler.calls(), 1);
}

#[tokio::test]
async fn a_decision_of_the_fallback_shows_its_numbers_and_refuses_with_429() {
    let alone = around::around(&store().0, |memory: &Within, asks: &[Ask<'_>]| {
        DecisionFuture::ready(Ok(answer(memory.decide(asks)).by(DecidedBy::Fallback)))
    });
    let alone = Policy::gcra("api", "1/min").on(alone).unwrap();
    let service = all_fields(by_header(alone)).build().unwrap().layer(Handler::default());
    assert_eq!(fields(&send(&service, from("ada")).await).len(), 5);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn behind_a_resilient_store_each_policy_says_what_an_outage_is_to_its_clients() {
    let (memory, _) = store();
    let resilient = Resilient::new(around::lost(&memory, StoreErrorKind::Unavailable));
    for (action, statuses, lines) in [
        (OnOutage::Local, [200, 200, 429], 5),
        (OnOutage::Allow, [200, 200, 200], 0),
        (OnOutage::Deny, [503, 503, 503], 2),
    ] {
        let policy = Policy::gcra(format!("{action:?}").to_lowercase(), "2/min").on_outage(action);
        let limit = by_header(policy.on(&resilient).unwrap());
        let service = all_fields(limit).build().unwrap().layer(Handler::default());
        for (index, status) in statuses.into_iter().enumerate() {
            let response = send(&service, from("ada")).await;
            assert_eq!(response.status(), status, "{action:?} {index}");
            if index == 0 {
                assert_eq!(fields(&response).len(), lines, "{action:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_store_that_answers_late_gives_the_same_responses_as_memory() {
    let ((near, _), (far, _)) = (store(), store());
    let layers = [(&near).into(), around::late(&far)].map(|store: Arc<dyn Store>| {
        let window = Policy::fixed_window("window", "3/min").on(Arc::clone(&store)).unwrap();
        let bucket = Policy::gcra("bucket", "1/s burst 2").on(store).unwrap();
        let bucket = Limit::new(bucket).key(Key::from("all"));
        let inner = all_fields(bucket).build().unwrap().layer(Handler::default());
        all_fields(by_header(window)).build().unwrap().layer(inner)
    });
    for key in ["ada", "ada", "bob", "ada", "ada"] {
        let [memory, late] = [send(&layers[0], from(key)).await, send(&layers[1], from(key)).await];
        assert_eq!(memory.status(), late.status());
        if memory.status() == StatusCode::OK {
            assert_eq!(fields(&memory), fields(&late));
        } else {
            // Where giving back left the outer limit is not known at once from a store that answers late.
            for name in ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
                assert_eq!(number(&memory, name), number(&late, name), "{name}");
            }
            assert_eq!(problem(memory).await, problem(late).await);
        }
    }
}

#[tokio::test]
async fn a_replaced_policy_shows_in_the_fields_of_the_next_response() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "10/min"));
    let service = all_fields(by_header(limiter.clone())).build().unwrap().layer(Handler::default());
    send(&service, from("ada")).await;
    limiter.replace(Policy::gcra("api", "20/min").and("3/s").build().unwrap(), Inherit::Reset).unwrap();
    let response = send(&service, from("ada")).await;
    assert_eq!(
        fields(&response)[..3],
        [
            r#"ratelimit-policy: "api.1min";q=20;w=60, "api.1s";q=3;w=1"#,
            r#"ratelimit: "api.1min";r=19;t=3, "api.1s";r=2;t=1"#,
            "x-ratelimit-limit: 3",
        ]
    );
    limiter.replace(Policy::fixed_window("api", "2/h").build().unwrap(), Inherit::Reset).unwrap();
    let response = send(&service, from("ada")).await;
    assert_eq!(described(&response, "ratelimit-policy").unwrap()[0].1["q"], 2);
    assert_eq!(answer(limiter.peek("ada")).remaining(), 1);
}
