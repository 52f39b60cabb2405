//! Looking keys up, and acting on them.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use sluicegate_core::{Policy, Quota};
use sluicegate_tower::key::{HeaderKey, RequestView};
use sluicegate_tower::limits::{Limits, LimitsHandle};
use sluicegate_tower::{Limit, PeerIp};

use crate::support::{ORIGIN, PLANTED, SECRET, World, post, submit};

const PEER: [u8; 4] = [203, 0, 113, 9];

#[tokio::test]
async fn a_key_is_looked_up_by_a_request_that_nobody_sent_as_its_extractors_find_it() {
    let world = World::new();
    let page = world.guarded();
    world.spend(PEER, 5).await;
    let request =
        json!({"limits": "api", "path": "/login", "peer": "203.0.113.9", "headers": {"x-api-key": PLANTED}});
    let (status, found) = post(&page, "/keys/look-up", &json!({ "request": request })).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    assert!(found["would_be"].as_str().unwrap().starts_with("is refused with 429"), "{found}");
    let limits = found["limits"].as_array().unwrap();
    assert_eq!((&limits[0]["policy"], &limits[0]["key"]), (&json!("login"), &json!("203.0.113.9")));
    assert_eq!(limits[0]["quotas"][0]["remaining"], 0);
    assert!(limits[0]["quotas"][0]["back_seconds"].as_u64().unwrap() > 0);
    assert_eq!((&limits[1]["policy"], &limits[1]["quotas"][0]["remaining"]), (&json!("api"), &json!(95)));
    assert!(!found.to_string().contains(PLANTED), "{found}");
    // Nothing was spent by that.
    assert_eq!(world.login.peek(Ipv4Addr::from(PEER)).await.unwrap().remaining(), 0);
    // Elsewhere the address does not count, and the only limits need not be named.
    let (_, found) = post(&page, "/keys/look-up", &json!({"request": {"headers": "x-api-key: other"}})).await;
    assert_eq!(found["limits"][0]["not_asked"], "a condition of it does not hold");
    assert_eq!(found["would_be"], "passes");
}

/// Once a reset of such a key was answered by the numbers of the policy.
#[tokio::test]
async fn a_key_with_own_quotas_is_looked_up_by_these_as_a_request_and_by_the_policy_as_a_key() {
    let world = World::new();
    let plans = Policy::gcra("plans", "5/h").on(&world.store).unwrap();
    let plan =
        |request: RequestView<'_>| request.headers.get("x-plan")?.to_str().ok().map(str::parse::<Quota>);
    let limit = Limit::new(plans).key(HeaderKey::new("x-user").unwrap());
    let limits = Limits::new(limit.quota_by(move |request| plan(request).transpose()));
    let page = world.page().limits("plans", LimitsHandle::new(limits.clone())).guard(|_| Some("ada"));
    let page = page.secret(SECRET).origin(ORIGIN).build().unwrap();
    let headers = json!({"x-user": "acme", "x-plan": "60/h"});
    for _ in 0..20 {
        let request =
            http::Request::get("/").header("x-user", "acme").header("x-plan", "60/h").body(()).unwrap();
        drop(limits.decide(&request).await.unwrap());
    }
    let request = json!({"policy": "plans", "request": {"limits": "plans", "headers": headers}});
    let stands = |found: &serde_json::Value| {
        let limit = &found["limits"][0];
        let quota = &limit["quotas"][0];
        (
            quota["label"].as_str().unwrap().to_owned(),
            quota["remaining"].as_u64().unwrap(),
            limit["note"].is_string(),
        )
    };
    let (_, found) = post(&page, "/keys/look-up", &request).await;
    assert_eq!(stands(&found), ("60/h".to_owned(), 40, false), "{found}");
    let by_key = json!({"policy": "plans", "key": "acme"});
    let (_, found) = post(&page, "/keys/look-up", &by_key).await;
    assert_eq!(stands(&found), ("5/h".to_owned(), 0, true), "{found}");
    let body = submit(&page, "do=look-up&policy=plans&key=acme").await.into_body();
    assert!(
        body.contains("a look-up as a request shows these") && body.contains("1 other quota of keys in use"),
        "{body}"
    );
    let (_, reset) = post(&page, "/keys/reset", &request).await;
    assert_eq!(stands(&reset), ("60/h".to_owned(), 60, false), "{reset}");
}

