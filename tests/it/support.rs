//! A server on a port of its own, and clients that speak HTTP/1.1 to it over connections they keep.

use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use http::request::Builder;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};

/// Serves with the peer address in every request, as the documentation says, for as long as the runtime lives.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await.expect("the server runs") });
    address
}

/// Serves as those do who forgot the peer address.
pub(crate) async fn serve_without_peer_address(app: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await.expect("the server runs") });
    address
}

/// One connection.
pub(crate) struct Client(SendRequest<Full<Bytes>>);

impl Client {
    pub(crate) async fn connect(server: SocketAddr) -> Self {
        Self::connect_from([127, 0, 0, 1], server).await
    }

    /// Connects from another address of this machine: a different peer.
    pub(crate) async fn connect_from(own: [u8; 4], server: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((own, 0).into()).expect("all of 127.0.0.0/8 is this machine");
        let stream = socket.connect(server).await.expect("the server listens");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("the server speaks HTTP/1.1");
        tokio::spawn(connection);
        Self(sender)
    }

    /// The response as it begins.
    pub(crate) async fn begin(&mut self, method: Method, path: &str) -> Response<Incoming> {
        let request = Request::builder().method(method).uri(path);
        self.begin_with(request, "a body that nobody has to read").await
    }

    /// The response to a request with this body, as it begins.
    pub(crate) async fn begin_with(
        &mut self,
        request: Builder,
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let request = request.header("host", "localhost").body(Full::new(body.into())).unwrap();
        self.0.ready().await.expect("the connection is kept");
        self.0.send_request(request).await.expect("the server answers")
    }

    /// The whole response.
    pub(crate) async fn send(&mut self, method: Method, path: &str) -> Response<Bytes> {
        whole(self.begin(method, path).await).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response<Bytes> {
        self.send(Method::GET, path).await
    }

    pub(crate) async fn post(&mut self, path: &str) -> Response<Bytes> {
        self.send(Method::POST, path).await
    }
}

/// Of two requests at once, the response of the one that comes to its turn first; the client of the other leaves then.
pub(crate) async fn first_of_two(server: SocketAddr, method: Method, path: &str) -> Response<Bytes> {
    let (mut one, mut other) = (Client::connect(server).await, Client::connect(server).await);
    tokio::select! {
        response = one.send(method.clone(), path) => response,
        response = other.send(method, path) => response,
    }
}

/// The response with all of its body.
pub(crate) async fn whole(response: Response<Incoming>) -> Response<Bytes> {
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, body.collect().await.expect("the body arrives").to_bytes())
}

/// A field that is there exactly once.
pub(crate) fn field<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    let values: Vec<_> = response.headers().get_all(name).iter().collect();
    let [value] = values[..] else { panic!("{name} is there {} times", values.len()) };
    value.to_str().unwrap()
}

/// The numbers of the fields, in a row: limit, remaining, reset.
pub(crate) fn numbers<B>(response: &Response<B>) -> [u64; 3] {
    ["limit", "remaining", "reset"]
        .map(|name| field(response, &format!("x-ratelimit-{name}")).parse().unwrap())
}
