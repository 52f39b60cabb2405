//! The lifetime of one connection.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use http::header::CONNECTION;
use http::{Extensions, HeaderValue, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use sluicegate_core::support::lock;
use sluicegate_tower::key::PeerAddr;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_service::Service as _;

use crate::app::SendingBody;
use crate::builder::{Bounds, ServeError, ServeErrorKind};
use crate::http::CallProblem;
use crate::places::{Places, RoomRank};
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
    /// Whether only probes are answered.
    pub(crate) is_for_probes: bool,
}

/// The activity of a connection, for its timeouts, and for the choice of one that makes room.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    in_progress: AtomicUsize,
    /// When the last request ended, if one has come.
    last: Mutex<Option<Instant>>,
    /// When the first byte of a head of HTTP/1 came that is not complete.
    head_began: Mutex<Option<Instant>>,
    head_begins: Notify,
    /// The responses that are being sent, from this span of time and from the spans before.
    sending: Mutex<[Arc<()>; 2]>,
    caller: CallerMark,
    makes_room: Notify,
}

/// Whether a caller of this connection was let in: by a secret, or as a named proxy. In the extensions of each request.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerMark(Arc<AtomicBool>);

/// A request in progress, until its response is sent.
struct Busy(Arc<Activity>);

impl ConnectionSettings {
    /// Serves a connection until it ends, or has to make room.
    async fn serve(self, stream: TcpStream, peer: SocketAddr, activity: Arc<Activity>) {
        tokio::select! {
            () = activity.makes_room.notified() => {}
            () = self.accept(stream, peer, &activity) => {}
        }
    }

