//! The client's side: our own pace, and the word of the server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get};
use http::{Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Key, OnOutage, Policy};
use sluicegate_tower::call::CallError;
use sluicegate_tower::outgoing::{OutgoingLayer, RetryAfter};
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::retry::{Policy as RetryPolicy, RetryLayer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{Paused, broken, limiter};

/// The status and the fields of a response.
type Answer = (u16, Vec<(&'static str, &'static str)>);

/// Answers with what it was told to, and then with 200; remembers when it was called.
#[derive(Clone)]
struct Server {
    start: Instant,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    calls: Arc<Mutex<Vec<u64>>>,
}

impl Server {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = answers.into_iter().collect();
        Self { start: Instant::now(), answers: Arc::new(Mutex::new(answers)), calls: Arc::default() }
    }

    /// The whole seconds after the start at which it was called.
    fn calls(&self) -> Vec<u64> {
        self.calls.lock().unwrap().clone()
    }
}

impl Service<Request<()>> for Server {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        self.calls.lock().unwrap().push(self.start.elapsed().as_secs());
        let (status, fields) = self.answers.lock().unwrap().pop_front().unwrap_or((200, Vec::new()));
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(name, value);
        }
        ready(Ok(response.body(()).unwrap()))
    }
}

fn to(host: &str) -> Request<()> {
    Request::get(format!("https://{host}/path")).body(()).unwrap()
}