#[tokio::test]
async fn the_page_answers_a_look_up_and_echoes_nothing_that_was_typed() {
    let world = World::new();
    let page = world.guarded();
    world.spend(PEER, 5).await;
    let form = format!(
        "do=look-up&request.limits=api&request.method=POST&request.path=%2Flogin&request.peer=203.0.113.9&request.headers=x-api-key%3A+{PLANTED}"
    );
    let response = submit(&page, &form).await;
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.body();
    assert!(body.contains("0 of 5 left, back in"), "{body}");
    assert!(!body.contains(PLANTED), "{body}");
    // By policy and key, the key is not shown at all.
    let response = submit(&page, "do=look-up&policy=login&key=203.0.113.9").await;
    assert!(response.body().contains("0 of 5 left, back in"));
    assert!(!response.body().contains("203.0.113.9\""), "no field has it as its value");
    let response = submit(&page, &format!("do=look-up&policy=api&key={PLANTED}")).await;
    assert!(response.body().contains("95 of 100 left"), "{}", response.body());
    assert!(!response.body().contains(PLANTED));
}

#[tokio::test]
async fn a_key_is_reset_by_its_text_by_a_request_and_by_the_word_that_stands_for_it_on_any_instance() {
    let world = World::new();
    let (page, other) = (world.guarded(), world.guarded());
    let remaining = async || world.login.peek(Ipv4Addr::from(PEER)).await.unwrap().remaining();
    let by_text = json!({"policy": "login", "key": "203.0.113.9"});
    let by_request = json!({"policy": "login", "request": {"path": "/login", "peer": "203.0.113.9", "headers": {"x-api-key": PLANTED}}});
    let (_, found) = post(&page, "/keys/look-up", &by_text).await;
    let by_word = json!({ "ref": found["limits"][0]["ref"] });
    for body in [by_text, by_request, by_word] {
        world.spend(PEER, 5).await;
        assert_eq!(remaining().await, 0);
        let (status, found) = post(&other, "/keys/reset", &body).await;
        assert_eq!(
            (status, &found["limits"][0]["quotas"][0]["remaining"]),
            (StatusCode::OK, &json!(5)),
            "{found}"
        );
        assert_eq!(remaining().await, 5);
    }
    // Other keys have what they had.
    world.spend([198, 51, 100, 7], 5).await;
    post(&page, "/keys/reset", &json!({"policy": "login", "key": "203.0.113.9"})).await;
    assert_eq!(world.login.peek(Ipv4Addr::new(198, 51, 100, 7)).await.unwrap().remaining(), 0);
}

