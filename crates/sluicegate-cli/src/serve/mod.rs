//! `sluicegate serve`.

mod log;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sluicegate_core::policy::TimeSpan;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_observed::Observed;
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_server::{Bounds, Charge, Server, ServerBuilder, Tls};
use tracing::Level;

use crate::replay::chain;
use crate::serve::log::LogLines;

/// Serve the limits of a rules file to services in any language and to proxies.
///
/// Each option is also an environment variable, as [env: ..] says.
#[derive(Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    source: RulesSource,
    #[command(flatten)]
    settings: ServerSettings,
    /// The level of the log on standard error: error, warn, info, debug or trace.
    /// Of other crates it has errors only.
    #[arg(long, value_name = "LEVEL", env = "SLUICEGATE_LOG", default_value = "info")]
    log: Level,
}

/// From 50 us to 1 s, with the 5 ms that an alert asks for.
const DECISIONS: [f64; 12] =
    [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0];
const WAITS: [f64; 7] = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Serves until SIGTERM or Ctrl-C.
///
/// # Errors
/// The text of the error in the rules or the settings.
pub(crate) fn run(asked: ServeArguments) -> Result<String, String> {
    let log = LogLines::install(asked.log).map_err(|error| format!("error: {error}"))?;
    // No other code in this process installs a provider.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("error: {error}"))?;
    let served = runtime.block_on(serve(asked));
    // A thread that reads a file may never end.
    runtime.shutdown_background();
    log.flush();
    served.map(|()| String::new())
}

async fn serve(ServeArguments { source, settings, .. }: ServeArguments) -> Result<(), String> {
    let (rules, observed) = source.open()?;
    let metrics = recorder()?;
    let tls = settings.tls()?;
    reload_on_sighup(&rules, tls.clone()).map_err(|error| format!("error: {error}"))?;
    let mut builder = settings.apply(Server::builder(rules.clone()))?.status(&observed);
    builder = builder.metrics(move || metrics.render());
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    let server = builder.bind().await.map_err(|error| format!("error: {}", chain(&error)))?;
    rules.follow();
    let scheme = settings.scheme();
    tracing::info!("serving {} at {scheme}://{}", source.path().display(), server.http_address());
    if let Some(grpc) = server.grpc_address() {
        tracing::info!("serving Envoy's rate limit service at {grpc}");
    }
    let cut = server.run(shutdown()).await;
    if cut > 0 {
        tracing::warn!("{cut} connections were cut off");
    }
    Ok(())
}

/// Installs the recorder of this process's metrics.
fn recorder() -> Result<PrometheusHandle, String> {
    let built = PrometheusBuilder::new().set_buckets(&DECISIONS);
    let waits = Matcher::Full("rate_limit_wait_seconds".to_owned());
    let built = built.and_then(|builder| builder.set_buckets_for_metric(waits, &WAITS));
    let handle = built.and_then(PrometheusBuilder::install_recorder);
    let handle = handle.map_err(|error| format!("error: {}", chain(&error)))?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

#[cfg(unix)]
fn reload_on_sighup(rules: &Rules, tls: Option<Tls>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    rules.reload_on_sighup()?;
    let Some(tls) = tls else { return Ok(()) };
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let tls = tls.clone();
            // Not on a worker, which has requests to answer.
            tokio::task::spawn_blocking(move || match tls.reload() {
                Ok(()) => tracing::info!("the certificates were read again"),
                Err(error) => tracing::error!("the former certificates stay in use: {}", chain(&error)),
            });
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn reload_on_sighup(_: &Rules, _: Option<Tls>) -> io::Result<()> {
    Ok(())
}

/// Ready at SIGTERM and at Ctrl-C.
async fn shutdown() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    _ = tokio::signal::ctrl_c().await;
}

// Opening the rules and their store.

/// The rules file, and the store of its counts.
#[derive(Args)]
pub(crate) struct RulesSource {
    /// The rules file. A change of it takes effect within a second.
    #[arg(long, value_name = "RULES", env = "SLUICEGATE_RULES")]
    rules: PathBuf,
    /// The Redis that all instances share, if the rules file names no store:
    /// redis://127.0.0.1:6379 [env: REDIS_URL] [default: the memory of this
    /// process].
    #[arg(long, value_name = "URL", hide_env = true)]
    store: Option<String>,
}

impl RulesSource {
    /// The rules in force, and their observed store.
    pub(super) fn open(&self) -> Result<(Rules, Observed), String> {
        let file = RulesFile::read(&self.rules, &Variables::environment());
        let file = file.map_err(|error| error.to_string())?;
        for warning in file.warnings() {
            tracing::warn!("{warning}");
        }
        let variables = Variables::environment();
        let builder = Rules::builder().open_all_policies();
        let store = match (file.store_kind(), &self.store) {
            (Some(_), Some(_)) => {
                let path = self.rules.display();
                return Err(format!(
                    "error: {path} names a store, and --store names another: remove one of them"
                ));
            }
            (Some(kind), None) => {
                let mut around = Err(String::new());
                let rules = builder.from_file_within(&self.rules, variables, |store| -> Arc<dyn Store> {
                    around = observed(kind, Arc::clone(&store));
                    around.as_ref().map_or(store, Into::into)
                });
                return Ok((rules.map_err(|error| error.to_string())?, around?));
            }
            (None, Some(url)) => Some(url.clone()),
            // The lowest precedence: a rules file may use the variable itself.
            (None, None) => std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty()),
        };
        let observed = match store {
            None => observed("memory", MemoryStore::new())?,
            Some(url) => {
                let redis = RedisStore::connect(&url).map(Resilient::new);
                observed("redis", redis.map_err(|error| format!("error: {}", chain(&error)))?)?
            }
        };
        let rules = builder.open(&observed, &self.rules, variables);
        Ok((rules.map_err(|error| error.to_string())?, observed))
    }

    pub(super) fn path(&self) -> &Path {
        &self.rules
    }
}

