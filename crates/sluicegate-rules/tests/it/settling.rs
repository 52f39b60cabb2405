//! Costs that a response tells, as a file says it.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body::Body;
use sluicegate_core::RateLimiter;
use sluicegate_rules::Rules;
use sluicegate_tests::frames::{Framed, Frames, data, next};
use sluicegate_tests::streams::{BUDGET, play, stream};
use sluicegate_tower::bandwidth::PacedBody;
use sluicegate_tower::request_fields::ReadBody;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{parse, request, rules};

fn file(settle: &str) -> String {
    format!(
        "
version: 1
policies: {{ tokens: {{ algorithm: fixed-window, quota: 10000/min }} }}
rules: [{{ name: all, limit: tokens, key: header(x-user), cost: 500, settle: {settle} }}]
"
    )
}

fn tokens(rules: &Rules) -> RateLimiter {
    rules.store().limiters().get("tokens").expect("the file names it")
}

fn used(limiter: &RateLimiter) -> u64 {
    BUDGET - limiter.peek("ada").now().ok().and_then(Result::ok).expect("memory answers at once").remaining()
}

/// The response to one request, if it is let through.
async fn respond(rules: &Rules, body: Frames) -> Option<impl Body + Unpin> {
    let body = Arc::new(Mutex::new(Some(body)));
    let upstream = service_fn(move |_: Request<()>| {
        let body = body.lock().expect("nobody panics").take().expect("one request comes");
        ready(Ok::<_, Infallible>(
            Response::builder().header("x-tokens", "33").body(body).expect("it is one"),
        ))
    });
    let sent = rules.layer().layer(upstream).oneshot(request("/", &[("x-user", "ada")])).await;
    let response = sent.expect("the upstream does not fail");
    (response.status() == 200).then(|| response.into_body())
}

/// The units that are used when a client has read this many frames of a response and has left.
async fn used_after(settle: &str, frames: impl IntoIterator<Item = Framed>, read: usize) -> u64 {
    let rules = rules(&file(settle));
    let mut body = respond(&rules, Frames::new(frames)).await.expect("there is room");
    for _ in 0..read {
        _ = next(&mut body).await;
    }
    drop(body);
    used(&tokens(&rules))
}

#[tokio::test]
async fn each_place_of_a_cost_is_read_as_the_file_says() {
    let json = || [data("{\"usage\": {\"prompt_tokens\": 20, \"completion_"), data("tokens\": 30}}")];
    for (settle, expected) in [
        ("{ json: usage.prompt_tokens }", 20),
        ("{ json: { usage.prompt_tokens: 1, usage.completion_tokens: 4 } }", 140),
        ("{ header: x-tokens }", 33),
        ("{ header: x-other, json: usage.completion_tokens }", 30),
        ("{ sse: usage.prompt_tokens, bytes: response }", 57),
        ("{ trailer: x-tokens }", 500),
        ("{ bytes: response }", 57),
    ] {
        assert_eq!(used_after(settle, json(), 3).await, expected, "{settle}");
    }
    let events = || [data("data: {\"n\": 7}\n\n"), data("data: {\"n\": 9}\n\ndata: [DONE]\n\n")];
    assert_eq!(used_after("{ json: n, sse: n }", events(), 3).await, 9);
}

#[tokio::test]
async fn a_response_that_ends_early_costs_what_the_file_says() {
    let events = || [data("data: {\"n\": 7}\n\n"), Err("the upstream is gone")];
    for (word, expected) in [("", 500), (", on_abort: reserved", 500), (", on_abort: seen", 7)] {
        for read in [1, 2] {
            let settle = format!("{{ sse: n{word} }}");
            assert_eq!(used_after(&settle, events(), read).await, expected, "{settle}, {read}");
        }
    }
}

#[tokio::test]
async fn streams_are_admitted_as_counted_by_hand_and_never_use_more_than_the_budget() {
    for seed in 0..8 {
        for word in ["reserved", "seen"] {
            let rules = rules(&file(&format!("{{ sse: usage.total_tokens, on_abort: {word} }}")));
            let limiter = tokens(&rules);
            let send = async |cost| respond(&rules, stream(cost)).await;
            play(seed, word == "seen", send, async |_| used(&limiter)).await;
        }
    }
}

