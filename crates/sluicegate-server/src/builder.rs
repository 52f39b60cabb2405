//! Building a server: [`ServerBuilder`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_observed::Observed;
use sluicegate_rules::Rules;
use sluicegate_status::StatusPage;
use sluicegate_tower::key::Networks;
use tokio::sync::{Semaphore, watch};

use crate::access::Access;
use crate::app::{App, Render};
use crate::bounds::Bounds;
use crate::charge::Charge;
use crate::error::{ServeError, ServeErrorKind};
use crate::listen::BoundSocket;
use crate::ready::Ready;
use crate::receipt::{ReceiptTokens, random};
use crate::server::Server;
use crate::tls::Tls;

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
        let receipts = ReceiptTokens::new(Arc::clone(self.rules.store()), &signing, self.receipt_lifetime)
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
            ready: Ready::until(is_ending.clone()),
            in_progress: Arc::new(Semaphore::new(self.bounds.requests)),
            waiting: Semaphore::new(self.bounds.waiting),
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
