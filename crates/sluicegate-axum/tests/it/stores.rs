//! Which store a handler's limit is on, and with whom it shares its buckets.

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, RateLimitStore, rate_limited};
use sluicegate_core::Policy;

use crate::support::{request, send, statuses, store};

#[rate_limited("2/min", name = "login", crate = sluicegate_axum)]
async fn login() {}

#[rate_limited("2/min", name = "login", crate = sluicegate_axum)]
async fn same_policy() {}

mod elsewhere {
    #[sluicegate_axum::rate_limited("2/min", name = "elsewhere.login", crate = sluicegate_axum)]
    pub(crate) async fn login() {}
}

#[tokio::test]
async fn routers_with_stores_of_their_own_count_apart() {
    let app = || Router::new().route("/", get(login)).with_rate_limits(store());
    let (one, other) = (app(), app());
    assert_eq!(statuses(&one, "/", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&other, "/", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&one, "/", 1).await, [429]);
}

#[tokio::test]
async fn routers_on_one_store_count_together() {
    let store = store();
    let app = || Router::new().route("/", get(login)).with_rate_limits(&store);
    let (one, other) = (app(), app());
    assert_eq!(statuses(&one, "/", 2).await, [200, 200]);
    assert_eq!(statuses(&other, "/", 1).await, [429]);
}

#[tokio::test]
async fn handlers_share_buckets_if_their_policies_are_equal_and_only_then() {
    let app = Router::new()
        .route("/login", get(login))
        .route("/same", get(same_policy))
        .route("/elsewhere", get(elsewhere::login))
        .with_rate_limits(store());
    assert_eq!(statuses(&app, "/login", 1).await, [200]);
    assert_eq!(statuses(&app, "/same", 2).await, [200, 429]);
    assert_eq!(statuses(&app, "/elsewhere", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_limiter_of_the_same_policy_sees_what_the_handler_spent() {
    let store = store();
    let app = Router::new().route("/", get(login)).with_rate_limits(&store);
    assert_eq!(statuses(&app, "/", 1).await, [200]);
    let limiter = Policy::gcra("login", "2/min").on(&store).unwrap();
    let peer = std::net::Ipv4Addr::new(198, 51, 100, 1);
    assert_eq!(limiter.peek(peer).await.unwrap().remaining(), 1);
}

#[tokio::test]
async fn of_two_stores_around_a_handler_the_inner_one_counts() {
    let (inner, outer) = (store(), store());
    let app = Router::new()
        .nest("/inner", Router::new().route("/", get(login)).with_rate_limits(&inner))
        .route("/", get(login))
        .with_rate_limits(&outer);
    assert_eq!(statuses(&app, "/inner", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_store_can_be_for_one_route_only() {
    let app = Router::new().route("/", get(login).with_rate_limits(store())).route("/other", get(login));
    assert_eq!(statuses(&app, "/", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/other", 1).await, [500]);
}

/// Clones of a layer, as on every route of a router, make a handler's limit once.
#[tokio::test]
async fn peers_have_buckets_of_their_own_on_every_route() {
    let limits = RateLimitStore::new(store());
    let app = Router::new().route("/a", get(login)).route("/b", get(login)).layer(limits.clone());
    for (path, host, status) in
        [("/a", 1, 200), ("/b", 1, 200), ("/a", 1, 429), ("/a", 2, 200), ("/b", 2, 200), ("/b", 2, 429)]
    {
        assert_eq!(send(&app, request(path, host, None)).await.status, status, "{path} from {host}");
    }
    assert_eq!(format!("{limits:?}"), "RateLimitStore(1)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_first_requests_at_once_exactly_the_limit_gets_through() {
    let app = Router::new().route("/", get(login)).with_rate_limits(store());
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let app = app.clone();
        all.spawn(async move { send(&app, request("/", 1, None)).await.status.as_u16() });
    }
    let statuses = all.join_all().await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
}