#[tokio::test]
async fn a_word_is_read_by_its_own_secret_only() {
    let world = World::new();
    let (_, found) = post(&world.guarded(), "/keys/look-up", &json!({"policy": "login", "key": "ada"})).await;
    let word = found["limits"][0]["ref"].as_str().unwrap();
    for forged in [&word[1..], &word[2..], "", "00", &word.replace(&word[..1], "g")] {
        let (status, answer) = post(&world.guarded(), "/keys/reset", &json!({ "ref": forged })).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
}

#[tokio::test]
async fn text_numbers_and_addresses_are_different_keys() {
    let world = World::new();
    let page = world.guarded();
    let _ = world.login.check("7").await.unwrap();
    let _ = world.login.check(7).cost(2).await.unwrap();
    let _ = world.login.check("203.0.113.9").cost(3).await.unwrap();
    for (key, read_as, left) in [
        ("7", "any", 4),
        ("7", "text", 4),
        ("7", "number", 3),
        ("203.0.113.9", "text", 2),
        ("203.0.113.9", "any", 5),
    ] {
        let body = json!({"policy": "login", "key": key, "as": read_as});
        let (_, found) = post(&page, "/keys/look-up", &body).await;
        assert_eq!(found["limits"][0]["quotas"][0]["remaining"], left, "{body}");
    }
    // Time is the store's.
    world.clock.advance(Duration::from_secs(120));
    let (_, found) = post(&page, "/keys/look-up", &json!({"policy": "login", "key": "7"})).await;
    assert_eq!(found["limits"][0]["quotas"][0]["remaining"], 5);
}

/// The word of a long key was once longer than the page took.
#[tokio::test]
async fn a_key_of_eight_thousand_bytes_is_looked_up_suspended_and_released() {
    let world = World::new();
    let strict = Policy::gcra("strict", "5/min").suspend(100, "10min", "20min").on(&world.store).unwrap();
    let limits = Limits::new(Limit::new(strict.clone()).key(HeaderKey::new("x-user").unwrap()));
    let page = world.page().limits("strict", LimitsHandle::new(limits)).guard(|_| Some("ada"));
    let page = page.secret(SECRET).origin(ORIGIN).build().unwrap();
    let long = "u".repeat(8_000);
    let _ = strict.suspensions().suspend(&*long, Duration::from_secs(600)).await.unwrap();
    let request = json!({"limits": "strict", "headers": {"x-user": long}});
    let (status, found) = post(&page, "/keys/look-up", &json!({ "request": request })).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let word = found["limits"][0]["ref"].as_str().unwrap();
    for (action, said) in [("release", "the key is released"), ("suspend", "the key is suspended")] {
        let response = submit(&page, &format!("do={action}&ref={word}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.body().contains(said), "{}", response.body());
        let is_allowed = strict.peek(&*long).await.unwrap().is_allowed();
        assert_eq!(is_allowed, action == "release");
    }
    // By its text, each byte of which a form may write as three.
    let text = "%75".repeat(8_000);
    let response = submit(&page, &format!("do=release&policy=strict&key={text}")).await;
    assert!(response.body().contains("the key is released"), "{}", response.status());
    assert!(strict.peek(&*long).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_mistake_names_the_field_and_never_what_is_in_it() {
    let world = World::new();
    let page = world.guarded();
    for (body, problem) in [
        (json!({}), "no key is named"),
        (json!({"policy": "login"}), "no key is named"),
        (json!({"policy": "logout", "key": PLANTED}), "no policy named \"logout\""),
        (json!({"policy": "login", "key": PLANTED, "as": "number"}), "the key is not a whole number"),
        (json!({"request": {"limits": "web"}}), "no limits named \"web\""),
        (json!({"request": {"peer": PLANTED}}), "the peer is not an address"),
        (json!({"request": {"headers": PLANTED}}), "a header field is one line each"),
        (
            json!({"request": {"headers": format!("x-api-key: {PLANTED}\u{7f}")}}),
            "the value of a header field is none",
        ),
        (json!({"request": {"path": format!("{PLANTED} x")}}), "the path is none"),
        (json!({"request": {"method": format!("{PLANTED} x")}}), "the method is none"),
        (json!({"key": 7}), "the body cannot be read"),
    ] {
        let (status, answer) = post(&page, "/keys/look-up", &body).await;
        let said = answer["error"].as_str().unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(said.contains(problem) && !said.contains(PLANTED), "{said}");
    }
    let (status, answer) = post(&page, "/keys/reset", &json!({"request": {"path": "/"}})).await;
    assert_eq!(
        (status, answer["error"].as_str().unwrap()),
        (StatusCode::BAD_REQUEST, "say by policy which of the request's keys is meant")
    );
}

#[tokio::test]
async fn a_look_up_says_how_far_a_key_is_from_its_next_suspension() {
    let world = World::new();
    let page = world.guarded();
    let strict = Policy::gcra("strict", "5/min").suspend(100, "10min", "20min").on(&world.store).unwrap();
    for _ in 0..36 {
        let _ = strict.check("ada").await.unwrap();
    }
    let by_key = json!({"policy": "strict", "key": "ada"});
    let (_, found) = post(&page, "/keys/look-up", &by_key).await;
    let strikes = json!({"counted": 31, "of": 100, "suspensions": 0});
    assert_eq!(found["limits"][0]["strikes"], strikes, "{found}");
    let body = submit(&page, "do=look-up&policy=strict&key=ada").await.into_body();
    assert!(body.contains("; strikes 31 of 100") && body.contains(">suspend for 20 min<"), "{body}");
    for _ in 0..70 {
        let _ = strict.check("ada").await.unwrap();
    }
    let body = submit(&page, "do=look-up&policy=strict&key=ada").await.into_body();
    assert!(body.contains("; strikes 0 of 100, suspended once before"), "{body}");
    // Of a request that nobody has sent, those of each key; of a policy that suspends no key there are none.
    let limit = Limit::new(strict).key(HeaderKey::new("x-user").unwrap());
    let limits =
        Limits::builder(limit).and(Limit::new(world.login.clone()).key(PeerIp::new())).build().unwrap();
    let page = world.page().limits("strict", LimitsHandle::new(limits)).guard(|_| Some("ada"));
    let page = page.secret(SECRET).origin(ORIGIN).build().unwrap();
    let request = json!({"limits": "strict", "peer": "203.0.113.9", "headers": {"x-user": "ada"}});
    let (_, found) = post(&page, "/keys/look-up", &json!({ "request": request })).await;
    assert_eq!(found["limits"][0]["strikes"], json!({"counted": 0, "of": 100, "suspensions": 1}), "{found}");
    assert_eq!(found["limits"][1].get("strikes"), None, "{found}");
}
