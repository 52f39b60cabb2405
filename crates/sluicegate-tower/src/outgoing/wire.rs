//! The parts of requests and responses that the layer reads: [`Wire`].

use http::header::HOST;
use http::{HeaderMap, Request, Response, StatusCode};
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;

/// Reads the server of a request, and the head of the response.
///
/// [`HttpWire`] does so for the types of the `http` crate;
/// [`OutgoingLayer::reading`](crate::outgoing::OutgoingLayer::reading) takes two closures for the types of a client.
pub trait Wire<Req, Res>: Send + Sync + 'static {
    /// The key of the server: calls with the same key share a hold.
    fn key(&self, request: &Req) -> Key;

    /// The status and the fields of a response.
    fn head<'a>(&self, response: &'a Res) -> (StatusCode, &'a HeaderMap);
}

/// Requests and responses of the `http` crate, and with the feature `reqwest` of that client, by host and port.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct HttpWire;

impl<B, ResB> Wire<Request<B>, Response<ResB>> for HttpWire {
    fn key(&self, request: &Request<B>) -> Key {
        let uri = request.uri();
        let port = match (uri.port_u16(), uri.scheme_str()) {
            (Some(port), _) => port,
            (None, Some("http")) => 80,
            (None, _) => 443,
        };
        if let Some(host) = uri.host() {
            return host_key(host, port);
        }
        match request.headers().get(HOST).and_then(|host| host.to_str().ok()) {
            Some(host) => Key::from(host.to_ascii_lowercase()).of_kind(KeyKind::Name),
            None => Key::shared(),
        }
    }

    fn head<'a>(&self, response: &'a Response<ResB>) -> (StatusCode, &'a HeaderMap) {
        (response.status(), response.headers())
    }
}

/// The key of a server.
pub(super) fn host_key(host: &str, port: u16) -> Key {
    Key::from((host.to_ascii_lowercase(), u64::from(port))).of_kind(KeyKind::Name)
}

/// Two closures that read requests and responses.
pub(super) struct WireFn<K, H> {
    pub(crate) key: K,
    pub(crate) head: H,
}

impl<K, H, Req, Res, Q> Wire<Req, Res> for WireFn<K, H>
where
    K: Fn(&Req) -> Q + Send + Sync + 'static,
    Q: Into<Key>,
    H: Fn(&Res) -> (StatusCode, &HeaderMap) + Send + Sync + 'static,
{
    fn key(&self, request: &Req) -> Key {
        (self.key)(request).into()
    }

    fn head<'a>(&self, response: &'a Res) -> (StatusCode, &'a HeaderMap) {
        (self.head)(response)
    }
}