#[tokio::test]
async fn a_response_under_way_is_settled_by_the_file_that_it_began_with() {
    let rules = rules(&file("{ json: n }"));
    let answer = || Frames::from("{\"n\": 7, \"m\": 9}");
    let mut before = respond(&rules, answer()).await.expect("there is room");
    rules.replace(parse(&file("{ json: m }"))).expect("it is good");
    let mut behind = respond(&rules, answer()).await.expect("there is room");
    while next(&mut before).await.is_some() {}
    while next(&mut behind).await.is_some() {}
    assert_eq!(used(&tokens(&rules)), 7 + 9);
}

#[tokio::test]
async fn an_explanation_says_where_the_cost_is_found() {
    for (settle, expected) in [
        ("{ json: usage.total_tokens }", ", settled by usage.total_tokens in the body; 10000 of 10000 left"),
        (
            "{ sse: { in: 1, out: 4 }, trailer: x-tokens, on_abort: seen }",
            ", settled by the trailer x-tokens, or else in + 4 * out in the events; what was seen of it, if it ends early; ",
        ),
    ] {
        let explained = rules(&file(settle)).explain(&request("/", &[("x-user", "ada")])).await.to_string();
        assert!(explained.contains(expected), "{explained}");
    }
}

#[tokio::test]
async fn rules_that_settle_otherwise_are_not_taken_for_one() {
    let text = "
version: 1
policies: { tokens: { quota: 10000/min } }
rules:
  - { name: login, group: g, only_if: { path: /login }, limit: tokens, key: everybody, settle: { json: n } }
  - { name: rest, group: g, limit: tokens, key: everybody, settle: { json: m } }
";
    for (text, refused) in [(text, true), (&*text.replace("json: m", "json: n"), false)] {
        // Its two readings meet both rules.
        let decided = rules(text).limits().decide(&request("/x/../login", &[])).await;
        assert_eq!(decided.is_err(), refused, "{text}");
    }
}

/// The status of a request with this body, under rules that read it.
async fn asked(rules: &Rules, encoding: &str, body: &'static str) -> u16 {
    let upstream = service_fn(async |_: Request<PacedBody<ReadBody<Frames>>>| {
        Ok::<_, Infallible>(Response::new(Frames::default()))
    });
    let request = Request::post("/").header("content-encoding", encoding).body(Frames::from(body));
    let request = request.expect("it is a request");
    let response = rules.layer().reading_requests().layer(upstream).oneshot(request).await;
    response.expect("the upstream does not fail").status().as_u16()
}

