//! The example of traces over a socket: a collector reads why a request was refused, and what it has waited for.

#[path = "../../examples/traces.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod example;

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use http::Method;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sluicegate_tests::process::alone;
use tokio::sync::mpsc;

use crate::support::{Client, first_of_two, serve};

/// The attributes of a limit, without the beginning of their names.
fn limits(span: &Span) -> BTreeMap<&str, String> {
    let mut limits = BTreeMap::new();
    for attribute in &span.attributes {
        let Some(name) = attribute.key.strip_prefix("rate_limit.") else { continue };
        let value = match attribute.value.as_ref().unwrap().value.as_ref().unwrap() {
            Value::StringValue(text) => text.clone(),
            Value::IntValue(number) => number.to_string(),
            other => panic!("{name} is {other:?}"),
        };
        assert!(limits.insert(name, value).is_none(), "{name} is there twice: {span:?}");
    }
    limits
}

fn path(span: &Span) -> Option<&str> {
    let path = span.attributes.iter().find(|attribute| attribute.key == "url.path")?;
    match path.value.as_ref()?.value.as_ref()? {
        Value::StringValue(path) => Some(path),
        _ => None,
    }
}

#[test]
fn a_collector_reads_why_a_request_was_refused_and_what_it_has_waited_for() {
    alone(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (sender, mut sent) = mpsc::unbounded_channel();
            let collector = Router::new().route(
                "/v1/traces",
                post(async move |body: Bytes| {
                    sender.send(ExportTraceServiceRequest::decode(body).unwrap()).unwrap();
                }),
            );
            let collector = serve(collector).await;
            let provider = example::send_spans(&format!("http://{collector}")).unwrap();
            let address = serve(example::app().unwrap()).await;
            let mut client = Client::connect(address).await;
            for _ in 0..5 {
                assert_eq!(client.post("/login").await.status(), 200);
            }
            assert_eq!(client.post("/login").await.status(), 429);
            assert_eq!(client.get("/").await.status(), 200);
            assert_eq!(client.post("/upload").await.status(), 200);
            assert_eq!(first_of_two(address, Method::POST, "/upload").await.status(), 200);

            // The span of the client that has left ends when the server has noticed it.
            let mut spans: Vec<Span> = Vec::new();
            while spans.iter().filter(|span| path(span) == Some("/upload")).count() < 3 {
                let flushed = provider.clone();
                tokio::task::spawn_blocking(move || flushed.force_flush()).await.unwrap().unwrap();
                while let Ok(more) = sent.try_recv() {
                    let scopes = more.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                    spans.extend(scopes.flat_map(|scope| scope.spans));
                }
            }
            let of = |at: &str| -> Vec<&Span> {
                let mut of: Vec<_> = spans.iter().filter(|span| path(span) == Some(at)).collect();
                of.sort_by_key(|span| span.start_time_unix_nano);
                of
            };
            let login: Vec<_> = of("/login").into_iter().map(limits).collect();
            assert_eq!(login.len(), 6);
            let [first, refused] = [&login[0], &login[5]];
            let named = |limits: &BTreeMap<&str, String>| {
                ["outcome", "policy", "decided_by", "remaining"].map(|name| limits[name].clone())
            };
            assert_eq!(named(first), ["allowed", "login", "store", "4"]);
            assert_eq!(named(refused), ["rejected", "login", "store", "0"]);
            assert!(refused["wait_ms"].parse::<u64>().unwrap() > 0);
            assert!(limits(of("/")[0]).is_empty(), "no limit applies to it");

            let uploads = of("/upload");
            let outcomes = uploads.iter().map(|span| limits(span)["outcome"].clone());
            assert_eq!(outcomes.collect::<Vec<_>>(), ["allowed", "delayed", "delayed"]);
            let mut ends = Vec::new();
            for upload in &uploads[1..] {
                let within: Vec<_> =
                    spans.iter().filter(|span| span.parent_span_id == upload.span_id).collect();
                assert_eq!(within.len(), 1);
                let (wait, of_wait) = (within[0], limits(within[0]));
                assert_eq!((&*wait.name, &wait.trace_id), ("rate_limit.wait", &upload.trace_id));
                assert_eq!(of_wait["policy"], "upload");
                ends.push(of_wait["ended_by"].clone());
            }
            ends.sort();
            assert_eq!(ends, ["given_up", "turn"]);
            tokio::task::spawn_blocking(move || provider.shutdown()).await.unwrap().unwrap();
        });
    });
}
