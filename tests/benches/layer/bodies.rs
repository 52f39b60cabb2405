//! What it costs a body that a limit settles by it.

use std::convert::Infallible;
use std::future::ready;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use sluicegate::settle::Settle;
use sluicegate::{Key, Limit, MemoryStore, Policy, RateLimitLayer};
use sluicegate_tests::frames::Frames;
use tower::{Layer, ServiceExt, service_fn};

use crate::harness::{Aim, Bench, Row};

/// The length of a body, about.
const LENGTH: usize = 64 * 1024;

/// Bodies through a layer that settles by them, beside the same through one that has no such limit, in microseconds for each KiB.
pub(crate) fn taps(bench: &mut Bench) {
    let field = "usage.total_tokens";
    for (work, frames, settle) in [
        ("body of JSON, long texts, settled by a field", texts(), Settle::json(field)),
        ("body of JSON, short values, settled by a field", values(), Settle::json(field)),
        ("body of server-sent events, settled by a field", events(), Settle::sse(field)),
        ("body of any kind, settled by its length", texts(), Ok(Settle::bytes())),
    ] {
        if !bench.wants(work) {
            continue;
        }
        let (tapped, plain) = (layer(settle.ok()), layer(None));
        let (rounds, slice) = bench.rounds();
        let kibs = frames.iter().map(Bytes::len).sum::<usize>() as f64 / 1024.0;
        let per_kib = |layer: &RateLimitLayer| {
            let (begin, mut times) = (Instant::now(), 0_u32);
            while times == 0 || begin.elapsed() < slice {
                read(layer, &frames);
                times += 1;
            }
            begin.elapsed().as_secs_f64() * 1e6 / f64::from(times) / kibs
        };
        let mut more: Vec<f64> = (0..rounds).map(|_| per_kib(&tapped) - per_kib(&plain)).collect();
        more.sort_by(f64::total_cmp);
        bench.record(Row::alone(work, "us/KiB", more[more.len() / 2], Aim::Ours(1.0)));
    }
}

fn layer(settle: Option<Settle>) -> RateLimitLayer {
    let policy = Policy::gcra("tokens", "1000000/ms").on(MemoryStore::new()).expect("memory keeps it");
    let limit = Limit::new(policy).key(Key::from("all"));
    RateLimitLayer::new(match settle {
        Some(settle) => limit.settle(settle),
        None => limit,
    })
}

/// Sends a request, and reads the body of the response to its end.
fn read(layer: &RateLimitLayer, frames: &[Bytes]) {
    let frames = frames.to_vec();
    let answer = move |_: Request<()>| {
        let body = Frames::new(frames.iter().cloned().map(|data| Ok(http_body::Frame::data(data))));
        ready(Ok::<_, Infallible>(Response::new(body)))
    };
    let mut cx = Context::from_waker(Waker::noop());
    let response =
        pin!(layer.clone().settling().layer(service_fn(answer)).oneshot(Request::new(()))).poll(&mut cx);
    let Poll::Ready(Ok(response)) = response else { panic!("memory and the service answer at once") };
    let mut body = response.into_body();
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
        std::hint::black_box(frame.expect("it does not fail"));
    }
}

/// In frames as a server passes them on.
fn framed(text: String) -> Vec<Bytes> {
    let text = Bytes::from(text);
    (0..text.len()).step_by(4096).map(|at| text.slice(at..text.len().min(at + 4096))).collect()
}

/// An answer of a model, whose text is long.
fn texts() -> Vec<Bytes> {
    let text = "The quick brown fox jumps over the lazy dog.\\n".repeat(LENGTH / 46);
    let usage = r#""usage":{"prompt_tokens":12,"completion_tokens":800,"total_tokens":812}"#;
    framed(format!(r#"{{"id":"c-1","choices":[{{"index":0,"message":{{"content":"{text}"}}}}],{usage}}}"#))
}

/// Many numbers and short texts.
fn values() -> Vec<Bytes> {
    let value = r#"{"id":1234,"name":"ada","at":[1.5,-2],"ok":true}"#;
    let values = vec![value; LENGTH / value.len()].join(",");
    framed(format!(r#"{{"data":[{values}],"usage":{{"total_tokens":812}}}}"#))
}

/// A stream of a model, a frame for each event.
fn events() -> Vec<Bytes> {
    let event = "data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"large\",\
        \"choices\":[{\"index\":0,\"delta\":{\"content\":\" fox\"},\"finish_reason\":null}],\"usage\":null}\n\n";
    let mut frames = vec![Bytes::from(event); LENGTH / event.len()];
    frames.push(Bytes::from("data: {\"choices\":[],\"usage\":{\"total_tokens\":812}}\n\ndata: [DONE]\n\n"));
    frames
}
