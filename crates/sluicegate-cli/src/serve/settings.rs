//! Settings of the server, as options and environment variables.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sluicegate_core::policy::TimeSpan;
use sluicegate_server::{Bounds, Charge, ServerBuilder, Tls};

use crate::replay::chain;

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
    pub(super) fn tls(&self) -> Result<Option<Tls>, String> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let tls = Tls::read(certificate, key, self.tls_client_ca.clone());
        tls.map(Some).map_err(|error| format!("error: {}", chain(&error)))
    }

    pub(super) fn scheme(&self) -> &'static str {
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
