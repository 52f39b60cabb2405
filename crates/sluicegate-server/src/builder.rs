//! Building a server: [`ServerBuilder`].

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_observed::Observed;
use sluicegate_rules::Rules;
use sluicegate_status::StatusPage;
use sluicegate_tower::key::Networks;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::app::{App, Charge, Ready, Render, ask_store, describe_metrics};
use crate::asks::Access;
use crate::connection::{BoundSocket, ConnectionSettings};
use crate::receipt::{ReceiptTokens, random};
use crate::tls::Tls;
use crate::{grpc, http};

/// The shortest secret, in bytes.
const LEAST_SECRET: usize = 16;

/// Settings of a server; made by [`Server::builder`].
#[must_use = "a builder does nothing until `bind` is called"]
pub struct ServerBuilder {
    rules: Rules,
    http: SocketAddr,
    grpc: Option<SocketAddr>,
    charge: Charge,
    tls: Option<Tls>,
    secrets: Vec<String>,
    proxies: Vec<String>,
    receipt_secret: Option<Vec<u8>>,
    receipt_lifetime: Duration,
    is_insecure: bool,
    observed: Option<Observed>,
    hosts: Vec<String>,
    instance: Option<String>,
    metrics: Option<Render>,
    bounds: Bounds,
    drain: Duration,
}

impl Server {
    /// Starts the settings of a server with these rules. To let callers check policies that no rule uses, build the rules with
    /// [`open_all_policies`](sluicegate_rules::RulesBuilder::open_all_policies).
    pub fn builder(rules: Rules) -> ServerBuilder {
        ServerBuilder {
            rules,
            http: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            grpc: None,
            charge: Charge::default(),
            tls: None,
            secrets: Vec::new(),
            proxies: Vec::new(),
            receipt_secret: None,
            receipt_lifetime: Duration::from_secs(900),
            is_insecure: false,
            observed: None,
            hosts: Vec::new(),
            instance: None,
            metrics: None,
            bounds: Bounds::default(),
            drain: Duration::from_secs(10),
        }
    }
}

impl ServerBuilder {
    /// Sets the address of the HTTP listener. Default: `127.0.0.1:8080`. Port 0 takes a free port.
    pub fn http(mut self, address: SocketAddr) -> Self {
        self.http = address;
        self
    }

    /// Sets the address of a listener for [Envoy's rate limit service](crate#envoys-rate-limit-service) over gRPC. Default: none. Port 0 takes a
    /// free port.
    pub fn grpc(mut self, address: SocketAddr) -> Self {
        self.grpc = Some(address);
        self
    }

    /// Sets which descriptors of a call spend if one of them is over its limit. Default: [`Charge::AllOrNone`].
    pub fn charge(mut self, charge: Charge) -> Self {
        self.charge = charge;
        self
    }

    /// Serves TLS. Default: plain text.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Adds a secret that callers have to show, as `Authorization: Bearer` or as the password of the status page. Several secrets may be
    /// set, so that one can be rotated. Default: none, and every caller is let in.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Adds a network of proxies, such as `10.0.0.0/8` or `127.0.0.1`: they may ask [at `/proxy`](crate#proxies), without a secret, and their
    /// description of a request is trusted. Default: none.
    pub fn proxy(mut self, network: impl ToString) -> Self {
        self.proxies.push(network.to_string());
        self
    }