async fn send<S>(client: &S, host: &str) -> Result<StatusCode, S::Error>
where
    S: Service<Request<()>, Response = Response<()>> + Clone,
{
    Ok(client.clone().oneshot(to(host)).await?.status())
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_all_calls_of_the_host_wait_and_no_others() {
    for status in [429, 503] {
        let server = Server::new([(status, vec![("retry-after", "20")])]);
        let client = OutgoingLayer::new().layer(server.clone());
        assert_eq!(send(&client, "a.example").await.unwrap(), status, "the refusal is handed on");
        assert_eq!(send(&client, "b.example").await.unwrap(), 200);
        assert_eq!(send(&client, "a.example:8443").await.unwrap(), 200, "another port is another server");
        let (one, two) = tokio::join!(send(&client, "a.example"), send(&client, "A.Example:443"));
        assert_eq!((one.unwrap(), two.unwrap()), (StatusCode::OK, StatusCode::OK));
        assert_eq!(server.calls(), [0, 0, 0, 20, 20]);
    }
}

#[tokio::test(start_paused = true)]
async fn when_nothing_is_left_the_next_call_waits() {
    for fields in [
        vec![("ratelimit", r#""x";r=0;t=20"#)],
        vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "20")],
    ] {
        let server = Server::new([(200, fields)]);
        let client = OutgoingLayer::new().layer(server.clone());
        for _ in 0..2 {
            assert_eq!(send(&client, "a.example").await.unwrap(), 200);
        }
        assert_eq!(server.calls(), [0, 20]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_date_is_understood_with_and_without_one_of_the_servers_own() {
    // At the start the clock shows 22:00:00.
    let retry_after = ("retry-after", "Tue, 14 Nov 2023 22:00:20 GMT");
    let later_server = vec![("date", "Tue, 14 Nov 2023 22:00:15 GMT"), retry_after];
    for (fields, expected) in [(vec![retry_after], 20), (later_server, 5)] {
        let server = Server::new([(429, fields)]);
        let client = OutgoingLayer::new().clock(Paused(Instant::now())).layer(server.clone());
        for _ in 0..2 {
            send(&client, "a.example").await.unwrap();
        }
        assert_eq!(server.calls(), [0, expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_fails_at_once() {
    let server = Server::new([(429, vec![("retry-after", "31")])]);
    let client = OutgoingLayer::new().layer(server.clone());
    send(&client, "a.example").await.unwrap();
    let Err(error) = send(&client, "a.example").await else { panic!("it did not fail") };
    assert_eq!(error.to_string(), "the server asked not to be called for another 31s");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(31)));
    assert_eq!((server.calls(), server.start.elapsed()), (vec![0], Duration::ZERO));
    tokio::time::advance(Duration::from_secs(1)).await;
    send(&client, "a.example").await.unwrap();
    assert_eq!(server.calls(), [0, 31]);
}

#[tokio::test(start_paused = true)]
async fn an_absurd_wait_is_capped() {
    let server = Server::new([(429, vec![("retry-after", "99999999999999999999")])]);
    let layer = OutgoingLayer::new().longest_wait(Duration::MAX).heed_up_to(Duration::from_secs(60));
    let client = layer.layer(server.clone());
    for _ in 0..2 {
        send(&client, "a.example").await.unwrap();
    }
    assert_eq!(server.calls(), [0, 60]);
}

/// A moment that the clock cannot represent once was no wait at all.
#[tokio::test(start_paused = true)]
async fn an_absurd_wait_that_is_not_capped_holds_calls_as_any_other() {
    let server = Server::new([(429, vec![("retry-after", "99999999999999999999")])]);
    let client = OutgoingLayer::new().heed_up_to(Duration::MAX).layer(server.clone());
    send(&client, "a.example").await.unwrap();
    let Err(error) = send(&client, "a.example").await else { panic!("it was called") };
    assert!(error.retry_after() > Some(Duration::from_secs(86_400 * 365)), "{error}");
    assert_eq!(server.calls(), [0]);
}

#[tokio::test(start_paused = true)]
async fn clones_of_layer_and_client_heed_the_same_word() {
    let server = Server::new([(429, vec![("retry-after", "20")])]);
    let layer = OutgoingLayer::new();
    let (client, sibling) = (layer.layer(server.clone()), layer.clone().layer(server.clone()));
    send(&client, "a.example").await.unwrap();
    send(&client.clone(), "a.example").await.unwrap();
    send(&sibling, "a.example").await.unwrap();
    assert_eq!(server.calls(), [0, 20, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_ours_spaces_calls_for_each_host() {
    let server = Server::new([]);
    let layer = OutgoingLayer::new().limit(limiter(Policy::gcra("partner", "1/s")));
    let client = layer.longest_wait(Duration::from_secs(2)).layer(server.clone());
    let (a, b, c, d, other) = tokio::join!(
        send(&client, "a.example"),
        send(&client, "a.example"),
        send(&client, "a.example"),
        send(&client, "a.example"),
        send(&client, "b.example"),
    );
    assert!(a.is_ok() && b.is_ok() && c.is_ok() && other.is_ok());
    assert!(matches!(d, Err(CallError::Limited(_))), "its turn would come after the longest wait");
    assert_eq!(server.calls(), [0, 0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn those_who_waited_for_a_server_do_not_all_go_at_once() {
    let server = Server::new([(429, vec![("retry-after", "10")])]);
    let layer = OutgoingLayer::new().limit(limiter(Policy::gcra("partner", "1/s")));
    let client = layer.layer(server.clone());
    send(&client, "a.example").await.unwrap();
    let (a, b, c) =
        tokio::join!(send(&client, "a.example"), send(&client, "a.example"), send(&client, "a.example"));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(server.calls(), [0, 10, 11, 12]);
}

/// The word of the server can come while calls wait for their turn: that turn is of no use then, and is not spent.
#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_while_the_server_wants_peace_is_given_back() {
    let server = Server::new([(429, vec![("retry-after", "3")])]);
    let answering = server.clone();
    let takes_nine_seconds = service_fn(move |request: Request<()>| {
        let mut server = answering.clone();
        async move {
            let response = server.call(request);
            tokio::time::sleep(Duration::from_secs(9)).await;
            response.await
        }
    });
    let limiter = limiter(Policy::gcra("partner", "1/10s"));
    let client = OutgoingLayer::new().limit(limiter).layer(takes_nine_seconds);
    let (first, second) = tokio::join!(send(&client, "a.example"), send(&client, "a.example"));
    assert_eq!((first.unwrap(), second.unwrap()), (StatusCode::TOO_MANY_REQUESTS, StatusCode::OK));
    // Its turn was after 10 s, in vain; had it stayed spent, the next would be after 20.
    assert_eq!(server.calls(), [0, 12]);
}

#[tokio::test(start_paused = true)]
async fn while_our_store_cannot_be_reached_the_policy_decides() {
    for (action, passes) in [(OnOutage::Allow, true), (OnOutage::Deny, false)] {
        let partner = broken(Policy::gcra("partner", "1/s").on_outage(action), false);
        let client = OutgoingLayer::new().limit(partner).layer(Server::new([]));
        assert_eq!(send(&client, "a.example").await.is_ok(), passes);
    }
}

/// Tries up to three times, at once.
#[derive(Clone)]
struct AtOnce(usize);

impl RetryPolicy<Request<()>, Response<()>, CallError<Infallible>> for AtOnce {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<()>,
        result: &mut Result<Response<()>, CallError<Infallible>>,
    ) -> Option<Ready<()>> {
        let refused =
            result.as_ref().is_ok_and(|response| response.status() == StatusCode::TOO_MANY_REQUESTS);
        self.0 += 1;
        (refused && self.0 < 3).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<()>) -> Option<Request<()>> {
        Some(request.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_around_it_waits_for_as_long_as_the_server_wants() {
    let refusal = |seconds| (429, vec![("retry-after", seconds)]);
    let server = Server::new([refusal("5"), refusal("7")]);
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(AtOnce(0)))
        .layer(OutgoingLayer::new())
        .service(server.clone());
    assert_eq!(send(&client, "a.example").await.unwrap(), 200);
    assert_eq!(server.calls(), [0, 5, 12]);
}

/// A client that waits for the other side, and a server that says how long.
#[tokio::test]
async fn a_real_client_is_told_by_a_real_server() {
    let served = Arc::new(AtomicUsize::new(0));
    let handler = {
        let served = Arc::clone(&served);
        move || async move { served.fetch_add(1, Ordering::Relaxed).to_string() }
    };
    let per_hour = Limit::new(limiter(Policy::fixed_window("api", "2/h"))).key(Key::from("everybody"));
    let app = Router::new().route("/", get(handler)).layer(RateLimitLayer::new(per_hour));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let layer = OutgoingLayer::reading(
        |request: &reqwest::Request| request.url().host_str().unwrap_or_default().to_owned(),
        |response: &reqwest::Response| (response.status(), response.headers()),
    );
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut client = ServiceBuilder::new().layer(layer.longest_wait(Duration::from_millis(1))).service(http);
    let request = || reqwest::Request::new(reqwest::Method::GET, url.parse().unwrap());
    for expected in ["0", "1"] {
        let response = client.ready().await.unwrap().call(request()).await.unwrap();
        assert_eq!(response.text().await.unwrap(), expected);
    }
    // The second response said that nothing is left: the third call is not even made.
    let error = client.ready().await.unwrap().call(request()).await.unwrap_err();
    assert!(matches!(&error, CallError::HeldOff(wait) if wait.as_secs() <= 3_600), "{error}");
    assert_eq!(served.load(Ordering::Relaxed), 2);
}

/// What a server under test was sent: the bodies of its calls.
type Sent = Arc<Mutex<Vec<String>>>;

/// A server that refuses with this `Retry-After` until it has refused this often, and a client of reqwest.
async fn refusing(times: usize, retry_after: &'static str) -> (String, Sent) {
    let sent = Sent::default();
    let seen = Arc::clone(&sent);
    let app = Router::new().route(
        "/",
        any(move |body: String| async move {
            seen.lock().unwrap().push(body);
            let refuses = seen.lock().unwrap().len() <= times;
            let status = if refuses { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            (status, [("retry-after", retry_after)])
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, sent)
}

fn reqwest_with(retry: Option<RetryAfter>, layer: OutgoingLayer) -> ClientWithMiddleware {
    let client = ClientBuilder::new(reqwest::Client::builder().no_proxy().build().unwrap());
    match retry {
        Some(retry) => client.with(retry).with(layer).build(),
        None => client.with(layer).build(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_reqwest_is_used_as_ever_and_waits_as_the_server_asks() {
    let (url, sent) = refusing(1, "20").await;
    let client = reqwest_with(None, OutgoingLayer::new());
    let start = Instant::now();
    for expected in [429, 200] {
        assert_eq!(client.get(&url).send().await.unwrap().status(), expected);
    }
    assert!(start.elapsed() >= Duration::from_secs(20));
    assert_eq!(sent.lock().unwrap().len(), 2);
}

/// The key is that of other clients, so that they share one limit.
#[tokio::test]
async fn reqwest_has_our_limit_for_each_host_and_port_and_an_error_that_says_so() {
    let limiter = limiter(Policy::gcra("partner", "1/h"));
    let client = reqwest_with(None, OutgoingLayer::new().limit(limiter.clone()));
    let (url, sent) = refusing(0, "0").await;
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    let error = client.get(&url).send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error}") };
    assert!(matches!(error.downcast_ref(), Some(CallError::<Infallible>::Limited(_))), "{error}");
    assert_eq!(sent.lock().unwrap().len(), 1);
    let (other, _) = refusing(0, "0").await;
    assert_eq!(client.get(&other).send().await.unwrap().status(), 200, "another port is another server");
    let same_host = OutgoingLayer::new().limit(limiter).longest_wait(Duration::ZERO).layer(Server::new([]));
    let request = Request::get(&url).body(()).unwrap();
    assert!(same_host.oneshot(request).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_of_reqwest_is_made_once_more_within_the_bound() {
    let minute = Duration::from_secs(60);
    for (refusals, retry_after, expected, calls) in [
        (0, "0", 200, 1),
        (1, "20", 200, 2),
        (1, "0", 200, 2),
        (2, "20", 429, 2),
        (1, "61", 429, 1),
        (1, "soon", 429, 1),
    ] {
        let (url, sent) = refusing(refusals, retry_after).await;
        let client = reqwest_with(Some(RetryAfter::up_to(minute)), OutgoingLayer::new());
        let start = Instant::now();
        let response = client.post(&url).body("order 7").send().await.unwrap();
        assert_eq!(response.status(), expected, "{refusals} {retry_after}");
        assert_eq!(*sent.lock().unwrap(), vec!["order 7"; calls], "{refusals} {retry_after}");
        assert!(calls == 1 || retry_after == "0" || start.elapsed() >= Duration::from_secs(20));
    }
}

/// The most calls of any second at a partner that is reached by a network whose ways differ by up to 100 ms. A partner that counts in
/// windows from second to second sees no more.
async fn most_in_a_second(policy: PolicyBuilder) -> usize {
    let client = OutgoingLayer::new().limit(limiter(policy)).longest_wait(Duration::from_secs(60));
    let arrivals_us = Arc::new(Mutex::new(Vec::new()));
    let (start, seen_us) = (Instant::now(), Arc::clone(&arrivals_us));
    let partner = service_fn(move |_: Request<()>| {
        let mut arrivals_us = seen_us.lock().unwrap();
        // The slowest way for the first calls, the fastest for those after them, and so on.
        let jitter_us = if arrivals_us.len() / 5 % 2 == 0 { 99_999 } else { 0 };
        arrivals_us.push(start.elapsed().as_micros() + jitter_us);
        ready(Ok::<_, Infallible>(Response::new(())))
    });
    let client = client.layer(partner);
    for calls in [1, 7, 30, 12] {
        let calls = (0..calls).map(|_| send(&client, "a"));
        for status in futures_util::future::join_all(calls).await {
            status.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1_730)).await;
    }
    let arrivals_us = arrivals_us.lock().unwrap();
    let within =
        |first: &u128| arrivals_us.iter().filter(|at| (*first..*first + 1_000_000).contains(at)).count();
    arrivals_us.iter().map(within).max().unwrap()
}

/// The example once said "never more than ten a second" of a quota that lets 11 pass.
#[tokio::test(start_paused = true)]
async fn a_partner_that_allows_ten_a_second_sees_no_more_with_room_for_the_jitter() {
    for safe in [Policy::gcra("a", "10/1100ms burst 1"), Policy::sliding_log("a", "10/1100ms")] {
        assert_eq!(most_in_a_second(safe).await, 10);
    }
    for unsafe_quota in ["10/s burst 2", "10/s"] {
        assert!(most_in_a_second(Policy::gcra("a", unsafe_quota)).await > 10, "{unsafe_quota}");
    }
}
