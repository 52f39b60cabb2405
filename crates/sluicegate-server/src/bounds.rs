//! Bounds on the work that a server accepts: [`Bounds`].

use std::time::Duration;

/// Bounds on the work that a server accepts. A request above a bound is refused with the bound in the message, and nothing is decided.
///
/// ```
/// use sluicegate_server::Bounds;
///
/// let mut bounds = Bounds::default();
/// bounds.connections = 10_000;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// Bytes of a request body, or of a message over gRPC. Default: 65,536. Above: 413, or `RESOURCE_EXHAUSTED`.
    pub body: usize,
    /// Calls in one batch. Default: 1,000. Above: 413.
    pub batch: usize,
    /// Descriptors in one call of Envoy's protocol. Default: 16. Above: `RESOURCE_EXHAUSTED`.
    pub descriptors: usize,
    /// Open connections of each listener. Default: 4,096. Above: the new connection gets 503 and is closed.
    pub connections: usize,
    /// Requests in progress at once, each until its response is sent. Default: 10,000. Above: 503, or `RESOURCE_EXHAUSTED`.
    pub requests: usize,
    /// Requests that wait for their turn at once. Default: 1,000. Above: 503.
    pub waiting: usize,
    /// Time for one request, with its body and its wait. Default: 30 s. Above: 408 while the body is missing,
    /// 503 otherwise; `DEADLINE_EXCEEDED` over gRPC. A connection is closed if its client takes longer than this, and at the latest after
    /// twice this time, to take a response.
    pub request: Duration,
    /// Time for the TLS handshake, and time until the first request of a connection. Default: 10 s. Above: the connection is closed.
    pub handshake: Duration,
    /// Time that a connection may be idle between requests. Default: 10 min. Above: the connection is closed.
    pub idle: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body: 64 * 1024,
            batch: 1_000,
            descriptors: 16,
            connections: 4_096,
            requests: 10_000,
            waiting: 1_000,
            request: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(600),
        }
    }
}