    /// Sets the secret that signs receipts and the forms of the status page. Instances that share a store need the same secret. Default: the
    /// first [`secret`](Self::secret) of callers, who may give back units anyway; without one, random bytes, so that no other instance
    /// accepts this instance's receipts.
    pub fn receipt_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.receipt_secret = Some(secret.into());
        self
    }

    /// Sets how long a receipt is valid. Default: 15 min.
    pub fn receipt_lifetime(mut self, time: Duration) -> Self {
        self.receipt_lifetime = time;
        self
    }

    /// Allows a listener that other machines can reach, with neither a secret nor client certificates. Default: `bind` refuses it.
    pub fn insecure_open(mut self) -> Self {
        self.is_insecure = true;
        self
    }

    /// Serves the status page of this store at `/status`. With a [`secret`](Self::secret), visitors log in with it as the password and can
    /// change things; without one the page is read-only.
    pub fn status(mut self, observed: &Observed) -> Self {
        self.observed = Some(observed.clone());
        self
    }

    /// Adds a host name that the status page may be visited under, such as `limits.example.org`. Default: the listener's address and `localhost`.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Sets the name of this instance on its status page. Default: the variable `HOSTNAME`.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Serves the rendered text at `/metrics`. Default: 404.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Box::new(render));
        self
    }

    /// Sets the [bounds](Bounds) on the work that it accepts.
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets how long a shutdown waits for open connections. Default: 10 s.
    pub fn drain(mut self, longest: Duration) -> Self {
        self.drain = longest;
        self
    }

    /// Opens the listeners. Nothing is served until [`Server::run`].
    ///
    /// # Errors
    /// When an address is not available, when other machines could reach it [without authentication](Self::insecure_open), when a secret is
    /// too short, and when the network of a proxy cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listeners again.
    pub async fn bind(self) -> Result<Server, ServeError> {
        self.refuse_to_be_open()?;
        for secret in self.secrets.iter().map(String::as_bytes).chain(self.receipt_secret.as_deref()) {
            if secret.len() < LEAST_SECRET {
                let (length, text) = (secret.len(), "use random ones, as openssl rand -hex 32 prints them");
                return Err(wrong(format!(
                    "a secret has {length} bytes; at least {LEAST_SECRET} are needed: {text}"
                )));
            }
        }
        self.rules.decide_apart();
        let mut access = Access::default();
        self.secrets.iter().for_each(|secret| access.add(secret));
        let signing = self
            .receipt_secret
            .clone()
            .or_else(|| self.secrets.first().map(|secret| secret.clone().into_bytes()))
            .unwrap_or_else(|| random::<32>().to_vec());
        let store = Arc::clone(self.rules.store());
        let receipts = ReceiptTokens::new(store, &signing, self.receipt_lifetime, self.bounds.receipts)
            .map_err(|error| wrong("this store cannot keep receipts").because(error))?;
        let proxies = Networks::new(&self.proxies)
            .map_err(|error| wrong("the networks of proxies cannot be read").because(error))?;
        let http = BoundSocket::bind(self.http).await?;
        let grpc = match self.grpc {
            Some(address) => Some(BoundSocket::bind(address).await?),
            None => None,
        };
        let page = self.page(&access, &signing, http.address())?;
        let (ending, is_ending) = watch::channel(false);
        let app = App {
            access,
            proxies,
            receipts,
            ready: Ready::of(self.rules.clone(), is_ending.clone()),
            in_progress: Arc::new(Semaphore::new(self.bounds.requests.min(Semaphore::MAX_PERMITS))),
            waiting: Semaphore::new(self.bounds.waiting.min(Semaphore::MAX_PERMITS)),
            bounds: self.bounds,
            charge: self.charge,
            observed: self.observed,
            page,
            metrics: self.metrics,
            rules: self.rules,
        };
        Ok(Server { app: Arc::new(app), http, grpc, tls: self.tls, drain: self.drain, ending, is_ending })
    }

    fn refuse_to_be_open(&self) -> Result<(), ServeError> {
        let is_guarded = !self.secrets.is_empty() || self.tls.as_ref().is_some_and(Tls::verifies_clients);
        let mut addresses = [Some(self.http), self.grpc].into_iter().flatten();
        match addresses.find(|address| !address.ip().is_loopback()) {
            Some(address) if !is_guarded && !self.is_insecure => Err(wrong(format!(
                "other machines reach {address}, and would need no authentication to spend units and give them back: set a secret, require client certificates, or allow it by --insecure-open"
            ))),
            _ => Ok(()),
        }
    }

    fn page(
        &self,
        access: &Access,
        signing: &[u8],
        address: SocketAddr,
    ) -> Result<Option<StatusPage>, ServeError> {
        let Some(observed) = &self.observed else { return Ok(None) };
        let mut page = StatusPage::new(observed).limits("rules", self.rules.limits_handle());
        if let Some(instance) = &self.instance {
            page = page.instance(instance);
        }
        let access = access.clone();
        page = match access.is_open() {
            true => page.unguarded_and_read_only(),
            false => page
                .guard(move |request| access.operator(request.headers))
                .secret(blake3::derive_key("sluicegate-server 1 status page", signing)),
        };
        let own = [address.ip().to_string(), "localhost".to_owned()];
        for host in own.iter().filter(|_| !address.ip().is_unspecified()).chain(&self.hosts) {
            page = page.host(host);
        }
        if address.ip().is_unspecified() && self.hosts.is_empty() {
            page = page.host("localhost");
        }
        let page = page.build().map_err(|error| wrong("the status page cannot be built").because(error))?;
        let shown = page.clone();
        self.rules.listen(move |news| match news {
            Ok(_) => shown.take_back_notice("rules"),
            Err(error) => shown.notice("rules", error.to_string()),
        });
        Ok(Some(page))
    }
}

fn wrong(problem: impl Into<std::borrow::Cow<'static, str>>) -> ServeError {
    ServeError::new(ServeErrorKind::Setting, problem)
}

/// Without secrets.
impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("http", &self.http)
            .field("grpc", &self.grpc)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

