//! The recipes of the cookbook.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use sluicegate::{ClientIp, Limit, Policy, RateLimitLayer};
use sluicegate_tests::memory::{paused_store, store};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::pasted::cookbook;
use super::{OK, PEER, REFUSED, ask, held, passes, request, status, with};

/// The status and the fields of a response, and its body as text.
async fn read(
    app: &axum::Router,
    request: http::Request<axum::body::Body>,
) -> (u16, http::HeaderMap, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_whole_api_holds_a_customer_to_its_plan_and_tells_scripts_of_another_origin() {
    let app = cookbook::a_whole_api::api(&paused_store()).unwrap();
    let origin = ("origin", "https://shop.example.com");
    let ada = [("x-api-key", "of ada"), origin];
    assert_eq!(passes(&app, (0..120).map(|_| ask(Method::GET, "/items", &ada))).await, 100);
    let (status, fields, body) = read(&app, ask(Method::GET, "/items", &ada)).await;
    assert_eq!((status, &*body), (REFUSED, r#"{"error":"too many requests: try again in 1 s"}"#));
    for (name, value) in [
        ("x-ratelimit-limit", "100"),
        ("retry-after", "1"),
        ("cache-control", "no-store"),
        ("content-type", "application/json"),
        ("access-control-allow-origin", origin.1),
    ] {
        assert_eq!(fields[name], value, "{name}");
    }
    let exposed = fields["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("retry-after") && exposed.contains("x-ratelimit-limit"), "{exposed}");

    let preflight = [origin, ("access-control-request-method", "PUT")];
    assert_eq!(passes(&app, (0..2_000).map(|_| ask(Method::OPTIONS, "/files", &preflight))).await, 2_000);
    assert_eq!(passes(&app, (0..2_000).map(|_| ask(Method::GET, "/health", &[]))).await, 2_000);

    let upload = |bytes: &str| ask(Method::PUT, "/files", &[ada[0], ("content-length", bytes)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut statuses = Vec::new();
    for bytes in ["30000000", "30000000", "60000000", "20000000", "1"] {
        statuses.push(read(&app, upload(bytes)).await.0);
    }
    assert_eq!(statuses, [OK, REFUSED, 403, OK, REFUSED]);

    let mut exports = held(&app, (0..2).map(|_| ask(Method::GET, "/exports", &ada))).await;
    let (status, fields, body) = read(&app, ask(Method::GET, "/exports", &ada)).await;
    assert_eq!(status, REFUSED);
    assert!(body.contains("at most 2"), "{body}");
    let exposed = fields["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("retry-after") && exposed.contains("ratelimit"), "{exposed}");
    exports.pop();
    assert_eq!(read(&app, ask(Method::GET, "/exports", &ada)).await.0, OK);
}

#[tokio::test(start_paused = true)]
async fn a_hostile_client_of_a_whole_api_has_one_address_and_one_spelling_of_a_user() {
    let app = cookbook::a_whole_api::api(&paused_store()).unwrap();
    let login = |user: &str, password: &str| {
        let mut request = ask(Method::POST, "/login", &[("content-type", "application/json")]);
        *request.body_mut() = format!(r#"{{"user": "{user}", "password": "{password}"}}"#).into();
        request
    };
    for _ in 0..20 {
        assert_eq!(read(&app, login("victim", "right")).await.0, OK, "what goes well does not count");
    }
    let mut tries = 0;
    for spelling in ["victim", "Victim", "VICTIM", " victim", "victim ", "vIctim", "\\u0076ictim", "viCtim"] {
        tries += usize::from(read(&app, login(spelling, "wrong")).await.0 == 401);
    }
    assert_eq!(tries, 5);
    for user in 0..100 {
        tries += usize::from(read(&app, login(&format!("user-{user}"), "wrong")).await.0 == 401);
    }
    assert_eq!(tries, 50, "of an address, whatever users it tries");
    // Of 600, those that went through have spent 70; refused logins gave theirs back.
    let invented = |number: usize| ask(Method::GET, "/items", &[("x-api-key", &number.to_string())]);
    let mut statuses = std::collections::BTreeMap::new();
    for number in 0..1_000 {
        *statuses.entry(read(&app, invented(number)).await.0).or_insert(0) += 1;
    }
    assert_eq!(statuses, std::collections::BTreeMap::from([(401, 530), (REFUSED, 470)]));
    assert_eq!(read(&app, ask(Method::GET, "/health", &[])).await.0, OK);
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
    let prompt = || ask(Method::POST, "/complete", &[("x-api-key", "k")]);
    // Of 100,000 a request may use 4,096, and uses 250.
    assert_eq!(passes(&app, (0..500).map(|_| prompt())).await, (100_000 - 4_096) / 250 + 1);
}

/// Once a turn too far away was `Ok`, and of 400 events 305 were sent at once.
#[tokio::test(start_paused = true)]
async fn of_400_webhooks_at_once_each_is_sent_at_the_pace_of_its_receiver_or_is_an_error() {
    use cookbook::webhooks_that_must_not_overrun_a_receiver::deliver;
    let (store, _) = store();
    let pace = Policy::leaky_queue("webhooks", "5/s burst 100").on(&store).unwrap();
    let began = tokio::time::Instant::now();
    let events = (0..400).map(|_| deliver(&pace, "one"));
    let (sent, refused): (Vec<_>, Vec<_>) =
        futures_util::future::join_all(events).await.into_iter().partition(Result::is_ok);
    assert_eq!((sent.len(), refused.len()), (100, 300));
    assert_eq!(began.elapsed(), Duration::from_millis(19_800), "the others wait behind the first");
    let error = refused[0].as_ref().unwrap_err().to_string();
    assert_eq!(error, "policy \"webhooks\": the queue is full, and has room in 200 ms");
    deliver(&pace, "other").await.expect("another receiver has a queue of its own");
}

#[tokio::test]
async fn uploads_begin_ten_at_once_and_a_hundred_an_hour() {
    let (store, clock) = store();
    let app = cookbook::uploads::router(&store).unwrap();
    let upload = || ask(Method::PUT, "/files", &[]);
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

#[tokio::test(start_paused = true)]
async fn a_database_pool_has_forty_queries_at_once_until_more_is_known() {
    let app = cookbook::a_database_pool::router().unwrap();
    // Twice the first number, as long as no answer speaks of overload.
    let held = held(&app, (0..40).map(|_| ask(Method::GET, "/orders", &[]))).await;
    assert!(held.iter().all(|response| response.status() == OK));
    let began = tokio::time::Instant::now();
    let shed = app.clone().oneshot(ask(Method::GET, "/orders", &[])).await.unwrap();
    assert_eq!((shed.status().as_u16(), began.elapsed().as_millis()), (503, 100));
    drop(held);
    assert_eq!(app.oneshot(ask(Method::GET, "/orders", &[])).await.unwrap().status(), OK);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_has_all_of_a_language_model_gives_way_to_the_next() {
    let app = cookbook::a_backend_that_serves_a_language_model::router().unwrap();
    let post = |tenant| ask(Method::POST, "/complete", &[("x-tenant", tenant)]);
    let mut held = held(&app, (0..16).map(|_| post("greedy"))).await;
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
    let mut held = held(&app, (0..40).map(|_| ask(Method::GET, "/checkout", &[]))).await;
    let waiting = ["/export/1", "/export/2", "/export/3", "/export/4", "/export/5", "/checkout"]
        .map(|path| tokio::spawn(app.clone().oneshot(ask(Method::GET, path, &[]))));
    tokio::task::yield_now().await;
    held.truncate(35);
    let [one, two, three, four, five, checkout] = waiting;
    for served in [one, two, three, four, checkout] {
        assert_eq!(
            served.await.unwrap().unwrap().status(),
            OK,
            "four of forty are a tenth, and then people come first"
        );
    }
    assert!(!five.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_client_downloads_a_megabyte_a_second_and_all_together_fifty() {
    for (clients, seconds) in [(1, 8), (60, 11)] {
        let app = cookbook::bytes_per_second::router(&paused_store()).unwrap();
        let began = tokio::time::Instant::now();
        let mut downloads = JoinSet::new();
        for client in 0..clients {
            let mut asked = request([198, 51, 100, client]);
            *asked.uri_mut() = "/file".parse().unwrap();
            let response = app.clone().oneshot(asked).await.unwrap();
            downloads.spawn(response.into_body().collect());
        }
        while let Some(body) = downloads.join_next().await {
            assert_eq!(body.unwrap().unwrap().to_bytes().len(), 10_000_000);
        }
        let took = began.elapsed().as_secs_f64();
        assert!((took - f64::from(seconds)).abs() < 0.2, "{clients} clients took {took} s");
    }
}

#[tokio::test]
async fn behind_cloudflare_and_nginx_a_client_is_whom_they_name_and_not_whom_it_names() {
    use cookbook::behind_cloudflare_or_nginx::{cloudflare, nginx};
    let edge = cloudflare(&["173.245.48.0/20"]).unwrap();
    // Cloudflare sets its own field anew, and passes on what the client has written into the other one.
    let by_edge = [[173, 245, 48, 9], [173, 245, 60, 1]];
    assert_eq!(
        buckets(edge.clone(), &by_edge, |_| ["192.0.2.1".to_owned(), "203.0.113.7".to_owned()]).await,
        1
    );
    assert_eq!(buckets(edge.clone(), &by_edge, |n| [format!("192.0.2.{n}"), String::new()]).await, 20);
    // Past it, what a client writes is nothing.
    assert_eq!(buckets(edge, &[PEER], |n| [format!("192.0.2.{n}"), format!("192.0.2.{n}")]).await, 1);

    // nginx appends the address of its client.
    let appended = |n| [format!("192.0.2.{n}"), format!("192.0.2.{n}, 203.0.113.7")];
    assert_eq!(buckets(nginx().unwrap(), &[[127, 0, 0, 1]], appended).await, 1);
    assert_eq!(buckets(nginx().unwrap(), &[PEER], appended).await, 1);
}

/// How many clients twenty requests of these peers are, each with a `CF-Connecting-IP` and an `X-Forwarded-For`.
async fn buckets(key: ClientIp, peers: &[[u8; 4]], fields: impl Fn(usize) -> [String; 2]) -> usize {
    let limit = Limit::new(Policy::gcra("each", "1/h").on(&store().0).unwrap()).key(key);
    let layer = RateLimitLayer::new(limit);
    let mut passed = 0;
    for number in 0..20 {
        let [edge, forwarded] = fields(number);
        let mut asked =
            ask(Method::GET, "/", &[("cf-connecting-ip", &edge), ("x-forwarded-for", &forwarded)]);
        let peer = SocketAddr::from((peers[number % peers.len()], 1));
        asked.extensions_mut().insert(ConnectInfo(peer));
        passed += usize::from(status(&layer, asked, OK).await == OK);
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_call_to_another_api_that_is_refused_waits_as_asked_and_is_made_once_more() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let refuses_the_first = move || {
        let is_first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move { (StatusCode::from_u16(if is_first { REFUSED } else { OK }).unwrap(), [("retry-after", "3")]) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let api = axum::Router::new().route("/", get(refuses_the_first));
    tokio::spawn(async move { axum::serve(listener, api).await });
    let client = cookbook::calls_to_another_api::client().unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(client.get(&url).send().await.unwrap().status(), OK);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(start.elapsed() >= Duration::from_secs(3));
}
