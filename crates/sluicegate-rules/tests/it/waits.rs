//! The waits of requests under the rules of a file.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use sluicegate_core::{Key, MemoryStore, Policy};
use sluicegate_rules::Rules;
use sluicegate_tower::{Limit, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::parse;

#[tokio::test]
async fn rules_around_a_layer_tell_the_wait_of_that_layer_as_well() {
    let store = MemoryStore::new();
    let outer = "version: 1\npolicies: { outer: { quota: 1/min } }\nrules: [{ name: outer, limit: outer, key: everybody }]\n";
    let rules = Rules::new(&store, parse(outer)).expect("memory keeps all");
    let inner = Policy::gcra("inner", "1/h").on(&store).expect("memory keeps it");
    let inner = RateLimitLayer::new(Limit::new(inner).key(Key::from("all")));
    let handler =
        service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
    let service = rules.layer().layer(inner.layer(handler));
    let ask = async || service.clone().oneshot(Request::new(String::new())).await.expect("it never fails");
    assert_eq!(ask().await.status(), 200);
    assert_eq!(ask().await.headers()["retry-after"], "3600");
}
