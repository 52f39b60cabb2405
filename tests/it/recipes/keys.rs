//! The recipes of the page on keys.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::post;
use http::{Method, Request};
use sluicegate::{Limit, Policy, RateLimitExt, RateLimitLayer};
use sluicegate_tests::memory::store;

use super::pasted::keys;
use super::{OK, PEER, REFUSED, ask, passes, status};

const PROXY: [u8; 4] = [10, 0, 0, 1];

type Asked = Request<axum::body::Body>;

fn from(peer: [u8; 4], method: Method, fields: &[(&'static str, &str)]) -> Asked {
    let mut asked = ask(method, "/", fields);
    asked.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 1))));
    asked
}

async fn passed(layer: &RateLimitLayer, asked: impl Iterator<Item = Asked>) -> usize {
    let mut passed = 0;
    for asked in asked {
        passed += usize::from(status(layer, asked, OK).await == OK);
    }
    passed
}

#[tokio::test]
async fn a_client_behind_proxies_is_one_client_whatever_it_writes() {
    let store = store().0;
    let layer = RateLimitLayer::new(keys::behind_a_proxy::per_client(&store).unwrap());
    let forwarded = |peer, list: String| from(peer, Method::GET, &[("x-forwarded-for", &list)]);
    // Two proxies in a row: the outer one appends its client, the inner one the outer one.
    let behind =
        (0..150).map(|number| forwarded(PROXY, format!("203.0.113.{number}, 192.0.2.1, 192.168.7.7")));
    assert_eq!(passed(&layer, behind).await, 100);
    let others = (0..50).map(|number| forwarded(PROXY, format!("198.51.100.{number}")));
    assert_eq!(passed(&layer, others).await, 50);
    let direct = (0..150).map(|number| forwarded([192, 0, 2, 9], format!("203.0.113.{number}")));
    assert_eq!(passed(&layer, direct).await, 100);
}

#[tokio::test]
async fn a_caller_is_an_api_key_for_each_method_and_otherwise_an_address() {
    let store = store().0;
    let caller = Limit::new(Policy::gcra("caller", "1/h").on(&store).unwrap())
        .key(keys::which_key_for_what::caller().unwrap());
    let address = Policy::gcra("address", "30/h").on(&store).unwrap();
    let layer = RateLimitLayer::builder(caller).and(address).build().unwrap();
    let key = |key: &str, peer, method| from(peer, method, &[("x-api-key", key)]);
    for (asked, expected) in [
        (key("one", PEER, Method::GET), OK),
        (key("one", [192, 0, 2, 1], Method::GET), REFUSED),
        (key("one", PEER, Method::POST), OK),
        (key("other", PEER, Method::GET), OK),
        (from(PROXY, Method::GET, &[("x-forwarded-for", "192.0.2.1")]), OK),
        (from([192, 0, 2, 1], Method::GET, &[]), REFUSED),
    ] {
        assert_eq!(status(&layer, asked, OK).await, expected);
    }
    // The address has spent three.
    let invented = (0..100).map(|number| key(&number.to_string(), PEER, Method::GET));
    assert_eq!(passed(&layer, invented).await, 30 - 3);
}

#[tokio::test]
async fn a_user_that_a_layer_around_the_limit_adds_has_a_bucket() {
    let app = keys::a_request_without_a_key::app(&store().0).unwrap();
    assert_eq!(passes(&app, (0..150).map(|_| from(PEER, Method::GET, &[]))).await, 100);
}

#[tokio::test]
async fn a_user_has_five_tries_however_its_name_is_spelled() {
    let (fields, limits) = keys::a_field_of_the_body::logins(&store().0).unwrap();
    let app = Router::new().route("/", post(|body: String| async { body })).rate_limit(limits).layer(fields);
    let login = |user: &&str| {
        let mut asked = ask(Method::POST, "/", &[]);
        *asked.body_mut() = format!(r#"{{"user":"{user}"}}"#).into();
        asked
    };
    assert_eq!(passes(&app, ["ada", "Ada", " ADA", "ada ", "aDa", "ada", "Ada"].iter().map(login)).await, 5);
    assert_eq!(passes(&app, ["bob"; 7].iter().map(login)).await, 5);
    let mut form = ask(Method::POST, "/", &[("content-type", "application/x-www-form-urlencoded")]);
    *form.body_mut() = "password=x&user=+ADA".into();
    assert_eq!(passes(&app, [form].into_iter()).await, 0, "a form is the same user");
}
