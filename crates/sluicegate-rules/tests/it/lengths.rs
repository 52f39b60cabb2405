//! Costs that are the length of a request's body.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tests::frames::{Frames, data};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{error, parse, rules};

const TEXT: &str = "
version: 1
policies: { bytes: { quota: 100/h } }
rules: [{ name: all, limit: bytes, key: header(x-user), cost: { bytes: request, min: 10, max: 60 } }]
";

type AnyBody = UnsyncBoxBody<Bytes, &'static str>;

/// A body whose length is not stated.
fn chunked(bytes: usize) -> AnyBody {
    let body = vec![b'x'; bytes];
    let frames: Vec<_> = body.chunks(7).map(|piece| data(piece.to_vec())).collect();
    Frames::new(frames).boxed_unsync()
}

fn stated(bytes: usize) -> AnyBody {
    Full::new(Bytes::from(vec![b'x'; bytes])).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// The units that are left to a new user after this request, whose body the service gets whole.
async fn left(rules: &Rules, user: &str, (name, value): (&str, &str), body: AnyBody) -> String {
    let reads = service_fn(async |request: Request<_>| {
        let body = BodyExt::collect(request.into_body()).await.expect("it is whole").to_bytes();
        Ok::<_, Infallible>(Response::new(Full::new(body)))
    });
    let request = Request::post("/").header("x-user", user).header(name, value).body(body);
    let layer = rules.layer().reading_requests();
    let response = layer.layer(reads).oneshot(request.expect("it is a request")).await.expect("it answers");
    let left = response.headers()["x-ratelimit-remaining"].to_str().expect("it is a number").to_owned();
    format!("{left} after {}", response.into_body().collect().await.expect("it is whole").to_bytes().len())
}

#[tokio::test]
async fn a_request_costs_the_length_of_its_body_whether_it_is_stated_or_not() {
    let rules = rules(TEXT);
    let (plain, gzip) = (("x-none", "1"), ("content-encoding", "gzip"));
    for (user, header, body, expected) in [
        ("stated", plain, stated(30), "70 after 30"),
        ("chunked", plain, chunked(30), "70 after 30"),
        ("compressed", gzip, chunked(30), "70 after 30"),
        ("compressed and stated", gzip, stated(30), "70 after 30"),
        ("short", plain, chunked(3), "90 after 3"),
        ("empty", plain, stated(0), "90 after 0"),
        ("empty and chunked", plain, chunked(0), "90 after 0"),
        ("long", plain, chunked(80), "40 after 80"),
        ("longer than is read", plain, chunked(300_000), "40 after 300000"),
    ] {
        assert_eq!(left(&rules, user, header, body).await, expected, "{user}");
    }
    rules
        .replace(parse(&TEXT.replace("{ bytes: request, min: 10, max: 60 }", "1")))
        .expect("memory keeps it");
    assert_eq!(left(&rules, "next file", plain, chunked(30)).await, "99 after 30");
}

#[tokio::test]
async fn without_a_body_the_head_states_its_length_and_in_doubt_it_costs_the_most() {
    let rules = rules(TEXT);
    for (method, header, expected) in [
        (Method::POST, ("content-length", "30"), 30),
        (Method::POST, ("content-length", "70"), 60),
        (Method::POST, ("content-length", "many"), 60),
        (Method::POST, ("x-none", "1"), 60),
        (Method::GET, ("x-none", "1"), 10),
        (Method::GET, ("transfer-encoding", "chunked"), 60),
    ] {
        let request = Request::builder().method(&method).uri("/").header(header.0, header.1).body(());
        let explained = rules.explain(&request.expect("it is a request")).await.to_string();
        assert!(explained.contains(&format!("asks {expected} of bytes")), "{method} {header:?}: {explained}");
    }
}

#[test]
fn a_cost_in_two_places_or_of_nothing_is_told() {
    for (cost, expected) in [
        ("bytes: response, min: 1, max: 9", "\"response\" is not counted in bytes here"),
        ("bytes: request, min: 1, max: 9, missing: 1", "\"missing\" says nothing of a length"),
        ("bytes: request, json: n, min: 1, max: 9", "the cost is in one place of a request"),
        ("header: x-n, min: 1, max: 9", "\"missing\" is missing here"),
    ] {
        let text = TEXT.replace("bytes: request, min: 10, max: 60", cost);
        let told = error(RulesFile::parse("rules.yaml", &text, &Variables::none()));
        assert!(told.contains(expected), "{cost}: {told}");
    }
}
