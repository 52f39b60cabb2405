//! The gateway of the examples before an API like OpenAI's, with the budget of tokens beside it.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluicegate::key::ApiKey;
use sluicegate::{Key, KeyExtractor};

use crate::rules::gateway::{gateway, rules};
use crate::support::{Client, field, serve, whole};

const LONG: Duration = Duration::from_secs(60);
const RULES: &str = include_str!("../../examples/gateway/openai.yaml");

/// A model whose answers cost what the request asks for: as a whole, as events, or as events that do not end.
fn upstream() -> Router {
    let complete = async |headers: HeaderMap, body: Bytes| -> Response {
        assert!(!headers.contains_key("accept-encoding"), "an answer that is compressed cannot be read");
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let usage = json!({ "usage": { "prompt_tokens": 5, "total_tokens": asked["tokens"] } });
        if asked["fails"] == true {
            return (StatusCode::INTERNAL_SERVER_ERROR, usage.to_string()).into_response();
        }
        if asked["stream"] != true {
            return ([("content-type", "application/json")], usage.to_string()).into_response();
        }
        let events = [
            "data: {\"choices\": [{\"delta\": {\"content\": \"hello\"}}], \"usage\": null}\n\n".to_owned(),
            format!("data: {usage}\n\n"),
            "data: [DONE]\n\n".to_owned(),
        ];
        let said = stream::iter(events.map(Ok::<_, std::convert::Infallible>));
        let body = match asked["stays"] == true {
            true => Body::from_stream(stream::StreamExt::chain(said, stream::pending())),
            false => Body::from_stream(said),
        };
        ([("content-type", "text/event-stream")], body).into_response()
    };
    Router::new().route("/v1/chat/completions", post(complete))
}

async fn client() -> Client {
    Client::connect(gateway(&rules(RULES), serve(upstream()).await, LONG).await).await
}

fn asking(key: &str) -> http::request::Builder {
    let request = Request::post("/v1/chat/completions").header("authorization", format!("Bearer {key}"));
    request.header("accept-encoding", "gzip")
}

/// The status of the answer, and the tokens that it says are left, with those of this request reserved.
async fn ask(client: &mut Client, key: &str, request: Value) -> (u16, u64) {
    let answer = whole(client.begin_with(asking(key), request.to_string()).await).await;
    let left = field(&answer, "x-ratelimit-remaining-tokens").parse().unwrap();
    (answer.status().as_u16(), left)
}

#[tokio::test]
async fn answers_and_streams_cost_each_key_what_they_tell() {
    let mut client = client().await;
    assert_eq!(ask(&mut client, "ada", json!({ "tokens": 120 })).await, (200, 9_500));
    assert_eq!(ask(&mut client, "ada", json!({ "tokens": 30, "stream": true })).await, (200, 9_380));
    assert_eq!(ask(&mut client, "ada", json!({ "tokens": 1, "fails": true })).await, (500, 9_850));
    assert_eq!(ask(&mut client, "ada", json!({ "tokens": 1 })).await, (200, 9_350));
    assert_eq!(ask(&mut client, "bob", json!({ "tokens": 1 })).await, (200, 9_500));
}

#[tokio::test]
async fn a_budget_that_is_used_up_is_told_as_clients_of_that_api_expect_it() {
    let mut client = client().await;
    assert_eq!(ask(&mut client, "ada", json!({ "tokens": 9_700 })).await, (200, 9_500));
    let refused = whole(client.begin_with(asking("ada"), json!({ "tokens": 1 }).to_string()).await).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let fields = ["limit-requests", "limit-tokens", "remaining-tokens", "reset-tokens"];
    let told = fields.map(|name| field(&refused, &format!("x-ratelimit-{name}")).to_owned());
    assert_eq!(told, ["60", "10000", "300", "1m0s"]);
    assert_eq!((field(&refused, "retry-after"), field(&refused, "content-type")), ("60", "application/json"));
    let body: Value = serde_json::from_slice(refused.body()).unwrap();
    let error = json!({
        "message": "Rate limit reached for tokens: Limit 10000, Remaining 300. Please try again in 60s.",
        "type": "tokens",
        "param": null,
        "code": "rate_limit_exceeded",
    });
    assert_eq!(body, json!({ "error": error }));
}

#[tokio::test]
async fn a_large_model_has_a_budget_of_its_own_within_that_of_the_key_and_requests_say_what_they_reserve() {
    let mut client = client().await;
    let large = |tokens: u64| json!({ "model": "large", "max_tokens": 1_200, "tokens": tokens });
    assert_eq!(ask(&mut client, "ada", large(1_500)).await, (200, 8_800));
    assert_eq!(ask(&mut client, "ada", large(400)).await, (200, 7_300));
    // 1,100 are left for the large model, and 8,100 for all.
    assert_eq!(ask(&mut client, "ada", large(1)).await.0, 429);
    let small = json!({ "model": "small", "max_tokens": 1_200, "tokens": 1 });
    assert_eq!(ask(&mut client, "ada", small).await, (200, 6_900));
    assert_eq!(ask(&mut client, "bob", large(1)).await, (200, 8_800));
}

#[tokio::test]
async fn a_client_that_hangs_up_in_a_stream_pays_what_the_stream_has_told() {
    let rules = rules(RULES);
    let gateway = gateway(&rules, serve(upstream()).await, LONG).await;
    let mut leaving = Client::connect(gateway).await;
    let request = json!({ "tokens": 44, "stream": true, "stays": true }).to_string();
    let mut body = leaving.begin_with(asking("ada"), request).await.into_body();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("[DONE]") {
        said.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    drop((body, leaving));
    let tokens = rules.store().limiters().get("tokens").unwrap();
    let key = key_of("ada");
    // The gateway notices it a moment later.
    let deadline = Instant::now() + LONG;
    while tokens.peek(&key).await.unwrap().remaining() != 10_000 - 44 {
        assert!(Instant::now() < deadline, "it pays something else");
        tokio::task::yield_now().await;
    }
}

/// The key as the rules find it.
fn key_of(key: &str) -> Key {
    let request = asking(key).body(()).unwrap();
    let secret = ApiKey::header("authorization").unwrap();
    secret.extract((&request).into()).now().expect("it is at hand").expect("it is there")
}
