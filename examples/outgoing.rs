//! A reqwest client that waits: for a limit of its own, and for as long as the server asks. It ends by itself.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use reqwest::Client;
use reqwest_middleware::{ClientBuilder, Error as ClientError};
use sluicegate::call::CallError;
use sluicegate::outgoing::OutgoingLayer;
use sluicegate::respond::HeaderFields;
use sluicegate::{MemoryStore, Policy, RateLimitExt, RateLimitLayer};
use tokio::net::TcpListener;

/// Serves two requests a second, five at once, and sends the remaining units in header fields.
async fn serve() -> Result<SocketAddr, Box<dyn Error>> {
    let per_address = Policy::token_bucket("address", "2/s burst 5").on(MemoryStore::new())?;
    // All fields: from `X-RateLimit-*` alone a client learns when the whole burst is back, but not when the next unit is.
    let limit = RateLimitLayer::builder(per_address).headers(HeaderFields::All).build()?;
    let app = Router::new().route("/", get(|| async { "hello" }).rate_limit(limit));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = format!("http://{}/", serve().await?);

    // Never more than ten a second at one host, with 100 ms of room for the network's jitter.
    let per_host = Policy::gcra("partner", "10/1100ms burst 1").on(MemoryStore::new())?;
    let patient = OutgoingLayer::new().limit(per_host).longest_wait(Duration::from_secs(5));
    let http = Client::builder().no_proxy().build()?;
    let client = ClientBuilder::new(http.clone()).with(patient).build();

    let start = Instant::now();
    for number in 1..=8 {
        let response = client.get(&url).send().await?;
        let left = response.headers().get("ratelimit").cloned().unwrap_or(http::HeaderValue::from_static(""));
        println!("{:>5.2?} request {number}: {}  {left:?}", start.elapsed(), response.status());
        assert!(response.status().is_success(), "whoever waits is not refused");
    }

    // A client with a short longest wait learns at once how long it would have to wait.
    let impatient = OutgoingLayer::new().longest_wait(Duration::from_millis(10));
    let client = ClientBuilder::new(http).with(impatient).build();
    loop {
        match client.get(&url).send().await {
            Ok(response) => println!("impatient: {}", response.status()),
            Err(ClientError::Middleware(error)) => match error.downcast::<CallError<Infallible>>()? {
                CallError::HeldOff(wait) => {
                    println!("impatient: not now, but in {wait:.1?}");
                    return Ok(());
                }
                other => return Err(other.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
}
