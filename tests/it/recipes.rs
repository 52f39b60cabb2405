//! The recipes of the pages, as they stand there, behind what an application has around them.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Method, Request, Response, StatusCode};
use sluicegate::{Policy, RateLimitLayer};
use sluicegate_tests::memory::store;
use tower::{Layer, ServiceExt, service_fn};

/// The code of the pages, which `build.rs` has put together.
#[allow(dead_code, reason = "a recipe shows more than a test needs")]
pub(crate) mod pasted {
    include!(concat!(env!("OUT_DIR"), "/recipes.rs"));
}
use pasted::{cookbook, tiers};

const OK: u16 = 200;
const REFUSED: u16 = 429;

pub(crate) const PEER: [u8; 4] = [198, 51, 100, 7];

/// A request as axum's server hands it over, from this address.
pub(crate) fn request(peer: [u8; 4]) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 40_000))));
    request
}

fn with<T: Clone + Send + Sync + 'static>(mut request: Request<Body>, extension: T) -> Request<Body> {
    request.extensions_mut().insert(extension);
    request
}

/// The status of the layer around a service that answers with this one.
async fn status(layer: &RateLimitLayer, request: Request<Body>, inner: u16) -> u16 {
    let service = service_fn(move |_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(inner).unwrap();
        ready(Ok::<_, Infallible>(response))
    });
    layer.layer(service).oneshot(request).await.unwrap().status().as_u16()
}

/// How many of these requests one after the other an application lets pass.
pub(crate) async fn passes(app: &Router, requests: impl Iterator<Item = Request<Body>>) -> usize {
    let mut passed = 0;
    for request in requests {
        passed += usize::from(app.clone().oneshot(request).await.unwrap().status().is_success());
    }
    passed
}

#[tokio::test]
async fn logins_that_fail_count_for_the_user_at_an_address_and_those_that_go_well_do_not() {
    let (store, clock) = store();
    let layer = cookbook::logins::layer(&store).unwrap();
    let attempt = |name: &str| with(request(PEER), cookbook::logins::User(name.to_owned()));
    for _ in 0..20 {
        assert_eq!(status(&layer, attempt("ada"), OK).await, OK);
    }
    for expected in [401, 401, 401, 401, 401, REFUSED] {
        assert_eq!(status(&layer, attempt("ada"), 401).await, expected);
    }
    assert_eq!(
        status(&layer, with(request([192, 0, 2, 1]), cookbook::logins::User("ada".into())), OK).await,
        OK
    );
    clock.advance(Duration::from_secs(15 * 60));
    assert_eq!(status(&layer, attempt("ada"), OK).await, OK);
}

#[tokio::test]
async fn a_list_of_users_is_tried_fifty_times_from_an_address() {
    let (store, _) = store();
    let layer = cookbook::logins::layer(&store).unwrap();
    let mut tried = 0;
    for user in 0..200 {
        let attempt = with(request(PEER), cookbook::logins::User(format!("user-{user}")));
        tried += usize::from(status(&layer, attempt, 401).await == 401);
    }
    assert_eq!(tried, 50);
}

#[tokio::test]
async fn tokens_that_an_answer_has_not_used_come_back() {
    let (store, _) = store();
    let app = cookbook::tokens_of_a_language_model::router(&store).unwrap();
    let prompt = || {
        let mut request = request(PEER);
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, "/complete".parse().unwrap());
        request.headers_mut().insert("x-api-key", "k".parse().unwrap());
        request
    };
    // Of 100,000 a request may use 4,096, and uses 250.
    assert_eq!(passes(&app, (0..500).map(|_| prompt())).await, (100_000 - 4_096) / 250 + 1);
}

#[tokio::test(start_paused = true)]
async fn webhooks_wait_for_the_pace_of_each_receiver() {
    let began = tokio::time::Instant::now();
    cookbook::webhooks_that_must_not_overrun_a_receiver::deliver(&["one", "one", "other", "one"])
        .await
        .unwrap();
    let took = began.elapsed();
    assert!(took > Duration::from_millis(200), "the third to one receiver goes after {took:?}");
}

#[tokio::test]
async fn uploads_begin_ten_at_once_and_a_hundred_an_hour() {
    let (store, clock) = store();
    let app = cookbook::uploads::router(&store).unwrap();
    let upload = || {
        let mut request = request(PEER);
        (*request.method_mut(), *request.uri_mut()) = (Method::PUT, "/files".parse().unwrap());
        request
    };
    assert_eq!(passes(&app, (0..20).map(|_| upload())).await, 10);
    clock.advance(Duration::from_secs(36));
    assert_eq!(passes(&app, (0..20).map(|_| upload())).await, 1);
}

#[tokio::test]
async fn a_user_cannot_use_up_the_share_of_its_tenant() {
    let (store, _) = store();
    let layer = cookbook::tenants_and_the_users_within_them::layer(&store).unwrap();
    let asked = |user: u64| {
        let mut request = with(request(PEER), cookbook::tenants_and_the_users_within_them::User { id: user });
        request.headers_mut().insert("x-tenant", "acme".parse().unwrap());
        request
    };
    for (user, passes) in [(1, 100), (2, 100)] {
        let mut passed = 0;
        for _ in 0..150 {
            passed += usize::from(status(&layer, asked(user), OK).await == OK);
        }
        assert_eq!(passed, passes, "user {user}");
    }
    // What was refused to the first has not been spent of the tenant's.
    let left = Policy::gcra("tenant", "1000/min").on(&store).unwrap().peek("acme").await.unwrap();
    assert_eq!(left.remaining(), 1_000 - 200);
}

