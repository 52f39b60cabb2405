//! Orders that can wait: two a second are served at once, and further ones are accepted with 202 and processed at that rate, by workers on any
//! instance. Redis holds no client data in readable form.
//!
//! Needs a Redis that persists, `redis-server --appendonly yes`:
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example deferred --features deferred`.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http::StatusCode;
use sluicegate::key::ApiKey;
use sluicegate::overflow::deferred::{Deferral, Job, JobOutcome, QueueSettings, RedisJobs};
use sluicegate::{Key, Limit, OnOutage, Policy, RedisStore};
use sluicegate_examples::listen;
use tokio::sync::watch;

/// The work for an order, at once or later.
async fn order(order: Bytes) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    if order.starts_with(b"poison") {
        return Err("nobody can do that".to_owned());
    }
    Ok(format!("{} bytes, with thanks", order.len()))
}

async fn at_once(body: Bytes) -> Result<String, (StatusCode, String)> {
    order(body).await.map_err(|error| (StatusCode::BAD_REQUEST, error))
}

/// A worker that died may have done this already: the id, which stays the same, identifies the order.
async fn later(job: Job) -> JobOutcome {
    println!("  order {}, attempt {}: {} bytes", &job.id[..8], job.attempt, job.request.body().len());
    Ok(order(job.request.into_body()).await?.into_bytes())
}

async fn standing(State(deferral): State<Deferral>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    deferral.answer(&head).await.map(Body::from)
}

fn guide(address: SocketAddr, secret: &str) -> String {
    format!(
        "\
Sluicegate deferred work on http://{address}: two orders a second, over all instances, and the rest later

  for i in $(seq 20); do curl -si http://{address}/orders -H 'x-api-key: ada' -d \"order $i\" | grep -i -e ^HTTP -e ^location; done
  curl -s http://{address}/jobs/THE-ID -H 'x-api-key: ada'     (and as bob: 404)
  curl -s http://{address}/orders -H 'x-api-key: ada' -H 'idempotency-key: \"1\"' -d 'one tea'

The last, sent again while it waits, is the same order. One that begins with \"poison\" is tried three times and set aside; with UNPARK=1 all of
these are tried once more. A second instance:

  PORT=3001 SECRET='{secret}' cargo run --example deferred --features deferred

Kill one of them, or Redis: what was accepted is done. Ctrl-C ends this one, and what it has in hand is finished first."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let store = RedisStore::connect(&redis)?;
    if store.connected(Duration::from_secs(2)).await.is_err() {
        println!("There is no Redis at REDIS_URL yet: orders are refused with 503 until there is.\n");
    }
    // A real service loads it with its other secrets; it is the same on all instances and at each start.
    let secret = std::env::var("SECRET").unwrap_or_else(|_| "not a secret: it is in the example".to_owned());
    let settings = QueueSettings::default().attempts(3).lease(Duration::from_secs(5));
    let queue = RedisJobs::connect(&redis, "orders", settings)?;
    let deferral = Deferral::builder(queue, ApiKey::header("x-api-key")?, &secret).build()?;
    if std::env::var("UNPARK").is_ok() {
        println!("{} parked orders wait again.\n", deferral.unpark().await?);
    }

    // Without Redis there is no queue, so orders are refused.
    let orders = Policy::gcra("orders", "2/s").on_outage(OnOutage::Deny).on(&store)?;
    let orders = Limit::new(orders).key(Key::from("all"));
    let app = Router::new()
        .route("/orders", post(at_once).layer(deferral.layer(orders)))
        .route("/jobs/{id}", get(standing))
        .with_state(deferral.clone());

    let (stop, mut stopped) = watch::channel(false);
    let workers = tokio::spawn(async move {
        let stop = async move { _ = stopped.wait_for(|stop| *stop).await };
        deferral.work(&store, stop, later).await;
    });
    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?, &secret));
    axum::serve(listener, app).with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await?;
    stop.send_replace(true);
    Ok(workers.await?)
}
