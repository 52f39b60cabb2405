//! The recipes of the page on waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use futures_util::future::join_all;
use http::header::{COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use sluicegate::{Policy, RateLimitLayer, RedisStore};
use sluicegate_tests::memory::{paused_store, store};
use sluicegate_tests::servers::Server;
use tokio::time::Instant;
use tower::ServiceExt;

use super::pasted::{getting_started, migration, waiting};
use super::{OK, PEER, REFUSED, ask, behind, held, passes, request, statuses};

const SECRET: &[u8] = b"a secret of sixteen bytes, or more";

#[tokio::test(start_paused = true)]
async fn of_four_hundred_uploads_at_once_those_wait_that_come_within_five_seconds() {
    let app = behind(waiting::opening::layer(&paused_store()).unwrap());
    let began = Instant::now();
    let fates = statuses(&app, (0..400).map(|_| request(PEER))).await;
    assert_eq!(fates, BTreeMap::from([(OK, 11), (REFUSED, 389)]));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

/// What became of twenty calls of each of two tasks: how many were admitted, the errors of the others, and how long it took.
async fn two_tasks<F: Future<Output = Result<(), String>> + Send + 'static>(
    call: impl Fn() -> F,
) -> (usize, BTreeSet<String>, Duration) {
    let began = Instant::now();
    let tasks = [(); 2].map(|()| tokio::spawn(join_all((0..20).map(|_| call()).collect::<Vec<_>>())));
    let (mut admitted, mut errors) = (0, BTreeSet::new());
    for task in tasks {
        for result in task.await.unwrap() {
            match result {
                Ok(()) => admitted += 1,
                Err(error) => _ = errors.insert(error),
            }
        }
    }
    (admitted, errors, began.elapsed())
}

/// The other recipes that wait outside of a layer; [`super::cookbook`] has that of the webhooks.
#[tokio::test(start_paused = true)]
async fn two_tasks_on_one_limiter_have_a_turn_or_an_error_that_says_why() {
    let store = paused_store();
    let mail = Policy::gcra("mail", "3/h").on(&store).unwrap();
    let mails = two_tasks(move || {
        let mail = mail.clone();
        async move {
            let sent = getting_started::a_limit_without_http::send(&mail, "ada").await;
            sent.map_err(|error| error.to_string())
        }
    });
    let error = "policy \"mail\": a turn would come in 1200 s, and the longest wait is 5 s".to_owned();
    assert_eq!(mails.await, (3, BTreeSet::from([error]), Duration::ZERO));

    let user = Policy::gcra("user", "10/s burst 20").on(&store).unwrap();
    let calls = two_tasks(move || {
        let user = user.clone();
        async move {
            let ready = migration::governor::until_ready(&user, "ada").await;
            ready.map_err(|error| error.to_string())
        }
    });
    assert_eq!(calls.await, (40, BTreeSet::new(), Duration::from_secs(2)));
}

/// The recipes that wait in a layer, and are limiters on their page.
#[tokio::test(start_paused = true)]
async fn forty_requests_at_once_wait_for_as_many_turns_as_the_queue_of_a_recipe_has() {
    let store = paused_store();
    let [nodelay, queue, partly] = migration::nginx_limit_req::limiters(&store).unwrap();
    let reports = migration::resilience4j::reports(&store).unwrap();
    for (limiter, passed, waited_ms) in [(nodelay, 21, 0), (queue, 21, 2_000), (partly, 21, 1_200)] {
        let (app, began) = (behind(RateLimitLayer::new(limiter)), Instant::now());
        let fates = statuses(&app, (0..40).map(|_| request(PEER))).await;
        assert_eq!(fates, BTreeMap::from([(OK, passed), (REFUSED, 40 - passed)]));
        assert_eq!(began.elapsed(), Duration::from_millis(waited_ms));
    }
    // Ten in this period and, as it ends within the longest wait, ten in the next one.
    tokio::time::advance(Duration::from_millis(400)).await;
    let fates = statuses(&behind(RateLimitLayer::new(reports)), (0..40).map(|_| request(PEER))).await;
    assert_eq!(fates, BTreeMap::from([(OK, 20), (REFUSED, 20)]));
}

#[tokio::test]
async fn a_handler_that_waits_for_five_seconds_serves_two_tasks_of_a_key_as_one() {
    let app = getting_started::a_limit_where_the_handler_is::router();
    let upload = || ask(Method::POST, "/upload", &[("x-api-key", "ada")]);
    // Two of ten units a minute for each; the next turn is farther away than the wait.
    let fates = statuses(&app, (0..40).map(|_| upload())).await;
    assert_eq!(fates, BTreeMap::from([(OK, 5), (REFUSED, 35)]));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_wait_in_a_layer_and_the_next_one_is_503_at_once() {
    let app = behind(waiting::opening::layer(&paused_store()).unwrap());
    // Of each address one passes, and ten may wait.
    let asked = (0..11).flat_map(|_| (0..150).map(|client| request([198, 51, 100, client])));
    let fates = statuses(&app, asked).await;
    assert_eq!(fates, BTreeMap::from([(OK, 150 + 1_000), (503, 500)]));
}

#[tokio::test]
async fn bandwidth_counts_bytes_and_refuses_no_request() {
    let (store, _) = store();
    let app = waiting::bytes_a_second::router(&store).unwrap();
    for response in held(&app, (0..1_000).map(|_| ask(Method::GET, "/file", &[]))).await {
        assert_eq!(response.status(), OK);
        response.into_body().collect().await.unwrap();
    }
    let downloads = Policy::gcra("downloads", "1MB/s burst 2MB").on(&store).unwrap();
    let left = downloads.peek(IpAddr::from(PEER)).await.unwrap();
    assert_eq!(left.remaining(), 2_000_000 - 1_000 * "a long file".len() as u64);
}

#[tokio::test(start_paused = true)]
async fn an_address_has_two_downloads_at_once() {
    let app = waiting::at_most_n_at_once::router().unwrap();
    let invented =
        |number: u32| ask(Method::GET, "/file", &[("x-forwarded-for", &format!("192.0.2.{number}"))]);
    let mut downloads = held(&app, (0..2).map(invented)).await;
    assert_eq!(passes(&app, (0..20).map(invented)).await, 0);
    downloads.pop();
    assert_eq!(passes(&app, (0..20).map(invented)).await, 20, "each ends before the next one begins");
}

#[tokio::test(start_paused = true)]
async fn the_fourth_import_waits_for_one_of_three_to_end() {
    use waiting::at_most_n_at_once_2::{import, imports};
    let imports = imports(&paused_store()).unwrap();
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(imports.acquire("acme").await.unwrap());
    }
    let fourth = import(&imports);
    tokio::pin!(fourth);
    tokio::time::timeout(Duration::from_secs(120), &mut fourth).await.unwrap_err();
    permits.pop();
    fourth.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_checkout_goes_before_an_export() {
    let app = waiting::the_service_is_the_limit::router().unwrap();
    let mut running = held(&app, (0..40).map(|_| ask(Method::GET, "/checkout", &[]))).await;
    let [export, checkout] =
        ["/export", "/checkout"].map(|path| tokio::spawn(app.clone().oneshot(ask(Method::GET, path, &[]))));
    tokio::task::yield_now().await;
    running.pop();
    assert_eq!(checkout.await.unwrap().unwrap().status(), OK);
    assert!(!export.is_finished());
}

/// The status of a visit, and the cookie that it brings.
async fn visit(app: &axum::Router, cookie: Option<&str>, forwarded: &str) -> (u16, Option<String>) {
    let mut visit = ask(Method::GET, "/", &[("x-forwarded-for", forwarded)]);
    if let Some(cookie) = cookie {
        visit.headers_mut().insert(COOKIE, cookie.parse().unwrap());
    }
    let response = app.clone().oneshot(visit).await.unwrap();
    let cookie = response.headers().get(SET_COOKIE).map(|cookie| {
        let cookie = cookie.to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    });
    (response.status().as_u16(), cookie)
}

#[tokio::test]
async fn a_sale_has_five_places_for_an_address_before_it_opens_and_lets_visitors_in_then() {
    let hour = Duration::from_secs(3_600);
    let sale = waiting::a_waiting_room::shop(SystemTime::now() + hour, SECRET).unwrap();
    let mut places = 0;
    for number in 0..50 {
        let (status, cookie) = visit(&sale, None, &format!("192.0.2.{number}")).await;
        assert_eq!(status, 503);
        places += usize::from(cookie.is_some());
    }
    assert_eq!(places, 5);

    let open = waiting::a_waiting_room::shop(SystemTime::now() - hour, SECRET).unwrap();
    let (status, pass) = visit(&open, None, "").await;
    assert_eq!(status, OK);
    let pass = pass.expect("a visitor that enters has a pass");
    assert_eq!(visit(&open, Some(&pass), "").await.0, OK);
}

#[tokio::test]
async fn instances_share_the_line_of_a_sale_and_its_tickets() {
    let server = Server::start();
    let redis = RedisStore::connect(&server.url()).unwrap();
    redis.connected(Duration::from_secs(5)).await.unwrap();
    let room = || waiting::a_waiting_room_2::room(&redis, SECRET).unwrap();
    let layers = [room(), room()].map(sluicegate::overflow::WaitingRoomLayer::new);
    let [first, second] = layers.map(|layer| {
        axum::Router::new().route("/", axum::routing::get(|| async { "the shop" })).layer(layer)
    });
    let (status, pass) = visit(&first, None, "").await;
    assert_eq!(status, OK);
    assert_eq!(visit(&second, pass.as_deref(), "").await, (OK, None));
}

#[tokio::test]
async fn a_sale_in_a_file_gives_out_places_and_other_paths_have_the_limit() {
    let app = waiting::a_waiting_room_in_a_rules_file::shop(SECRET).unwrap();
    let get = app.clone().oneshot(ask(Method::GET, "/shop/shoes", &[])).await.unwrap();
    assert!(get.headers().contains_key(SET_COOKIE), "a visitor has a place, or is in if the sale has begun");
    let post = app.clone().oneshot(ask(Method::POST, "/shop/shoes", &[])).await.unwrap();
    assert_eq!(post.status(), StatusCode::SERVICE_UNAVAILABLE, "only a GET takes a place");
    let elsewhere = statuses(&app, (0..150).map(|_| ask(Method::GET, "/about", &[]))).await;
    let refused = elsewhere[&REFUSED];
    assert!((45..=55).contains(&refused), "{elsewhere:?}");
}

/// The JSON of a response.
async fn json(response: Response<Body>) -> Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn orders_beyond_two_a_second_are_done_later_and_their_owner_learns_the_result() {
    let app = waiting::work_that_may_be_done_later::shop(&paused_store(), SECRET).unwrap();
    let order = |number: usize| {
        let mut order =
            ask(Method::POST, "/orders", &[("x-api-key", "ada"), ("idempotency-key", &number.to_string())]);
        *order.body_mut() = Body::from("x".repeat(number));
        app.clone().oneshot(order)
    };
    let mut jobs = Vec::new();
    for number in 1..=10 {
        let response = order(number).await.unwrap();
        match response.status() {
            StatusCode::OK => assert!(number <= 2),
            status => {
                assert_eq!(status, StatusCode::ACCEPTED);
                jobs.push((number, response.headers()[LOCATION].to_str().unwrap().to_owned()));
            }
        }
    }
    assert_eq!(jobs.len(), 8);
    // Repeated, an order is the job that it was.
    assert_eq!(order(3).await.unwrap().headers()[LOCATION], *jobs[0].1);

    let look = |path: &str, key: &str| app.clone().oneshot(ask(Method::GET, path, &[("x-api-key", key)]));
    let began = Instant::now();
    for (number, path) in &jobs {
        let standing = loop {
            let response = look(path, "ada").await.unwrap();
            let wait = response.headers().get(RETRY_AFTER).cloned();
            let standing = json(response).await;
            let Some(wait) = wait.filter(|_| standing["state"] == "waiting") else { break standing };
            tokio::time::sleep(Duration::from_secs(wait.to_str().unwrap().parse().unwrap())).await;
        };
        assert_eq!(standing["result"], format!("{number} bytes, with thanks"));
    }
    assert!(began.elapsed() >= Duration::from_secs(4), "eight at two a second took {:?}", began.elapsed());
    assert_eq!(look(&jobs[0].1, "eve").await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_makes_up_keys_does_not_fill_the_queue_of_orders() {
    let app = waiting::work_that_may_be_done_later::shop(&paused_store(), SECRET).unwrap();
    let made_up = (0..500).map(|number| ask(Method::POST, "/orders", &[("x-api-key", &number.to_string())]));
    assert_eq!(statuses(&app, made_up).await, BTreeMap::from([(OK, 2), (202, 58), (REFUSED, 440)]));
}
