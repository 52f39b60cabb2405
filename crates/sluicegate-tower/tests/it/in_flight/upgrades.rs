//! Connections that change their protocol: they pass untouched, and count for as long as they live.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sluicegate_core::{Key, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::{HeldPermit, InFlightLayer};
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};
use tower::{Layer, ServiceBuilder, ServiceExt};

use super::kinds;
use crate::support::{Body, Protocol, limiter, serve};

/// Who owns the permit while the connection lives.
#[derive(Clone, Copy)]
enum Keeps {
    /// The task owns the whole request, as hyper's own examples do.
    Request,
    /// The task took the permit out of the request, as a handler of a framework would.
    Permit,
}

/// Accepts a websocket, and sends back what comes.
async fn accept(
    mut request: Request<Incoming>,
    keeps: Keeps,
    closed: mpsc::Sender<()>,
) -> Result<Response<Body>, Infallible> {
    let accepted = derive_accept_key(request.headers()[SEC_WEBSOCKET_KEY].as_bytes());
    let task = match keeps {
        Keeps::Request => tokio::spawn(async move {
            echo(hyper::upgrade::on(&mut request).await.unwrap()).await;
        }),
        Keeps::Permit => {
            let permit = request.extensions_mut().remove::<HeldPermit>();
            let upgrade = request.extensions_mut().remove::<OnUpgrade>().unwrap();
            tokio::spawn(async move {
                let _permit = permit;
                echo(upgrade.await.unwrap()).await;
            })
        }
    };
    tokio::spawn(async move {
        task.await.unwrap();
        closed.send(()).await.unwrap();
    });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, accepted);
    Ok(response.body(Full::<Bytes>::default()).unwrap())
}

async fn echo(connection: hyper::upgrade::Upgraded) {
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() {
            socket.send(message).await.unwrap();
        }
    }
}

async fn open(server: SocketAddr) -> Result<WebSocketStream<TcpStream>, Error> {
    let stream = TcpStream::connect(server).await.unwrap();
    Ok(tokio_tungstenite::client_async(format!("ws://{server}/"), stream).await?.0)
}

#[tokio::test]
async fn a_websocket_passes_and_counts_until_it_is_closed() {
    let ways = [Keeps::Request, Keeps::Permit].map(|keeps| kinds("sockets", 1).map(|kind| (keeps, kind)));
    for (keeps, sockets) in ways.into_iter().flatten() {
        let (sender, mut closed) = mpsc::channel(4);
        let rate = Limit::new(limiter(Policy::fixed_window("api", "9/h"))).key(Key::from("all"));
        let service = ServiceBuilder::new()
            .layer(InFlightLayer::new(sockets.clone()).key(Key::from("all")))
            .layer(RateLimitLayer::new(rate))
            .service_fn(move |request| accept(request, keeps, sender.clone()));
        let server = serve(Protocol::Http1, service).await;

        let mut socket = open(server).await.unwrap();
        for text in ["one", "two"] {
            socket.send(Message::text(text)).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
        }
        assert_eq!(sockets.in_use("all"), 1, "the response is long over");
        let Err(Error::Http(refused)) = open(server).await else { panic!("a second one is too many") };
        if sockets.is_adaptive() {
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        } else {
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(refused.headers()["ratelimit"], r#""sockets";r=0"#);
        }

        socket.close(None).await.unwrap();
        closed.recv().await.unwrap();
        assert_eq!(sockets.in_use("all"), 0);
        open(server).await.unwrap();
    }
}

#[tokio::test]
async fn only_requests_for_an_upgrade_carry_their_permit() {
    let layer = InFlightLayer::new(InFlight::new("requests", 9).unwrap()).key(Key::from("all"));
    let carries = tower::service_fn(|request: Request<()>| async move {
        let permit = request.extensions().get::<HeldPermit>();
        let text =
            permit.map_or_else(|| "none".to_owned(), |permit| format!("{:?}", permit.permit().in_flight()));
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
    });
    let service = layer.layer(carries);
    for (request, expected) in [
        (Request::get("/"), "none"),
        (Request::get("/").header(UPGRADE, "websocket"), "none"),
        (Request::post("/").header(UPGRADE, "websocket").header(CONNECTION, "upgrade"), "none"),
        (
            Request::get("/").header(UPGRADE, "websocket").header(CONNECTION, "keep-alive, Upgrade"),
            "InFlight(requests: 9 at once)",
        ),
        (Request::connect("example.org:443"), "InFlight(requests: 9 at once)"),
    ] {
        let response = service.clone().oneshot(request.body(()).unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, expected);
    }
}

/// What lasts longer than its response keeps the permit that the framework hands it.
#[tokio::test]
async fn an_axum_handler_can_keep_its_permit() {
    type Kept = Arc<Mutex<Vec<HeldPermit>>>;
    async fn keep(State(kept): State<Kept>, permit: Option<Extension<HeldPermit>>) -> &'static str {
        kept.lock().unwrap().extend(permit.map(|Extension(permit)| permit));
        "kept"
    }
    let (kept, tunnels) = (Kept::default(), InFlight::new("tunnels", 1).unwrap());
    let app = Router::new().route("/", get(keep)).with_state(kept.clone());
    let app = app.layer(InFlightLayer::new(tunnels.clone()).key(Key::from("all")));
    let ask = || {
        Request::get("/")
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "tunnel")
            .body(axum::body::Body::empty())
            .unwrap()
    };
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(app.clone().oneshot(ask()).await.unwrap().status(), status);
    }
    kept.lock().unwrap().clear();
    assert_eq!(app.oneshot(ask()).await.unwrap().status(), StatusCode::OK);
}

/// A limit by address and one for all: a connection counts in both for as long as it lives.
#[tokio::test]
async fn an_upgrade_behind_two_layers_keeps_both_permits() {
    let [outer, inner] = ["outer", "inner"].map(|name| InFlight::new(name, 9).unwrap());
    let switching = tower::service_fn(|_: Request<()>| async {
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
    });
    let kept = Arc::new(Mutex::new(None));
    let keeper = Arc::clone(&kept);
    let keeping = tower::service_fn(move |mut request: Request<()>| {
        *keeper.lock().unwrap() = request.extensions_mut().remove::<HeldPermit>();
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let layer = |in_flight: &InFlight| InFlightLayer::new(in_flight.clone()).key(Key::from("all"));
    let in_use = || [outer.in_use("all"), inner.in_use("all")];
    let ask = || Request::get("/").header(CONNECTION, "upgrade").header(UPGRADE, "tunnel").body(()).unwrap();

    let service = ServiceBuilder::new().layer(layer(&outer)).layer(layer(&inner)).service(keeping);
    drop(service.oneshot(ask()).await.unwrap());
    assert_eq!(in_use(), [1, 1], "the handler keeps what its request carried");
    assert_eq!(kept.lock().unwrap().as_ref().unwrap().permit().in_flight().name(), "inner");
    kept.lock().unwrap().take();
    assert_eq!(in_use(), [0, 0]);

    let service = ServiceBuilder::new().layer(layer(&outer)).layer(layer(&inner)).service(switching);
    let (mut head, body) = service.oneshot(ask()).await.unwrap().into_parts();
    drop(body);
    let permit = head.extensions.remove::<HeldPermit>();
    assert_eq!(in_use(), [1, 1], "whoever has the connection keeps what the response carried");
    drop(permit);
    assert_eq!(in_use(), [0, 0]);
}
