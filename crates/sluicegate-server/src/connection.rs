//! The lifetime of one connection.

use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use sluicegate_tower::key::PeerAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_service::Service as _;

use crate::bounds::Bounds;
use crate::sending::SendingBody;
use crate::tls::Tls;

/// The longest time that an idle connection may take to close gracefully.
const GRACE: Duration = Duration::from_secs(5);

/// The interval of HTTP/2 pings.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The most concurrent requests of an HTTP/2 connection. Each costs memory before its secret is checked, and until its response is sent.
const STREAMS: u32 = 200;

/// The shortest span in which a response has to be sent, so that a bound of zero does not keep a processor busy.
const SHORTEST_SPAN: Duration = Duration::from_millis(10);

/// Settings that the connections of a listener share.
#[derive(Clone)]
pub(crate) struct ConnectionSettings {
    pub(crate) router: Router,
    pub(crate) tls: Option<Tls>,
    pub(crate) bounds: Bounds,
    pub(crate) is_ending: watch::Receiver<bool>,
}

/// The activity of a connection, for its timeouts.
#[derive(Debug, Default)]
struct Activity {
    in_progress: AtomicUsize,
    /// When the last request ended, if one has come.
    last: Mutex<Option<Instant>>,
    /// The responses that are being sent, from this span of time and from the spans before.
    sending: Mutex<[Arc<()>; 2]>,
}

/// A request in progress, until its response is sent.
struct Busy(Arc<Activity>);

impl ConnectionSettings {
    /// Serves a connection until it ends.
    pub(crate) async fn serve(self, stream: TcpStream, peer: SocketAddr) {
        // Every answer is small. If setting the option fails, the connection is lost, and reading will report it.
        _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.speak(stream, peer).await,
            Some(tls) => {
                let acceptor = tls.acceptor();
                if let Ok(Ok(stream)) = timeout(self.bounds.handshake, acceptor.accept(stream)).await {
                    self.speak(stream, peer).await;
                }
            }
        }
    }

    async fn speak(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static, peer: SocketAddr) {
        let Self { router, bounds, mut is_ending, .. } = self;
        let activity = Arc::<Activity>::default();
        let counted = Arc::clone(&activity);
        let service = service_fn(move |request: Request<Incoming>| {
            let (mut router, busy) = (router.clone(), Busy::new(&counted));
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(PeerAddr(peer));
                let response = router.call(request).await;
                response.map(|response| SendingBody::of(response, || busy.sending()))
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(bounds.idle).max_buf_size(64 * 1024);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(64 * 1024)
            .keep_alive_interval(KEEP_ALIVE);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut look = Instant::now() + bounds.handshake;
        let mut ends = None;
        let span = bounds.request.max(SHORTEST_SPAN);
        let mut next_span = pin!(sleep(span));
        loop {
            tokio::select! {
                // An error is the client's: the connection is over either way.
                _ = connection.as_mut() => return,
                () = sleep_until(ends.unwrap_or(look)) => match ends {
                    Some(_) => return,
                    // No request has come, so there is no answer to wait for.
                    None if activity.has_no_request() => return,
                    None => match activity.open_until(bounds.idle) {
                        Some(until) => look = until,
                        None => {
                            connection.as_mut().graceful_shutdown();
                            ends = Some(Instant::now() + GRACE);
                        }
                    },
                },
                () = next_span.as_mut() => {
                    // The client does not take a response, which would be kept for as long as the connection.
                    if !activity.begin_span() {
                        return;
                    }
                    next_span.set(sleep(span));
                }
                () = ended(&mut is_ending), if ends.is_none() => {
                    connection.as_mut().graceful_shutdown();
                    // From here on the server's drain time ends the connection.
                    ends = Some(Instant::now() + Duration::from_secs(86_400));
                }
            }
        }
    }
}

impl Activity {
    /// Whether no request has come.
    fn has_no_request(&self) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed, as below.
        last.is_none() && self.in_progress.load(Ordering::Relaxed) == 0
    }

    /// When the connection will have been idle for too long; `None` if it already has.
    fn open_until(&self, idle: Duration) -> Option<Instant> {
        let now = Instant::now();
        // Relaxed: a request that comes at this moment is still answered, because the connection closes gracefully.
        if self.in_progress.load(Ordering::Relaxed) > 0 {
            return Some(now + idle);
        }
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|last| last + idle).filter(|until| *until > now)
    }

    /// Begins a span of time. Returns whether all responses from before the span that ends now are sent.
    fn begin_span(&self) -> bool {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let [this, before] = &mut *sending;
        let are_sent = Arc::strong_count(before) == 1;
        mem::swap(this, before);
        are_sent
    }
}

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.in_progress.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }

    /// The request has its response, which is being sent.
    fn sending(self) -> (Self, Arc<()>) {
        let span = Arc::clone(&self.0.sending.lock().unwrap_or_else(PoisonError::into_inner)[0]);
        (self, span)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ready when the server begins to shut down.
pub(crate) async fn ended(is_ending: &mut watch::Receiver<bool>) {
    // Without a sender the server is gone.
    _ = is_ending.wait_for(|is_ending| *is_ending).await;
}
