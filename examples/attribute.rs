//! Limits written where the handlers are. Run it, and try the `curl` lines that it prints.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use sluicegate::key::HeaderKey;
use sluicegate::{Decided, KeyExtractor, MemoryStore, PeerIp, RateLimitExt, rate_limited};
use sluicegate_examples::listen;

#[derive(Clone)]
struct App {
    greeting: &'static str,
}

/// Five a minute from each address.
#[rate_limited("5/min")]
async fn login(State(app): State<App>) -> String {
    format!("{}\n", app.greeting)
}

/// Two quotas together: all must have room.
#[rate_limited("5/min", "2/10s", algorithm = "sliding-counter")]
async fn payment(body: String) -> Result<String, StatusCode> {
    if body.is_empty() { Err(StatusCode::BAD_REQUEST) } else { Ok(format!("paid {body}\n")) }
}

/// A request above the limit waits for up to five seconds.
#[rate_limited("2/s burst 1", algorithm = "leaky-bucket", on_exceeded = "wait 5s")]
async fn upload() -> &'static str {
    "stored\n"
}

/// A costly handler: ten a minute for each API key, or for each address without one. A client that makes up API keys still has one address.
#[rate_limited("60/min", name = "report.address")]
#[rate_limited("100/min", key = HeaderKey::new("x-api-key")?.or(PeerIp::new()), cost = 10)]
async fn report(Path(name): Path<String>, decided: Decided) -> String {
    format!("the report on {name}; {} units left right now\n", decided.remaining())
}

/// Two limits with keys of their own; a request spends from both or from none.
#[rate_limited("60/min", name = "search.address")]
#[rate_limited("3/min", name = "search.key", key = HeaderKey::new("x-api-key"), on_missing_key = 401)]
async fn search() -> &'static str {
    "found nothing\n"
}

pub(crate) fn app() -> Router {
    Router::new()
        .route("/login", post(login))
        .route("/payment", post(payment))
        .route("/upload", post(upload))
        .route("/report/{name}", get(report))
        .route("/search", get(search))
        // The store for the limits of the handlers above. With `RedisStore`, all instances share them.
        .with_rate_limits(MemoryStore::new())
        .with_state(App { greeting: "welcome" })
}

fn guide(address: SocketAddr) -> String {
    format!(
        "\
Handlers with limits on http://{address}:

  POST /login          5 a minute
  POST /payment        5 a minute and 2 in 10 s, together
  POST /upload         2 a second; more wait their turn for up to 5 s
  GET  /report/{{name}}  costs 10 of 100 a minute, for each API key or address; 60 for each address
  GET  /search         60 a minute for each address, 3 for each API key

Try:

  for i in 1 2 3 4 5 6; do curl -si -X POST http://{address}/login | grep -iE '^(HTTP|x-?rate|retry)'; done
  for i in 1 2 3; do curl -si -X POST -d 1.99 http://{address}/payment | grep -iE '^(HTTP|rate)'; done
  seq 10 | xargs -P 10 -I{{}} curl -s -X POST -o /dev/null -w '%{{http_code}} after %{{time_total}} s\\n' http://{address}/upload
  for i in 1 2; do curl -s -H \"x-api-key: $i\" http://{address}/report/sales; done
  curl -si http://{address}/search

Ctrl-C ends it."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?));
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}
