//! Forms are answered with a redirect, and the page that it leads to has the result, whichever instance draws it.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::Policy;

use crate::support::{PLANTED, World, get, led_on, send, submit_to};

const PEER: [u8; 4] = [203, 0, 113, 9];

fn location(response: &Response<String>) -> &str {
    assert_eq!(response.status(), StatusCode::SEE_OTHER, "{}", response.body());
    response.headers()["location"].to_str().unwrap()
}

/// A page that was loaded again once did again what its form had done.
#[tokio::test]
async fn a_form_is_answered_with_a_redirect_and_loading_the_result_again_does_nothing_again() {
    let world = World::new();
    let (page, other) = (world.guarded(), world.guarded());
    world.spend(PEER, 5).await;
    let answer = submit_to(&page, "/?theme=dark", "do=reset&policy=login&key=203.0.113.9").await;
    let address = location(&answer);
    assert!(address.starts_with("?theme=dark&result=") && !address.contains("203.0"), "{address}");
    let body = led_on(&page, answer.clone()).await.into_body();
    assert!(body.contains("the key is reset") && body.contains("5 of 5 left"), "{body}");
    assert!(body.contains("data-theme=\"dark\""), "{body}");
    // Another instance shows it as well, and where the key stands by then.
    world.spend(PEER, 5).await;
    for page in [&page, &other] {
        let body = led_on(page, answer.clone()).await.into_body();
        assert!(body.contains("the key is reset") && body.contains("0 of 5 left"), "{body}");
        assert_eq!(world.login.peek(Ipv4Addr::from(PEER)).await.unwrap().remaining(), 0);
    }
    let changed = submit_to(&page, "/", "do=change&policy=login&quota=7%2Fmin").await;
    assert!(location(&changed).starts_with("?result="));
    let body = led_on(&page, changed).await.into_body();
    assert!(body.contains("login: 7/min, by ada"), "{body}");
}

#[tokio::test]
async fn a_result_is_its_operators_for_an_hour_and_tells_nobody_else_what_was_typed() {
    let world = World::new();
    let page = world.guarded();
    world.spend(PEER, 5).await;
    let form =
        format!("do=look-up&request.limits=api&request.path=%2Flogin&request.headers=x-api-key%3A+{PLANTED}");
    let answer = submit_to(&page, "/", &form).await;
    let address = format!("/{}", location(&answer));
    assert!(!address.contains(PLANTED) && !answer.body().contains(PLANTED), "{address}");
    let body = get(&page, &address).await.into_body();
    assert!(body.contains("95 of 100 left") && !body.contains(PLANTED), "{body}");
    let request = Request::get(&address).header("host", "ops.example.org");
    let others = send(&page, request.header("x-operator", "bob"), "").await;
    assert_eq!(others.status(), StatusCode::OK);
    let strangers = send(&page, Request::get(&address).header("host", "ops.example.org"), "").await;
    assert_eq!(strangers.status(), StatusCode::FORBIDDEN);
    let forged = get(&page, &address.replacen("result=", "result=0", 1)).await;
    world.clock.advance(Duration::from_secs(3_600));
    for plain in [others, forged, get(&page, &address).await] {
        assert!(!plain.body().contains("Looked up"), "{}", plain.body());
    }
}

#[tokio::test]
async fn a_result_that_is_too_long_for_an_address_is_said_without_the_key() {
    let world = World::new();
    let page = world.guarded();
    let strict = Policy::gcra("strict", "5/min").suspend(100, "10min", "20min").on(&world.store).unwrap();
    let long = "u".repeat(8_000);
    let suspended = submit_to(&page, "/", &format!("do=suspend&policy=strict&key={long}")).await;
    assert!(location(&suspended).len() < 4_200);
    assert!(led_on(&page, suspended).await.body().contains("the key is suspended"));
    assert!(!strict.peek(&*long).await.unwrap().is_allowed());
    // A look-up does nothing, so that its answer may come at once.
    let found = submit_to(&page, "/", &format!("do=look-up&policy=strict&key={long}")).await;
    assert_eq!(found.status(), StatusCode::OK);
    assert!(found.body().contains("suspended"), "{}", found.body());
}
