//! A service with observable limits: `/metrics` for Prometheus, with alerts and a dashboard in `monitoring/`, and `/status` for the
//! person on call. With `WEBHOOK` it reports each suspension to another server.

#[path = "monitoring/webhook.rs"]
pub(crate) mod webhook;

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sluicegate::observed::{BUCKETS, Observed};
use sluicegate::redis::RedisStore;
use sluicegate::status::StatusPage;
use sluicegate::{ConfigError, MemoryStore, Policy, RateLimitExt, RateLimitLayer, Resilient};
use sluicegate_examples::listen;

/// The recorder that all metrics of this process go to.
pub(crate) fn recorder() -> Result<PrometheusHandle, Box<dyn Error>> {
    // Without buckets the exporter renders summaries, on which the alerts do not fire.
    let handle = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// Redis if `REDIS_URL` names one, otherwise memory.
fn store() -> Result<Observed, Box<dyn Error>> {
    Ok(match std::env::var("REDIS_URL") {
        Ok(url) => Observed::named("redis", Resilient::new(RedisStore::connect(&url)?))?,
        Err(_) => Observed::named("memory", MemoryStore::new())?,
    })
}

/// The service, the metrics for Prometheus, and the page.
///
/// # Errors
/// When a policy or the page has an invalid setting.
pub(crate) fn app(store: &Observed, metrics: PrometheusHandle) -> Result<Router, ConfigError> {
    let login =
        Policy::sliding_counter("login", "5/min").and("20/h").suspend(20, "10min", "30min").on(store)?;
    let search = Policy::token_bucket("search", "10/s burst 20").on(store)?;
    let upload =
        Policy::leaky_bucket("upload", "2/s burst 1").wait_up_to(Duration::from_secs(5)).on(store)?;
    let tighter = Policy::gcra("tighter", "60/min").shadow().on(store)?;
    // The metric has this name and does not reveal the key.
    store.watch("local", &login, std::net::Ipv4Addr::LOCALHOST)?;
    let [login, search, upload, all] = [login, search, upload, tighter].map(RateLimitLayer::new);
    let page = StatusPage::new(store)
        .limits("login", login.limits_handle())
        .limits("search", search.limits_handle())
        .limits("upload", upload.limits_handle())
        .limits("all", all.limits_handle())
        // A service that others can reach needs a guard by the name that a layer in front has authenticated.
        .only_from_this_machine()
        .secret(secret())
        .host("127.0.0.1")
        .host("localhost")
        .build()?;
    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(|| async { "welcome\n" }).rate_limit(login))
        .route("/search", get(|| async { "nothing found\n" }).rate_limit(search))
        .route("/upload", post(|| async { "stored\n" }).rate_limit(upload))
        .rate_limit(all)
        // Added after the limits, so exempt from them.
        .route("/metrics", get(scrape).with_state((store.clone(), metrics)))
        .nest_service("/status", page.clone())
        .route_service("/status.json", page))
}

/// New at each start. Instances behind one name need a common secret, loaded with the other secrets of the service.
fn secret() -> Vec<u8> {
    (0..4).flat_map(|part| RandomState::new().hash_one(part).to_le_bytes()).collect()
}

async fn scrape(State((store, metrics)): State<(Observed, PrometheusHandle)>) -> String {
    // Updates gauges that change without a decision.
    store.refresh().await;
    metrics.render()
}

fn guide(address: SocketAddr) -> String {
    format!(
        "\
Sluicegate monitoring on http://{address}, limits per peer address:

  GET  /metrics  for Prometheus: see examples/monitoring/
  GET  /status   in a browser, and /status.json: what is going on, and what to do about it
  POST /login    5 a minute and 20 an hour; suspended for 30 min after 20 refusals
  GET  /search   10 a second, 20 at once
  POST /upload   2 a second; more wait their turn for up to 5 s

All of them are counted by a policy in shadow, 60 a minute. Try:

  seq 30 | xargs -P 30 -I{{}} curl -s -o /dev/null -w '%{{http_code}}\\n' http://{address}/search | sort | uniq -c
  curl -s http://{address}/metrics | grep rate_limit_requests_total

With WEBHOOK=http://127.0.0.1:9000/ in its environment it posts each suspension there as JSON. Try:

  for i in $(seq 30); do curl -s -o /dev/null -w '%{{http_code}}\\n' -X POST http://{address}/login; done | uniq -c

Ctrl-C ends it."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = listen().await?;
    let (store, metrics) = (store()?, recorder()?);
    if let Ok(url) = std::env::var("WEBHOOK") {
        let url = url.parse().map_err(|error| format!("WEBHOOK is not a URL: {error}"))?;
        webhook::post_suspensions(&store, url)?;
    }
    let app = app(&store, metrics)?;
    println!("{}", guide(listener.local_addr()?));
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}
