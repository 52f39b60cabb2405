//! Servers on a socket.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::Service;

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Http1,
    /// Over a transport that takes one buffer at a time, as TLS may: hyper copies what it sends.
    Http1Copying,
    Http2,
}

/// A hyper server on a free port, without a router, that lives as long as the test.
pub(crate) async fn serve<S, B>(protocol: Protocol, service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (io, service) = (TokioIo::new(stream), TowerToHyperService::new(service.clone()));
            tokio::spawn(async move {
                // A client that goes away is no failure of the server.
                let _ = match protocol {
                    Protocol::Http1 | Protocol::Http1Copying => {
                        let mut connection = hyper::server::conn::http1::Builder::new();
                        connection.writev(matches!(protocol, Protocol::Http1));
                        connection.serve_connection(io, service).with_upgrades().await
                    }
                    Protocol::Http2 => {
                        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        connection.serve_connection(io, service).await
                    }
                };
            });
        }
    });
    address
}
