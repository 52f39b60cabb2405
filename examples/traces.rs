//! A service whose traces show the decisions of its limits and the waits of requests. It sends them to a collector by OTLP over HTTP.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use sluicegate::{ConfigError, MemoryStore, Policy, RateLimitExt};
use sluicegate_examples::listen;
use tower_http::trace::TraceLayer;
use tracing::field::Empty;
use tracing::{Span, info_span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

/// The span of a request. Limits fill in the fields that it declares.
fn span(request: &Request) -> Span {
    info_span!(
        "request",
        otel.kind = "server",
        http.request.method = %request.method(),
        url.path = request.uri().path(),
        rate_limit.outcome = Empty,
        rate_limit.policy = Empty,
        rate_limit.remaining = Empty,
        rate_limit.decided_by = Empty,
        rate_limit.wait_ms = Empty,
    )
}

/// The service, in spans.
///
/// # Errors
/// When a policy has an invalid setting.
pub(crate) fn app() -> Result<Router, ConfigError> {
    let store = MemoryStore::new();
    let login = Policy::sliding_counter("login", "5/min").on(&store)?;
    let upload =
        Policy::leaky_bucket("upload", "2/s burst 1").wait_up_to(Duration::from_secs(5)).on(&store)?;
    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(|| async { "welcome\n" }).rate_limit(login))
        .route("/upload", post(|| async { "stored\n" }).rate_limit(upload))
        // Around the limits, so that its span is current when they decide.
        .layer(TraceLayer::new_for_http().make_span_with(span)))
}

/// Sends the spans of this process to a collector, such as `http://127.0.0.1:4318`.
///
/// # Errors
/// When the text is not a URL.
pub(crate) fn send_spans(collector: &str) -> Result<SdkTracerProvider, Box<dyn Error>> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{collector}/v1/traces"))
        .build()?;
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name("shop").build())
        .with_batch_exporter(exporter)
        .build();
    // Waits are spans at `INFO`. The exporter's own logs are below that level.
    let spans =
        tracing_opentelemetry::layer().with_tracer(provider.tracer("shop")).with_filter(LevelFilter::INFO);
    let lines = tracing_subscriber::fmt::layer().with_filter(LevelFilter::INFO);
    tracing_subscriber::registry().with(lines).with(spans).init();
    Ok(provider)
}

fn guide(address: SocketAddr, collector: &str) -> String {
    format!(
        "\
Sluicegate traces on http://{address}, limits per peer address; the spans go to {collector}:

  POST /login   5 a minute
  POST /upload  2 a second; more wait their turn for up to 5 s

For a collector with pages on http://127.0.0.1:16686, run:

  docker run --rm -p 4318:4318 -p 16686:16686 jaegertracing/jaeger

Try:

  for i in 1 2 3 4 5 6; do curl -s -X POST http://{address}/login; done
  seq 4 | xargs -P 4 -I{{}} curl -s -X POST http://{address}/upload

Ctrl-C ends it."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let collector = std::env::var("COLLECTOR").unwrap_or_else(|_| "http://127.0.0.1:4318".to_owned());
    let provider = send_spans(&collector)?;
    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?, &collector));
    axum::serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    // Sends the remaining spans.
    Ok(provider.shutdown()?)
}