fn observed(kind: &'static str, store: impl Into<Arc<dyn Store>>) -> Result<Observed, String> {
    Observed::named(kind, store).map_err(|error| format!("error: {}", chain(&error)))
}

// Settings of the server, as options and environment variables.

/// Listeners, authentication and bounds.
#[derive(Args)]
pub(crate) struct ServerSettings {
    /// The address of the HTTP listener.
    #[arg(long, value_name = "ADDRESS", env = "SLUICEGATE_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The address of the listener for Envoy's rate limit service over gRPC, as
    /// 127.0.0.1:8081 [default: none].
    #[arg(long, value_name = "ADDRESS", env = "SLUICEGATE_GRPC")]
    grpc: Option<SocketAddr>,
    /// Which descriptors of a call over gRPC spend if one of them is over its
    /// limit: none, or each that fits.
    #[arg(long, value_name = "CHARGE", env = "SLUICEGATE_CHARGE", default_value = "all-or-none")]
    charge: ChargeWord,
    /// Listen where other machines reach it, with neither a secret nor client
    /// certificates.
    #[arg(long, env = "SLUICEGATE_INSECURE_OPEN")]
    insecure_open: bool,
    /// A file with the secret that callers show; several lines are several
    /// secrets [env: SLUICEGATE_SECRET_FILE, or the secret: SLUICEGATE_SECRET].
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_SECRET_FILE", hide_env = true)]
    secret_file: Option<PathBuf>,
    /// A network of proxies that may ask at /proxy, as 10.0.0.0/8; can be
    /// repeated.
    #[arg(long, value_name = "NETWORK", env = "SLUICEGATE_PROXY", value_delimiter = ',')]
    proxy: Vec<String>,
    /// A file with the secret that signs receipts [env:
    /// SLUICEGATE_RECEIPT_SECRET_FILE, or the secret: SLUICEGATE_RECEIPT_SECRET]
    /// [default: the secret of callers].
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_RECEIPT_SECRET_FILE", hide_env = true)]
    receipt_secret_file: Option<PathBuf>,
    /// The lifetime of a receipt, up to 1d.
    #[arg(long, value_name = "TIME", env = "SLUICEGATE_RECEIPT_LIFETIME", default_value = "15min", value_parser = time)]
    receipt_lifetime: Duration,
    /// The certificate chain of this server in PEM, to serve TLS. SIGHUP reads
    /// it again.
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate in PEM.
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The authority of client certificates in PEM: clients have to show one.
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_TLS_CLIENT_CA", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// A host name that the status page may be visited under; can be repeated.
    #[arg(long, value_name = "HOST", env = "SLUICEGATE_HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// The name of this instance on the status page [default: the variable
    /// HOSTNAME].
    #[arg(long, value_name = "NAME", env = "SLUICEGATE_INSTANCE")]
    instance: Option<String>,
    /// The longest wait of a shutdown for open connections.
    #[arg(long, value_name = "TIME", env = "SLUICEGATE_DRAIN", default_value = "10s", value_parser = time)]
    drain: Duration,
    /// Bytes of a request body.
    #[arg(long, value_name = "BYTES", env = "SLUICEGATE_MAX_BODY", default_value_t = Bounds::default().body)]
    max_body: usize,
    /// Calls in one batch.
    #[arg(long, value_name = "N", env = "SLUICEGATE_MAX_BATCH", default_value_t = Bounds::default().batch)]
    max_batch: usize,
    /// Descriptors in one call over gRPC.
    #[arg(long, value_name = "N", env = "SLUICEGATE_MAX_DESCRIPTORS", default_value_t = Bounds::default().descriptors)]
    max_descriptors: usize,
    /// Open connections of each listener.
    #[arg(long, value_name = "N", env = "SLUICEGATE_MAX_CONNECTIONS", default_value_t = Bounds::default().connections)]
    max_connections: usize,
    /// Time that a connection may be idle between requests.
    #[arg(long, value_name = "TIME", env = "SLUICEGATE_MAX_IDLE", default_value = "10min", value_parser = time)]
    max_idle: Duration,
    /// The same for a connection whose callers were not let in, such as one with
    /// probes only.
    #[arg(long, value_name = "TIME", env = "SLUICEGATE_MAX_IDLE_STRANGER", default_value = "1min", value_parser = time)]
    max_idle_stranger: Duration,
    /// Time for the TLS handshake, for the first request of a connection, and for
    /// the head of a request.
    #[arg(long, value_name = "TIME", env = "SLUICEGATE_MAX_HEAD", default_value = "10s", value_parser = time)]
    max_head: Duration,
    /// Requests in progress at once.
    #[arg(long, value_name = "N", env = "SLUICEGATE_MAX_REQUESTS", default_value_t = Bounds::default().requests)]
    max_requests: usize,
    /// Requests that wait for their turn at once.
    #[arg(long, value_name = "N", env = "SLUICEGATE_MAX_WAITING", default_value_t = Bounds::default().waiting)]
    max_waiting: usize,
    /// Receipts that are neither used nor expired, if only this process can
    /// settle them.
    #[arg(long, value_name = "N", env = "SLUICEGATE_MAX_RECEIPTS", default_value_t = Bounds::default().receipts)]
    max_receipts: usize,
    /// Time for one request, with its wait.
    #[arg(long, value_name = "TIME", env = "SLUICEGATE_MAX_TIME", default_value = "30s", value_parser = time)]
    max_time: Duration,
}