// Bounds on the work that a server accepts: [`Bounds`].

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
    /// Bytes of a request body. Default: 65,536. Above: 413.
    pub body: usize,
    /// Calls in one batch. Default: 1,000. Above: 413.
    pub batch: usize,
    /// Descriptors in one call of Envoy's protocol, with 64 KiB of the message for each. Default: 16. Above: `OVER_LIMIT`.
    pub descriptors: usize,
    /// Open connections of each listener. Default: 4,096. Above: the connection that is idle longest makes room, first of callers that
    /// were not let in; if all work for callers that were, the new connection gets 503 and is closed. Eight more answer probes only.
    pub connections: usize,
    /// Requests in progress at once, each until its response is sent. Default: 10,000. Above: 503, or `OVER_LIMIT`.
    pub requests: usize,
    /// Requests that wait for their turn at once. Default: 1,000. Above: 503.
    pub waiting: usize,
    /// Receipts of this process that are neither used nor expired, if only it can settle them. Each takes about 40 bytes. Default:
    /// 1,000,000. Above: `/v1/reserve` answers 503, and spends nothing.
    pub receipts: usize,
    /// Time for one request, with its body and its wait. Default: 30 s. Above: 408 while the body is missing,
    /// 503 otherwise; `DEADLINE_EXCEEDED` over gRPC. A connection is closed if its client takes longer than this, and at the latest after
    /// twice this time, to take a response.
    pub request: Duration,
    /// Time for the TLS handshake, time until the first request of a connection, and time for the head of a request over HTTP/1.1 from its first byte
    /// on. Default: 10 s. Above: the connection is closed.
    pub handshake: Duration,
    /// Time that a connection may be idle between requests. Default: 10 min. Above: the connection is closed.
    pub idle: Duration,
    /// The same for a connection whose callers were not let in, such as one with probes only. Default: 1 min.
    pub idle_stranger: Duration,
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
            receipts: 1_000_000,
            request: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            idle_stranger: Duration::from_secs(60),
        }
    }
}

// Errors of a server: [`ServeError`].

/// A server cannot start.
#[derive(Debug)]
pub struct ServeError {
    kind: ServeErrorKind,
    problem: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The cause of a [`ServeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeErrorKind {
    /// A setting is wrong, or two settings contradict each other.
    Setting,
    /// An address is not available.
    Listen,
    /// A certificate or a key cannot be used.
    Tls,
}

impl ServeError {
    pub(crate) fn new(kind: ServeErrorKind, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, problem: problem.into(), source: None }
    }

    pub(crate) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The cause.
    pub fn kind(&self) -> ServeErrorKind {
        self.kind
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

// A running server: [`Server`].

/// A server whose listeners are open. Made by [`Server::builder`].
pub struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) http: BoundSocket,
    pub(crate) grpc: Option<BoundSocket>,
    pub(crate) tls: Option<Tls>,
    drain: Duration,
    ending: watch::Sender<bool>,
    pub(crate) is_ending: watch::Receiver<bool>,
}

impl Server {
    /// The address of the HTTP listener.
    pub fn http_address(&self) -> SocketAddr {
        self.http.address()
    }

    /// The address of the [gRPC listener](ServerBuilder::grpc), if there is one.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(BoundSocket::address)
    }

    /// Serves until the future `until` is ready. It begins when the store has answered, or after one second. At the end it accepts no more
    /// connections, gives back the turns of waiting requests, answers the requests in progress, gives back leases, and returns when the last
    /// connection is closed or the [drain time](ServerBuilder::drain) is over. Returns the number of connections that were cut off.
    ///
    /// # Cancel safety
    /// Dropping the future cuts off all connections. Turns of waiting requests are given back.
    pub async fn run(self, until: impl Future<Output = ()>) -> usize {
        let Self { app, http, grpc, tls, drain, ending, is_ending, .. } = self;
        describe_metrics();
        let bounds = app.bounds;
        let mut asking = JoinSet::new();
        asking.spawn(ask_store(Arc::clone(&app)));
        // Every task is in a set, so that it ends with this future.
        let mut listeners = JoinSet::new();
        let (rules, store) = (app.rules.clone(), Arc::clone(app.rules.store()));
        let mut until = pin!(until);
        tokio::select! {
            () = until.as_mut() => return 0,
            () = app.ready.first_answer() => {}
        }
        let terms = |router| ConnectionSettings {
            router,
            tls: tls.clone(),
            bounds,
            is_ending: is_ending.clone(),
            is_for_probes: false,
        };
        if let Some(grpc) = grpc {
            listeners.spawn(grpc.serve(terms(grpc::router(&app))));
        }
        listeners.spawn(http.serve(terms(http::router(app))));
        until.await;
        ending.send_replace(true);
        let latest = Instant::now() + drain;
        let mut cut = 0;
        while let Ok(Some(ended)) = timeout_at(latest, listeners.join_next()).await {
            let Ok(mut open) = ended else { continue };
            while let Ok(Some(_)) = timeout_at(latest, open.join_next()).await {}
            cut += open.len();
        }
        store.limiters().turns_returned(latest.saturating_duration_since(Instant::now())).await;
        let lost = rules.give_back_leases(latest.saturating_duration_since(Instant::now())).await;
        if lost > 0 {
            tracing::warn!("{lost} leased units were not given back: they cannot be spent until they lapse");
        }
        cut
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Server");
        debug.field("http", &self.http_address()).field("grpc", &self.grpc_address()).finish_non_exhaustive()
    }
}
