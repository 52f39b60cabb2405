//! The file of rules on the page on gateways.

use axum::Router;
use axum::routing::any;
use http::{Method, StatusCode};
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate_tests::memory::store;
use tower::ServiceExt;

use super::{ask, passes, yaml_under};

const PAGE: &str = include_str!("../../../crates/sluicegate/docs/gateway.md");

#[tokio::test]
async fn each_key_has_twenty_at_once_and_an_address_that_makes_up_keys_a_hundred() {
    let rules = yaml_under(PAGE, "# Ten a second for each user, twenty at once");
    let (store, _clock) = store();
    let file = RulesFile::parse("rules.yaml", rules, &Variables::none()).unwrap();
    let rules = Rules::builder().put(&store, file).unwrap();
    let app = Router::new().fallback(any(|| async { "hello" })).layer(rules.layer());
    let of = |key: String| ask(Method::GET, "/orders", &[("x-api-key", &key)]);
    let nobody = app.clone().oneshot(ask(Method::GET, "/orders", &[])).await.unwrap();
    assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(passes(&app, (0..50).map(|_| of("ada".to_owned()))).await, 20);
    let made_up = (0..500).map(|number| of(format!("key-{number}")));
    assert_eq!(passes(&app, made_up).await, 100 - 20);
}