/// The words for [`Charge`].
#[derive(Clone, Copy, ValueEnum)]
enum ChargeWord {
    AllOrNone,
    Each,
}

impl ServerSettings {
    /// The certificates, if they are set.
    fn tls(&self) -> Result<Option<Tls>, String> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let tls = Tls::read(certificate, key, self.tls_client_ca.clone());
        tls.map(Some).map_err(|error| format!("error: {}", chain(&error)))
    }

    fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }

    /// The builder with these settings, without the certificates.
    pub(super) fn apply(&self, builder: ServerBuilder) -> Result<ServerBuilder, String> {
        let mut bounds = Bounds::default();
        bounds.body = self.max_body;
        bounds.batch = self.max_batch;
        bounds.descriptors = self.max_descriptors;
        bounds.connections = self.max_connections;
        bounds.idle = self.max_idle;
        bounds.idle_stranger = self.max_idle_stranger;
        bounds.handshake = self.max_head;
        bounds.requests = self.max_requests;
        bounds.waiting = self.max_waiting;
        bounds.receipts = self.max_receipts;
        bounds.request = self.max_time;
        let builder = builder.http(self.listen).bounds(bounds).drain(self.drain);
        let mut builder = builder.receipt_lifetime(self.receipt_lifetime).charge(match self.charge {
            ChargeWord::AllOrNone => Charge::AllOrNone,
            ChargeWord::Each => Charge::Each,
        });
        if let Some(grpc) = self.grpc {
            builder = builder.grpc(grpc);
        }
        for secret in secrets(self.secret_file.as_ref(), "SLUICEGATE_SECRET")? {
            builder = builder.secret(secret);
        }
        let receipts = secrets(self.receipt_secret_file.as_ref(), "SLUICEGATE_RECEIPT_SECRET")?;
        if let Some(secret) = receipts.into_iter().next() {
            builder = builder.receipt_secret(secret);
        }
        builder = self.host.iter().fold(builder, ServerBuilder::host);
        builder = self.proxy.iter().fold(builder, ServerBuilder::proxy);
        if let Some(instance) = &self.instance {
            builder = builder.instance(instance);
        }
        Ok(if self.insecure_open { builder.insecure_open() } else { builder })
    }
}

/// The lines of the file, or the value of the variable.
fn secrets(file: Option<&PathBuf>, variable: &str) -> Result<Vec<String>, String> {
    let text = match file {
        None => std::env::var(variable).unwrap_or_default(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("error: {}: it cannot be read: {error}", path.display()))?,
    };
    let lines: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    match (file, lines.is_empty()) {
        (Some(path), true) => Err(format!("error: {}: it has no secret", path.display())),
        _ => Ok(lines),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let time = TimeSpan::from_str(text).map(Duration::from).map_err(|error| error.problem().to_owned())?;
    let bounds = Duration::from_millis(1)..=Duration::from_secs(86_400);
    if bounds.contains(&time) { Ok(time) } else { Err("the time has to be from 1ms to 1d".to_owned()) }
}
