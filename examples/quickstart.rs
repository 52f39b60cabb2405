//! Limits in front of a real Axum server. Run it, and try the `curl` lines that it prints.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use sluicegate::{Decided, Limit, MemoryStore, Policy, RateLimitExt, RateLimitLayer};
use sluicegate_examples::listen;

pub(crate) fn app() -> Result<Router, Box<dyn Error>> {
    let store = MemoryStore::new();

    let api = Policy::sliding_counter("api", "200/min").on(&store)?;
    let login = Policy::sliding_counter("login", "5/min").on(&store)?;
    let search = Policy::token_bucket("search", "10/s burst 20").on(&store)?;
    let upload =
        Policy::leaky_bucket("upload", "2/s burst 1").wait_up_to(Duration::from_secs(5)).on(&store)?;
    let payment = Policy::sliding_counter("payment", "5/min").and("2/10s").on(&store)?;
    let report = Policy::token_bucket("report", "100/min").on(&store)?;

    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(|| async { "welcome\n" }).rate_limit(login))
        .route("/search", get(find).rate_limit(RateLimitLayer::new(search).decided()))
        .route("/upload", post(|| async { "stored\n" }).rate_limit(upload))
        .route("/payment", get(|| async { "paid\n" }).rate_limit(payment))
        .route("/report", get(|| async { "a long report\n" }).rate_limit(Limit::new(report).cost(10)?))
        // For everything above, together with the routes' own limits.
        .rate_limit(api)
        // Added after the limit, so exempt from it.
        .route("/health", get(|| async { "ok\n" })))
}

/// A layer that is `decided()` tells handlers what was decided about their request.
async fn find(decided: Decided) -> String {
    format!("found nothing; {} searches left right now\n", decided.remaining())
}

fn guide(address: SocketAddr) -> String {
    format!(
        "\
Sluicegate quickstart on http://{address}, limits per peer address:

  GET  /         200 a minute over all routes but /health (sliding counter)
  POST /login    5 a minute (sliding counter)
  GET  /search   10 a second, 20 at once (token bucket)
  POST /upload   2 a second; more wait their turn for up to 5 s (leaky bucket)
  GET  /payment  5 a minute and 2 in 10 s, together (sliding counters)
  GET  /report   costs 10 of 100 a minute (token bucket)
  GET  /health   exempt

Try:

  for i in 1 2 3 4 5 6; do curl -si -X POST http://{address}/login | grep -iE '^(HTTP|x-?rate|retry)'; done
  seq 30 | xargs -P 30 -I{{}} curl -s -o /dev/null -w '%{{http_code}}\\n' http://{address}/search | sort | uniq -c
  seq 10 | xargs -P 10 -I{{}} curl -s -X POST -o /dev/null -w '%{{http_code}} after %{{time_total}} s\\n' http://{address}/upload

Ctrl-C ends it."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?));
    axum::serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}
