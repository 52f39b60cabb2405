//! Limits on a hyper server without a router: what they must not do to connections, streams and bodies.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sluicegate_core::{Key, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::respond::Refusal;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tower::{Layer, ServiceBuilder, service_fn};

use crate::support::{Protocol, limiter, serve};

/// Sends requests over one connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub(crate) async fn connect(address: std::net::SocketAddr, protocol: Protocol) -> Self {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        match protocol {
            Protocol::Http1 | Protocol::Http1Copying => {
                let (client, connection) = http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                Self::Http1(client)
            }
            Protocol::Http2 => {
                let (client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
                tokio::spawn(connection);
                Self::Http2(client)
            }
        }
    }

    pub(crate) async fn send(&mut self, body: Bytes) -> Response<Incoming> {
        let request = Request::post("http://localhost/").body(Full::new(body)).unwrap();
        match self {
            Self::Http1(client) => {
                client.ready().await.unwrap();
                client.send_request(request).await.unwrap()
            }
            Self::Http2(client) => client.send_request(request).await.unwrap(),
        }
    }
}

/// Answers with the body of the request.
fn echo(request: Request<Incoming>) -> Ready<Result<Response<Incoming>, Infallible>> {
    ready(Ok(Response::new(request.into_body())))
}

/// Where a refusal has a body of another type than the handler's.
fn no_body<B>(_: &Refusal<'_>) -> Response<B> {
    unreachable!("nothing is refused here")
}

#[tokio::test]
async fn large_bodies_go_both_ways_and_the_connection_stays_open() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let in_flight = InFlight::new("requests", 1).unwrap();
        let rate = Limit::new(limiter(Policy::fixed_window("api", "9/h"))).key(Key::from("all"));
        let rate = RateLimitLayer::builder(rate).respond(no_body).build().unwrap();
        let in_flight = InFlightLayer::new(in_flight).key(Key::from("all")).respond(no_body);
        let service = ServiceBuilder::new().layer(in_flight).layer(rate).service_fn(echo);
        let mut client = Client::connect(serve(protocol, service).await, protocol).await;
        for left in ["8", "7", "6"] {
            let body = Bytes::from(vec![7; 300_000]);
            let response = client.send(body.clone()).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["x-ratelimit-remaining"], left);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
        }
    }
}

#[tokio::test]
async fn refusals_leave_the_connection_open() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let rate = Limit::new(limiter(Policy::fixed_window("api", "2/h"))).key(Key::from("all"));
        let service = ServiceBuilder::new()
            .layer(InFlightLayer::new(InFlight::new("requests", 1).unwrap()).key(Key::from("all")))
            .layer(RateLimitLayer::new(rate))
            .service_fn(|_: Request<Incoming>| ready(Ok(Response::new(Full::new(Bytes::from("ok"))))));
        let mut client = Client::connect(serve(protocol, service).await, protocol).await;
        let mut statuses = Vec::new();
        for _ in 0..4 {
            let response = client.send(Bytes::from_static(b"nobody reads this")).await;
            statuses.push(response.status().as_u16());
            response.into_body().collect().await.unwrap();
        }
        assert_eq!(statuses, [200, 200, 429, 429]);
    }
}

/// A body that the test fills, and that says when it is dropped.
struct Live {
    frames: mpsc::Receiver<Frame<Bytes>>,
    _dropped: oneshot::Sender<()>,
}

impl HttpBody for Live {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// What the test knows of a [`Live`] body.
struct Hand {
    frames: mpsc::Sender<Frame<Bytes>>,
    dropped: oneshot::Receiver<()>,
}

fn live() -> (Live, Hand) {
    let ((sender, frames), (_dropped, dropped)) = (mpsc::channel(4), oneshot::channel());
    (Live { frames, _dropped }, Hand { frames: sender, dropped })
}

#[tokio::test]
async fn streams_of_one_connection_count_until_they_end_or_are_reset() {
    let in_flight = InFlight::new("streams", 2).unwrap();
    let hands = Arc::new(Mutex::new(Vec::new()));
    let streams = {
        let hands = Arc::clone(&hands);
        service_fn(move |_: Request<Incoming>| {
            let (body, hand) = live();
            hands.lock().unwrap().push(hand);
            ready(Ok::<_, Infallible>(Response::new(body.boxed())))
        })
    };
    let refuse = |refusal: &Refusal<'_>| {
        let mut response = Response::new(Full::default().boxed());
        *response.status_mut() = refusal.status();
        response
    };
    let layer = InFlightLayer::new(in_flight.clone()).key(Key::from("all")).respond(refuse);
    let address = serve(Protocol::Http2, layer.layer(streams)).await;
    let mut client = Client::connect(address, Protocol::Http2).await;

    let (mut first, second) = (client.send(Bytes::new()).await, client.send(Bytes::new()).await);
    assert_eq!([first.status(), second.status()], [StatusCode::OK; 2]);
    assert_eq!(client.send(Bytes::new()).await.status(), StatusCode::TOO_MANY_REQUESTS);

    // A client that resets its stream gives its place up.
    let mut reset = hands.lock().unwrap().pop().unwrap();
    drop(second);
    (&mut reset.dropped).await.unwrap_err();
    assert_eq!(in_flight.in_use("all"), 1);

    // One that reads to the end, trailers and all, does so too.
    let hand = hands.lock().unwrap().pop().unwrap();
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))]);
    for frame in [Frame::data(Bytes::from_static(b"part")), Frame::trailers(trailers.clone())] {
        hand.frames.send(frame).await.unwrap();
    }
    let body = first.body_mut().collect().await.unwrap();
    assert_eq!(body.trailers(), Some(&trailers));
    assert_eq!(body.to_bytes(), "part");
    hand.dropped.await.unwrap_err();
    assert_eq!((in_flight.in_use("all"), in_flight.keys()), (0, 0));
}