#[tokio::test]
async fn a_customer_of_no_requests_is_refused_and_so_is_a_path_for_all() {
    use cookbook::a_customer_who_may_do_nothing::{Customer, layer};
    let (store, _) = store();
    let layer = layer(&store).unwrap();
    let asked = |id: u64, per_hour: u64| with(request(PEER), Customer { id, per_hour });
    assert_eq!(status(&layer, asked(1, 0), OK).await, 402);
    for expected in [OK, OK, REFUSED] {
        assert_eq!(status(&layer, asked(2, 2), OK).await, expected);
    }
    let mut retired = asked(2, 1_000);
    *retired.uri_mut() = "/retired".parse().unwrap();
    assert_eq!(status(&layer, retired, OK).await, 403);
}

#[tokio::test]
async fn one_bucket_is_everybodys_and_no_client_uses_all_of_it() {
    let (store, _) = store();
    let layer = cookbook::one_bucket_for_all::layer(&store).unwrap();
    let mut passed = [0; 20];
    for client in 0..20_u8 {
        for _ in 0..20 {
            let status = status(&layer, request([198, 51, 100, client]), OK).await;
            passed[usize::from(client)] += u32::from(status == OK);
        }
    }
    assert_eq!(passed[..10], [10; 10]);
    assert_eq!(passed[10..], [0; 10]);
}

#[tokio::test]
async fn a_plan_has_a_tenth_for_the_costly_endpoint_and_enterprise_has_no_limit_but_the_address() {
    let layer = tiers::plans::layer().unwrap();
    let asked = |plan: &'static str, key: &str| {
        let mut request = with(request(PEER), plan);
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
        request
    };
    for (plan, passes) in [("free", 10), ("pro", 20), ("enterprise", 200)] {
        let mut passed = 0;
        for _ in 0..200 {
            passed += usize::from(status(&layer, asked(plan, plan), OK).await == OK);
        }
        // By the machine's clock, by which "pro" gains a unit in 600 ms.
        assert!((passes..passes + 10).contains(&passed), "{passed} of {plan}");
    }
    let mut denied = asked("pro", "k");
    denied.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 9], 1))));
    assert_eq!(status(&layer, denied, OK).await, 403);
}

#[tokio::test]
async fn each_customer_has_the_number_of_its_row() {
    use tiers::numbers_per_customer::{Customer, layer};
    let layer = layer().unwrap();
    for (id, per_hour) in [(1, 3), (2, 7)] {
        for number in 0..10 {
            let asked = with(request(PEER), Customer { id, per_hour });
            let expected = if number < per_hour { OK } else { REFUSED };
            assert_eq!(status(&layer, asked, OK).await, expected, "number {number} of {per_hour}");
        }
    }
}

#[tokio::test]
async fn messages_of_a_websocket_are_answered_until_they_come_too_fast() {
    let (store, clock) = store();
    let messages = Policy::gcra("messages", "60/min burst 2").on(&store).unwrap();
    let answer = async || {
        cookbook::messages_of_a_websocket::answer(&messages, "ada", "hello".to_owned()).await.is_some()
    };
    assert_eq!([answer().await, answer().await, answer().await], [true, true, false]);
    clock.advance(Duration::from_secs(1));
    assert_eq!([answer().await, answer().await], [true, false]);
}

/// The responses of as many requests at once; each is under way until its body is dropped.
async fn held(app: &Router, requests: impl Iterator<Item = Request<Body>>) -> Vec<Response<Body>> {
    let mut held = Vec::new();
    for request in requests {
        held.push(app.clone().oneshot(request).await.unwrap());
    }
    held
}

/// A request for this path, of this tenant.
fn of(path: &str, tenant: &'static str) -> Request<Body> {
    Request::get(path).header("x-tenant", tenant).body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_database_pool_has_twenty_queries_at_once_until_more_is_known() {
    let app = cookbook::a_database_pool::router().unwrap();
    let held = held(&app, (0..20).map(|_| of("/orders", "ada"))).await;
    assert!(held.iter().all(|response| response.status() == OK));
    let began = tokio::time::Instant::now();
    let shed = app.clone().oneshot(of("/orders", "ada")).await.unwrap();
    assert_eq!((shed.status().as_u16(), began.elapsed().as_millis()), (503, 100));
    drop(held);
    assert_eq!(app.oneshot(of("/orders", "ada")).await.unwrap().status(), OK);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_has_all_of_a_language_model_gives_way_to_the_next() {
    let app = cookbook::a_backend_that_serves_a_language_model::router().unwrap();
    let post = |tenant| {
        let mut request = of("/complete", tenant);
        *request.method_mut() = Method::POST;
        request
    };
    let mut held = held(&app, (0..8).map(|_| post("greedy"))).await;
    let waiting =
        ["greedy", "greedy", "modest"].map(|tenant| tokio::spawn(app.clone().oneshot(post(tenant))));
    tokio::task::yield_now().await;
    drop(held.pop());
    let [first, _second, modest] = waiting;
    assert_eq!(modest.await.unwrap().unwrap().status(), OK, "it came last, and has the fewest");
    assert!(!first.is_finished());
}

#[tokio::test(start_paused = true)]
async fn an_export_waits_behind_people_and_has_its_tenth() {
    let app = cookbook::batch_jobs_beside_people::router().unwrap();
    let mut held = held(&app, (0..20).map(|_| of("/checkout", "ada"))).await;
    let waiting = ["/export/1", "/export/2", "/export/3", "/checkout"]
        .map(|path| tokio::spawn(app.clone().oneshot(of(path, "ada"))));
    tokio::task::yield_now().await;
    held.truncate(17);
    let [one, two, three, checkout] = waiting;
    for served in [one, two, checkout] {
        assert_eq!(
            served.await.unwrap().unwrap().status(),
            OK,
            "two of twenty are a tenth, and then people come first"
        );
    }
    assert!(!three.is_finished());
}
