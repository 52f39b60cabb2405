//! From one process to a fleet: three instances of one service behind one limit, which they share through Redis.
//!
//! Needs a Redis: `REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis --features redis`.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sluicegate::{Policy, RateLimitExt, RedisStore, Resilient};
use tokio::net::TcpListener;

/// One instance. Only the line that makes the store differs from a service that is alone.
fn instance(redis: &str, number: u16) -> Result<Router, Box<dyn Error>> {
    let store = Resilient::builder(RedisStore::connect(redis)?).replicas(3).build()?;

    let hello = Policy::gcra("hello", "5/min").on(&store)?;
    Ok(Router::new()
        .route("/", get(move || async move { format!("hello from instance {number}\n") }).rate_limit(hello))
        .route("/status", get(move || async move { format!("{:#?}\n", store.status()) })))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let redis = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // A service starts without Redis, and decides alone until there is one; one that must not start waits for it first.
    if RedisStore::connect(&redis)?.connected(Duration::from_secs(2)).await.is_err() {
        println!(
            "There is no Redis at REDIS_URL yet: each instance admits its share, 2 of 5, until there is.\n"
        );
    }
    println!("Three instances of one service, 5 requests a minute over all of them. Try:\n");
    for number in 1..=3 {
        let listener = TcpListener::bind(("127.0.0.1", 3000 + number)).await?;
        println!("  curl -si http://{} | grep -iE '^(HTTP|x-rate|hello)'", listener.local_addr()?);
        let app = instance(&redis, number)?.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
    }
    println!(
        "\nStop Redis, and each instance goes on with its share; /status of an instance says how long for."
    );
    println!("Ctrl-C ends it.");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
