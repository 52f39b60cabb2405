//! A plain tower stack without Axum: a limit per API key in front of a `service_fn`, and a custom refusal.

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use sluicegate::key::HeaderKey;
use sluicegate::respond::{Refusal, Respond};
use sluicegate::{ConfigError, Key, KeyExtractor, Limit, MemoryStore, PeerIp, Policy, RateLimitLayer};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

type Body = Full<Bytes>;

pub(crate) async fn hello(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Full::from(format!("hello from {}", request.uri().path()))))
}

/// Returns any body; the layer adds the header fields.
fn sorry(refusal: &Refusal<'_>) -> Response<Body> {
    let wait = refusal.retry_after_seconds().unwrap_or_default();
    let mut response = Response::new(Full::from(format!("slow down: try again in {wait} s")));
    *response.status_mut() = refusal.status();
    response
}

/// A limit for each API key, and one for all of them together.
pub(crate) fn layer(store: &MemoryStore) -> Result<RateLimitLayer<impl Respond<Body>>, ConfigError> {
    let per_client = Policy::gcra("client", "2/s").on(store)?;
    // Clients can make up API keys; this limit bounds all of them together.
    let everybody = Policy::token_bucket("everybody", "100/s").on(store)?;

    RateLimitLayer::builder(Limit::new(per_client).key(HeaderKey::new("x-api-key")?.or(PeerIp::new())))
        .and(Limit::new(everybody).key(Key::from("all")))
        .respond(sorry)
        .build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = layer(&MemoryStore::new())?;
    let mut service = ServiceBuilder::new().layer(layer).service(service_fn(hello));

    for (number, api_key) in [(1, "ada"), (2, "ada"), (3, "ada"), (4, "bob")] {
        let request = Request::get("/").header("x-api-key", api_key).body(Body::default())?;
        let response = service.ready().await?.call(request).await?;
        println!("request {number} by {api_key}: {}", response.status());
        for (name, value) in response.headers() {
            println!("    {name}: {}", value.to_str()?);
        }
        assert_eq!(response.status() == StatusCode::TOO_MANY_REQUESTS, number == 3);
    }
    Ok(())
}
