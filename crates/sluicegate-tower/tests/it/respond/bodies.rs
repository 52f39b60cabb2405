//! The bodies of refusals, for those who asked for another one than the default.

use http::{Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluicegate_core::Policy;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::respond::Refusal;
use tower::Layer;

use crate::support::{Body, Handler, anonymous, by_header, fields, from, on, send, store};

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// A flat object, as many public APIs answer.
fn simple(refusal: &Refusal<'_>) -> Response<Body> {
    let body = json!({
        "message": refusal.to_string(),
        "limit": refusal.standing().map(|standing| standing.capacity()),
        "remaining": refusal.standing().map(|standing| standing.remaining()),
        "retryAfterSeconds": refusal.retry_after_seconds(),
        "violated": refusal.violated().collect::<Vec<_>>(),
    });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = refusal.status();
    response
}

async fn object(response: Response<Body>) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

#[tokio::test]
async fn a_body_of_ones_own_says_the_same_as_the_fields() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("api", "2/min")));
    let layer = RateLimitLayer::builder(limit).respond(simple).build().unwrap();
    let service = layer.layer(Handler::default());
    for _ in 0..2 {
        send(&service, from("ada")).await;
    }
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fields(&refused).len(), 7);
    assert_eq!(
        object(refused).await,
        json!({
            "message": "too many requests: try again in 30 s",
            "limit": 2,
            "remaining": 0,
            "retryAfterSeconds": 30,
            "violated": ["api"],
        })
    );
}

#[tokio::test]
async fn a_refusal_without_a_decision_has_words_and_no_numbers() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("api", "2/min")))
        .cost_fn(|_| 3)
        .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let layer = RateLimitLayer::builder(limit)
        .deny(|request| request.headers.get("x-key").is_some_and(|key| key == "eve"))
        .respond(simple)
        .build()
        .unwrap();
    let service = layer.layer(Handler::default());
    let wordy = |message: &str| json!({ "message": message, "limit": null, "remaining": null, "retryAfterSeconds": null, "violated": [] });
    let missing = object(send(&service, anonymous()).await).await;
    assert_eq!(missing, wordy("the header x-key is missing"));
    let denied = object(send(&service, from("eve")).await).await;
    assert_eq!(denied, wordy("requests like this one are not accepted"));
    let costly = object(send(&service, from("ada")).await).await;
    assert_eq!((&costly["limit"], &costly["retryAfterSeconds"]), (&json!(2), &Value::Null));
}
