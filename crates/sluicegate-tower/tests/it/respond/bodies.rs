//! The bodies of refusals, for those who asked for another one than the default.

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluicegate_core::Policy;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::respond::SimpleJson;
use tower::Layer;

use crate::support::{Body, Handler, anonymous, by_header, fields, from, on, send, store};

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn a_simple_object_says_the_same_as_the_fields() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("api", "2/min")));
    let layer = RateLimitLayer::builder(limit).respond(SimpleJson::new()).build().unwrap();
    let service = layer.layer(Handler::default());
    for _ in 0..2 {
        send(&service, from("ada")).await;
    }
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["content-type"], "application/json");
    assert_eq!(fields(&refused).len(), 7);
    let mut body: Value = serde_json::from_str(&text(refused).await).unwrap();
    let reset = body.as_object_mut().unwrap().remove("resetAt").unwrap();
    let reset = reset.as_str().unwrap();
    assert!(reset.len() == 20 && reset.starts_with("20") && reset.ends_with('Z'), "{reset}");
    assert_eq!(
        body,
        json!({
            "code": "RATE_LIMITED",
            "message": "too many requests: try again in 30 s",
            "limit": 2,
            "remaining": 0,
            "retryAfterSeconds": 30,
        })
    );
}

#[tokio::test]
async fn what_a_simple_object_has_nothing_to_say_of_is_left_out() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("api", "2/min")))
        .cost_fn(|_| 3)
        .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let layer = RateLimitLayer::builder(limit)
        .deny(|request| request.headers.get("x-key").is_some_and(|key| key == "eve"))
        .respond(SimpleJson::new())
        .build()
        .unwrap();
    let service = layer.layer(Handler::default());
    let missing: Value = serde_json::from_str(&text(send(&service, anonymous()).await).await).unwrap();
    assert_eq!(missing, json!({"code": "KEY_MISSING", "message": "the header x-key is missing"}));
    let denied: Value = serde_json::from_str(&text(send(&service, from("eve")).await).await).unwrap();
    assert_eq!(denied, json!({"code": "FORBIDDEN", "message": "requests like this one are not accepted"}));
    let costly: Value = serde_json::from_str(&text(send(&service, from("ada")).await).await).unwrap();
    assert_eq!((&costly["code"], &costly["limit"]), (&json!("COST_TOO_HIGH"), &json!(2)));
    assert!(costly.get("retryAfterSeconds").is_none());
}

#[tokio::test]
async fn a_client_that_likes_text_better_than_json_gets_a_line_of_it() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("api", "1/min")));
    let service = RateLimitLayer::new(limit).layer(Handler::default());
    send(&service, from("ada")).await;
    let accepting =
        |accept: &str| Request::get("/").header("x-key", "ada").header("accept", accept).body(()).unwrap();
    // The second is a browser's, which was shown JSON.
    for accept in ["text/html, image/*", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"] {
        let refused = send(&service, accepting(accept)).await;
        assert_eq!(refused.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(fields(&refused).len(), 7, "the fields are those of every refusal");
        assert_eq!(text(refused).await, "Too many requests: try again in 60 s\n");
    }
    for accept in ["text/html, */*", "application/json, text/plain, */*", "application/json", "image/png"] {
        let refused = send(&service, accepting(accept)).await;
        assert_eq!(refused.headers()["content-type"], "application/problem+json", "{accept}");
    }
}