    async fn accept(self, stream: TcpStream, peer: SocketAddr, activity: &Arc<Activity>) {
        // Every answer is small. If setting the option fails, the connection is lost, and reading will report it.
        _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.speak(stream, peer, activity).await,
            Some(tls) => {
                let acceptor = tls.acceptor();
                if let Ok(Ok(stream)) = timeout(self.bounds.handshake, acceptor.accept(stream)).await {
                    self.speak(stream, peer, activity).await;
                }
            }
        }
    }

    async fn speak(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        peer: SocketAddr,
        activity: &Arc<Activity>,
    ) {
        let Self { router, bounds, mut is_ending, is_for_probes, .. } = self;
        let counted = Arc::clone(activity);
        let service = service_fn(move |request: Request<Incoming>| {
            let (mut router, busy) = (router.clone(), Busy::new(&counted));
            async move {
                if is_for_probes && !is_probe(request.uri().path()) {
                    let mut refusal = CallProblem::temporary(full(&bounds)).into_response();
                    refusal.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    return Ok(SendingBody::of(refusal, || busy.sending()));
                }
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(PeerAddr(peer));
                request.extensions_mut().insert(busy.0.caller.clone());
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
        let stream = TokioIo::new(WatchedStream { stream, activity: Arc::clone(activity), is_http2: None });
        let mut connection = pin!(builder.serve_connection(stream, service));
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
                    // There is no answer to wait for.
                    None if activity.has_no_request() || activity.has_late_head(bounds.handshake) => return,
                    None => match activity.open_until(&bounds) {
                        Some(until) => look = until,
                        None => {
                            connection.as_mut().graceful_shutdown();
                            ends = Some(Instant::now() + GRACE);
                        }
                    },
                },
                () = activity.head_begins.notified() => look = look.min(Instant::now() + bounds.handshake),
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
    fn new() -> Self {
        Self {
            opened: Instant::now(),
            in_progress: AtomicUsize::new(0),
            last: Mutex::default(),
            head_began: Mutex::default(),
            head_begins: Notify::new(),
            sending: Mutex::default(),
            caller: CallerMark::default(),
            makes_room: Notify::new(),
        }
    }

    /// Tells the connection to close.
    pub(crate) fn make_room(&self) {
        self.makes_room.notify_one();
    }

    /// Notes that bytes of HTTP/1 have come.
    fn note_bytes(&self) {
        // Relaxed: bytes of a body that are taken for a head end a connection that is idle ten seconds later.
        if self.in_progress.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut began = lock(&self.head_began);
        if began.is_none() {
            *began = Some(Instant::now());
            self.head_begins.notify_one();
        }
    }

    /// Whether a head takes longer than this time.
    fn has_late_head(&self, longest: Duration) -> bool {
        let began = *lock(&self.head_began);
        began.is_some_and(|began| began.elapsed() >= longest)
    }

    /// The order in which connections make room: strangers first, and of these the longest idle. `None` if it has work to do for a
    /// caller that was let in.
    pub(crate) fn rank(&self) -> Option<RoomRank> {
        let (is_known, is_busy) = (self.caller.is_known(), self.in_progress.load(Ordering::Relaxed) > 0);
        let last = *lock(&self.last);
        (!is_known || !is_busy).then(|| RoomRank { is_known, is_busy, since: last.unwrap_or(self.opened) })
    }

    /// Whether no request has come.
    fn has_no_request(&self) -> bool {
        let last = *lock(&self.last);
        // Relaxed, as below.
        last.is_none() && self.in_progress.load(Ordering::Relaxed) == 0
    }

    /// When the connection will have been idle for too long, or its head will be late; `None` if it already has been idle for too long.
    fn open_until(&self, bounds: &Bounds) -> Option<Instant> {
        let now = Instant::now();
        let idle = if self.caller.is_known() { bounds.idle } else { bounds.idle_stranger };
        // Relaxed: a request that comes at this moment is still answered, because the connection closes gracefully.
        if self.in_progress.load(Ordering::Relaxed) > 0 {
            return Some(now + idle);
        }
        let last = *lock(&self.last);
        let until = last.map(|last| last + idle).filter(|until| *until > now)?;
        let began = *lock(&self.head_began);
        Some(began.map_or(until, |began| until.min(began + bounds.handshake)))
    }

    /// Begins a span of time. Returns whether all responses from before the span that ends now are sent.
    fn begin_span(&self) -> bool {
        let mut sending = lock(&self.sending);
        let [this, before] = &mut *sending;
        let are_sent = Arc::strong_count(before) == 1;
        mem::swap(this, before);
        are_sent
    }
}

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.in_progress.fetch_add(1, Ordering::Relaxed);
        *lock(&activity.head_began) = None;
        Self(Arc::clone(activity))
    }

    /// The request has its response, which is being sent.
    fn sending(self) -> (Self, Arc<()>) {
        let span = Arc::clone(&lock(&self.0.sending)[0]);
        (self, span)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *lock(&self.0.last) = Some(Instant::now());
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CallerMark {
    /// Notes that the caller was let in.
    pub(crate) fn let_in(extensions: &Extensions) {
        // Relaxed, here and below: it orders nothing else.
        if let Some(Self(mark)) = extensions.get() {
            mark.store(true, Ordering::Relaxed);
        }
    }

    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that notes when bytes of HTTP/1 come.
struct WatchedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    /// `None` before the first byte.
    is_http2: Option<bool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() {
            // Only the preface of HTTP/2 begins so.
            let is_http2 =
                *self.is_http2.get_or_insert_with(|| bytes.starts_with(b"PRI") || b"PRI".starts_with(bytes));
            if !is_http2 {
                self.activity.note_bytes();
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Ready when the server begins to shut down.
pub(crate) async fn ended(is_ending: &mut watch::Receiver<bool>) {
    // Without a sender the server is gone.
    _ = is_ending.wait_for(|is_ending| *is_ending).await;
}

// Accepting connections within their bound: [`BoundSocket`].

/// The pause of a listener after it could not accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound socket.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    socket: TcpListener,
    address: SocketAddr,
}

impl BoundSocket {
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let wrong = |error| {
            ServeError::new(ServeErrorKind::Listen, format!("{address} is not available")).because(error)
        };
        let socket = TcpListener::bind(address).await.map_err(wrong)?;
        let address = socket.local_addr().map_err(wrong)?;
        Ok(Self { socket, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections until the server shuts down, and returns those that are still open.
    pub(crate) async fn serve(self, terms: ConnectionSettings) -> JoinSet<()> {
        let mut connections = JoinSet::new();
        let mut places = Places::new(terms.bounds.connections);
        let mut is_ending = terms.is_ending.clone();
        loop {
            tokio::select! {
                () = ended(&mut is_ending) => return connections,
                Some(_) = connections.join_next() => {}
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let activity = Arc::new(Activity::new());
                        let wait = places.wait(&activity);
                        let terms = terms.clone();
                        connections.spawn(async move {
                            match wait.await {
                                Some(place) => {
                                    let terms = ConnectionSettings { is_for_probes: place.is_for_probes, ..terms };
                                    terms.serve(stream, peer, activity).await;
                                }
                                None => turn_away(stream, &terms).await,
                            }
                        });
                    }
                    Err(error) => {
                        // The process may have no file descriptor left: it pauses, because it would spin otherwise.
                        tracing::warn!(%error, "a connection cannot be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

/// Answers in HTTP/1.1 and closes. A client of another protocol sees the connection close.
async fn turn_away(mut stream: TcpStream, terms: &ConnectionSettings) {
    let text = format!("{}\n", full(&terms.bounds));
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    if terms.tls.is_none() {
        _ = timeout(Duration::from_secs(1), stream.write_all(answer.as_bytes())).await;
    }
}

fn full(bounds: &Bounds) -> String {
    format!("{} connections are open, the most that this server accepts", bounds.connections)
}

/// Whether a request with this path is a probe of this server.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz") || path.starts_with("/grpc.health.v1.Health/")
}