/// A client once chose, by an encoding that it made up, that no limit on a body applied.
#[tokio::test]
async fn a_body_that_cannot_be_read_meets_each_limit_on_it_and_no_exemption() {
    let text = "
version: 1
on_unreadable_body: match
policies:
  small: { algorithm: fixed-window, quota: 100/min }
  large: { algorithm: fixed-window, quota: 100/min }
  others: { algorithm: fixed-window, quota: 100/min }
  tokens: { algorithm: fixed-window, quota: 10000/min }
exempt:
  - { name: tests, only_if: { body: { model: test } } }
rules:
  - { name: small, group: models, only_if: { body: { model: [small, \"tiny*\"] } }, limit: small, key: everybody }
  - { name: large, group: models, only_if: { body: { model: large } }, limit: large, key: everybody }
  - { name: big, group: models, only_if: { body: { model: big } }, limit: large, key: everybody, cost: 2 }
  - { name: others, only_if: { not: { body: { model: large } } }, limit: others, key: everybody }
  - { name: all, limit: tokens, key: everybody, cost: { json: max_tokens, min: 1, max: 900, missing: 500 } }
";
    const LARGE: &str = "{\"model\": \"large\", \"max_tokens\": 2e2}";
    for (case, encoding, body, expected) in [
        ("test", "", "{\"model\": \"test\"}", [0, 0, 0, 0]),
        ("small", "", "{\"model\": \"tiny-2\"}", [1, 0, 1, 500]),
        ("large", "", LARGE, [0, 1, 0, 200]),
        ("gzip", "gzip", LARGE, [1, 1, 1, 900]),
        ("a list", "", "[{\"model\": \"large\"}]", [1, 1, 1, 900]),
        ("null", "", "{\"model\": null, \"max_tokens\": null}", [1, 1, 1, 900]),
        ("empty", "", "", [0, 0, 1, 500]),
    ] {
        let rules = rules(text);
        assert_eq!(asked(&rules, encoding, body).await, 200, "{case}");
        let used = ["small", "large", "others", "tokens"].map(|policy| {
            let limiter = rules.store().limiters().get(policy).expect("the file names it");
            let peek = limiter.peek("everybody").now().ok().and_then(Result::ok);
            let left = peek.expect("memory answers at once").remaining();
            if policy == "tokens" { 10_000 - left } else { 100 - left }
        });
        assert_eq!(used, expected, "{case}");
        for (treatment, status) in
            [("skip", 200), ("415", if expected[3] == 900 && case != "null" { 415 } else { 200 })]
        {
            let rules = self::rules(&text.replace("body: match", &format!("body: {treatment}")));
            assert_eq!(asked(&rules, encoding, body).await, status, "{case} {treatment}");
        }
    }
}

#[tokio::test]
async fn fields_of_the_body_are_keys_conditions_and_reservations() {
    let text = "
version: 1
policies:
  large: { algorithm: fixed-window, quota: 1000/min }
  tokens: { algorithm: fixed-window, quota: 10000/min }
rules:
  - { name: large, only_if: { body: { model: large } }, limit: large, key: everybody }
  - { name: all, limit: tokens, key: body(model), cost: { json: max.tokens, min: 1, max: 900, missing: 500 } }
";
    let rules = rules(text);
    let upstream = service_fn(async |request: Request<PacedBody<ReadBody<Frames>>>| {
        let mut body = request.into_body();
        while next(&mut body).await.is_some() {}
        Ok::<_, Infallible>(Response::new(Frames::default()))
    });
    for body in [
        "{\"model\": \"large\", \"max\": {\"tokens\": 100}}",
        "{\"max\": {\"tokens\": 2000}, \"model\": \"large\"}",
        "{\"model\": \"small\"}",
        "{\"model\": \"larger\", \"max\": {\"tokens\": \"many\"}}",
    ] {
        let asked = Request::new(Frames::from(body));
        let response = rules.layer().reading_requests().layer(upstream).oneshot(asked).await;
        assert_eq!(response.expect("the upstream does not fail").status(), 200);
    }
    let used = |policy: &str, key: &str, quota: u64| {
        let limiter = rules.store().limiters().get(policy).expect("the file names it");
        quota - limiter.peek(key).now().ok().and_then(Result::ok).expect("memory answers at once").remaining()
    };
    assert_eq!(used("large", "everybody", 1_000), 2);
    assert_eq!(["large", "small", "larger"].map(|model| used("tokens", model, 10_000)), [1_000, 500, 900]);
    // A reload reads other fields.
    rules.replace(parse(&text.replace("model: large", "size: large"))).expect("it is good");
    let asked = Request::new(Frames::from("{\"size\": \"large\", \"model\": \"small\"}"));
    rules
        .layer()
        .reading_requests()
        .layer(upstream)
        .oneshot(asked)
        .await
        .expect("the upstream does not fail");
    assert_eq!((used("large", "everybody", 1_000), used("tokens", "small", 10_000)), (3, 1_000));
    // Without a body that is read, nothing is found.
    let explained = rules.explain(&request("/", &[])).await.to_string();
    assert!(explained.contains("large: not asked: field size of the body is missing"), "{explained}");
}

/// Once `Victim` and `victim ` had tries of their own.
#[tokio::test]
async fn a_folded_field_is_one_key_however_it_is_spelled() {
    let rules = rules(
        "
version: 1
policies:
  login: { algorithm: fixed-window, quota: 2/min, overrides: { ada: 4/min } }
rules:
  - { name: all, limit: login, key: folded(body(user)) }
",
    );
    let upstream = service_fn(async |_: Request<PacedBody<ReadBody<Frames>>>| {
        Ok::<_, Infallible>(Response::new(Frames::default()))
    });
    for (spellings, passes) in
        [(["bob", "Bob", " bob", "BOB ", "bob", "bob"], 2), (["ADA", "ada", "Ada ", "ada", "ada", "aDa"], 4)]
    {
        let mut passed = 0;
        for spelling in spellings {
            let asked =
                Request::new(Frames::from(bytes::Bytes::from(format!("{{\"user\": \"{spelling}\"}}"))));
            let response = rules.layer().reading_requests().layer(upstream).oneshot(asked).await;
            passed += usize::from(response.expect("the upstream does not fail").status() == 200);
        }
        assert_eq!(passed, passes, "{spellings:?}");
    }
}
