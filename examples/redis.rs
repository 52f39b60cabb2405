//! From one process to a fleet: three instances of one service behind one limit, which they share through Redis.
//!
//! Needs a Redis: `REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis --features redis`. `INSTANCES` sets their number, on ports from
//! `PORT` on; with `STORE=bare` the store has no wrapper, and the service starts whether Redis is up or not.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sluicegate::store::Store;
use sluicegate::{ConfigError, Policy, RateLimitExt, RedisStore, Resilient};
use sluicegate_examples::number;
use tokio::net::TcpListener;

/// One instance. Only the line that makes the store differs from a service with one instance.
pub(crate) fn instance(store: Arc<dyn Store>, number: u16) -> Result<Router, ConfigError> {
    let hello = Policy::gcra("hello", "5/min").on(store.clone())?;
    Ok(Router::new()
        .route("/", get(move || async move { format!("hello from instance {number}\n") }).rate_limit(hello))
        .route("/status", get(move || async move { format!("{:#?}\n", store.status()) })))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let is_bare = std::env::var("STORE").is_ok_and(|store| store == "bare");
    let instances = number("INSTANCES", 3)?.clamp(1, 16);
    let port = number("PORT", 3001)?;
    println!("Instances of one service: {instances}, with 5 requests a minute in all. Try:\n");
    for number in 1..=instances {
        let redis = RedisStore::connect(&redis)?;
        let store: Arc<dyn Store> = if is_bare {
            redis.into()
        } else {
            // This line fails at boot if Redis cannot be reached.
            redis.connected(Duration::from_secs(5)).await?;
            Resilient::builder(redis).replicas(instances.into()).build()?.into()
        };
        let listener =
            TcpListener::bind(("127.0.0.1", if port == 0 { 0 } else { port + number - 1 })).await?;
        println!("  curl -si http://{} | grep -iE '^(HTTP|x-rate|hello)'", listener.local_addr()?);
        let app = instance(store, number)?.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
    }
    let then = if is_bare {
        "the instance holds the limit by itself"
    } else {
        "each goes on with its share; /status of an instance says how long for"
    };
    println!("\nStop Redis, and {then}.");
    println!("Ctrl-C ends it.");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
