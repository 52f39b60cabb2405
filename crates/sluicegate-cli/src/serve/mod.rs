//! `sluicegate serve`.

mod log;
mod rules;
mod settings;

use std::io;
use std::time::Duration;

use clap::Args;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sluicegate_rules::Rules;
use sluicegate_server::{Server, Tls};
use tracing::Level;

use self::log::LogLines;
use self::rules::RulesSource;
use self::settings::ServerSettings;
use crate::replay::chain;

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
