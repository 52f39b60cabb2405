//! What a limit must not do to connections and bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::routing::{any, get};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Frame;
use sluicegate::{Policy, RateLimitExt};
use sluicegate_tests::memory::store;
use tokio::sync::mpsc;

use crate::support::{Client, field, serve, whole};

#[tokio::test]
async fn a_connection_stays_open_after_refusals_with_unread_bodies() {
    let (store, _) = store();
    let limited = any(|| async { "ok" }).rate_limit(Policy::gcra("api", "2/min").on(&store).unwrap());
    let server = serve(Router::new().route("/", limited)).await;
    let mut client = Client::connect(server).await;
    let mut statuses = Vec::new();
    for method in [Method::POST, Method::GET, Method::POST, Method::PUT, Method::GET] {
        statuses.push(client.send(method, "/").await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
}

#[tokio::test]
async fn a_refused_head_request_has_the_fields_and_no_body() {
    let (store, _) = store();
    let limited = get(|| async { "ok" }).rate_limit(Policy::gcra("api", "1/min").on(&store).unwrap());
    let server = serve(Router::new().route("/", limited)).await;
    let mut client = Client::connect(server).await;
    client.get("/").await;
    for _ in 0..2 {
        let refused = client.send(Method::HEAD, "/").await;
        assert_eq!((refused.status(), refused.body().len()), (StatusCode::TOO_MANY_REQUESTS, 0));
        assert_eq!(field(&refused, "retry-after"), "60");
        assert_eq!(field(&refused, "ratelimit"), r#""api";r=0;t=60"#);
    }
}

/// As a shell script may ask; what says nothing, or takes anything, gets JSON.
#[tokio::test]
async fn a_refused_client_that_likes_plain_text_better_gets_one_line_of_it() {
    let (store, _) = store();
    let limited = get(|| async { "ok" }).rate_limit(Policy::gcra("api", "1/min").on(&store).unwrap());
    let mut client = Client::connect(serve(Router::new().route("/", limited)).await).await;
    client.get("/").await;
    for (accept, is_text) in [
        (Some("text/plain"), true),
        (Some("text/plain, */*;q=0.5"), true),
        (Some("*/*"), false),
        (None, false),
    ] {
        let request = Request::get("/");
        let request = accept.into_iter().fold(request, |request, accept| request.header("accept", accept));
        let refused = whole(client.begin_with(request, "").await).await;
        assert_eq!((refused.status(), field(&refused, "retry-after")), (StatusCode::TOO_MANY_REQUESTS, "60"));
        let kind = field(&refused, "content-type");
        if is_text {
            assert_eq!((kind, &refused.body()[..]), ("text/plain; charset=utf-8", LINE), "{accept:?}");
        } else {
            assert_eq!(kind, "application/problem+json", "{accept:?}");
        }
    }
}

const LINE: &[u8] = b"Too many requests: try again in 60 s\n";

/// A body whose frames come when the test sends them.
struct Live(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Live {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

#[tokio::test]
async fn a_streaming_response_reaches_the_client_while_it_is_being_written() {
    let (store, _) = store();
    let (sender, receiver) = mpsc::channel(1);
    let body = Arc::new(Mutex::new(Some(Body::new(Live(receiver)))));
    let stream = get(move || async move { body.lock().unwrap().take().expect("one request is made") });
    let limited = stream.rate_limit(Policy::gcra("live", "10/min").on(&store).unwrap());
    let server = serve(Router::new().route("/", limited)).await;
    let mut client = Client::connect(server).await;
    let mut response = client.begin(Method::GET, "/").await;
    assert_eq!(field(&response, "x-ratelimit-remaining"), "9");
    // The second part is written only after the first has arrived: whoever collects the body first waits forever.
    for part in ["one", "two"] {
        sender.send(part.into()).await.unwrap();
        let frame = response.body_mut().frame().await.expect("a frame").unwrap();
        assert_eq!(frame.into_data().unwrap(), part);
    }
    drop(sender);
    assert!(response.body_mut().frame().await.is_none());
}

#[tokio::test]
async fn a_request_body_reaches_the_handler_behind_two_limits() {
    let (store, _) = store();
    let echo =
        any(|body: Bytes| async move { body }).rate_limit(Policy::gcra("inner", "9/s").on(&store).unwrap());
    let app = Router::new().route("/", echo).rate_limit(Policy::gcra("outer", "9/s").on(&store).unwrap());
    let mut client = Client::connect(serve(app).await).await;
    assert_eq!(client.post("/").await.body(), "a body that nobody has to read");
}
