//! The lifetime of one connection.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, mem};

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use sluicegate_tower::key::PeerAddr;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use crate::app::SendingBody;
use crate::builder::{Bounds, ServeError, ServeErrorKind};

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
        let places = Arc::new(Semaphore::new(terms.bounds.connections));
        let mut is_ending = terms.is_ending.clone();
        loop {
            tokio::select! {
                () = ended(&mut is_ending) => return connections,
                Some(_) = connections.join_next() => {}
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => match Arc::clone(&places).try_acquire_owned() {
                        Ok(place) => {
                            let connection = terms.clone().serve(stream, peer);
                            connections.spawn(async move {
                                connection.await;
                                drop(place);
                            });
                        }
                        Err(_) => turn_away(&mut connections, stream, &terms),
                    },
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
fn turn_away(connections: &mut JoinSet<()>, mut stream: TcpStream, terms: &ConnectionSettings) {
    let text =
        format!("{} connections are open, the most that this server accepts\n", terms.bounds.connections);
    let is_plain = terms.tls.is_none();
    connections.spawn(async move {
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        if is_plain {
            _ = timeout(Duration::from_secs(1), stream.write_all(answer.as_bytes())).await;
        }
    });
}

// Certificates: [`Tls`].

/// The certificate of a server, and the authority of its clients' certificates.
///
/// The program has to install a rustls crypto provider before, for example with
/// `rustls::crypto::ring::default_provider().install_default()`.
#[derive(Clone)]
pub struct Tls(Arc<TlsFiles>);

struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_authority: Option<PathBuf>,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads a certificate chain and its private key from PEM files. With `client_authority`, clients have to show a certificate that one of
    /// the authorities in that file has signed.
    ///
    /// # Errors
    /// When a file cannot be read or parsed, when key and certificate do not belong together, and when no crypto provider is installed.
    pub fn read(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        client_authority: Option<PathBuf>,
    ) -> Result<Self, ServeError> {
        let (certificate, key) = (certificate.into(), key.into());
        let config = read_config(&certificate, &key, client_authority.as_deref())?;
        let config = ArcSwap::from_pointee(config);
        Ok(Self(Arc::new(TlsFiles { certificate, key, client_authority, config })))
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// As [`read`](Self::read); the former certificates stay in use.
    pub fn reload(&self) -> Result<(), ServeError> {
        let TlsFiles { certificate, key, client_authority, config } = &*self.0;
        config.store(Arc::new(read_config(certificate, key, client_authority.as_deref())?));
        Ok(())
    }

    /// Whether clients have to show a certificate.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.0.client_authority.is_some()
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.config.load_full())
    }
}

fn read_config(
    certificate: &Path,
    key: &Path,
    client_authority: Option<&Path>,
) -> Result<ServerConfig, ServeError> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(wrong(
            "no crypto provider of rustls is installed: call rustls::crypto::ring::default_provider().install_default() first",
        ));
    }
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong(format!("{}: it has no private key", key.display())).because(error))?;
    let builder = match client_authority {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| {
                    wrong(format!("{}: a certificate in it is not usable as an authority", path.display()))
                        .because(error)
                })?;
            }
            let verifier = WebPkiClientVerifier::builder(roots.into()).build().map_err(|error| {
                wrong(format!("{}: client certificates cannot be verified with it", path.display()))
                    .because(error)
            })?;
            ServerConfig::builder().with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, private).map_err(|error| {
        wrong(format!("{} and {} do not belong together", certificate.display(), key.display()))
            .because(error)
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(wrong(format!("{}: it has no PEM certificate", path.display()))),
        Err(error) => {
            Err(wrong(format!("{}: its certificates cannot be read", path.display())).because(error))
        }
    }
}

fn wrong(problem: impl Into<std::borrow::Cow<'static, str>>) -> ServeError {
    ServeError::new(ServeErrorKind::Tls, problem)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("certificate", &self.0.certificate)
            .field("client_authority", &self.0.client_authority)
            .finish_non_exhaustive()
    }
}
