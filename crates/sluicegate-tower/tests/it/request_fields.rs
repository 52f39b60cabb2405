//! Fields of requests, read before the requests go on.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full};
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tests::frames::{Framed, Frames, data};
use sluicegate_tower::key::HeaderKey;
use sluicegate_tower::request_fields::{FieldKey, OnUnreadable, ReadBody, RequestFields, RequestFieldsLayer};
use sluicegate_tower::settle::Reserve;
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tokio::sync::mpsc;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Body, Live, answer, on, store};

const ASKED: &str =
    r#"{"messages": [{"content": "\"model\": 7"}], "model": "large", "max_tokens": 300, "n": {"best": 2}}"#;

fn layer() -> RequestFieldsLayer {
    RequestFieldsLayer::new(["model", "max_tokens", "n.best"]).unwrap()
}

/// What a handler got.
type Seen = (Option<String>, Option<u64>, Result<(Bytes, Option<HeaderMap>), &'static str>);

/// What a handler behind the layer gets of a request with this body.
async fn seen(layer: RequestFieldsLayer, request: Request<Frames>) -> Seen {
    let reads = service_fn(async |request: Request<ReadBody<Frames>>| {
        let fields = RequestFields::of((&request).into());
        let model = fields.and_then(|fields| fields.text("model")).map(str::to_owned);
        let model = model.or_else(|| fields?.may_be("model", |_| false).then(|| "any".to_owned()));
        let best = fields.and_then(|fields| fields.number("n.best"));
        let collected = request.into_body().collect().await;
        let body = collected.map(|body| {
            let trailers = body.trailers().cloned();
            (body.to_bytes(), trailers)
        });
        Ok::<Seen, Infallible>((model, best, body))
    });
    layer.layer(reads).oneshot(request).await.unwrap()
}

fn asking(frames: impl IntoIterator<Item = Framed>) -> Request<Frames> {
    Request::new(Frames::new(frames))
}

#[tokio::test]
async fn fields_are_found_wherever_the_body_is_cut_and_it_goes_on_unchanged() {
    for cut in 0..=ASKED.len() {
        let trailers: HeaderMap = [("x-sum".parse().unwrap(), "1".parse().unwrap())].into_iter().collect();
        let frames =
            [data(&ASKED[..cut]), data(&ASKED[cut..]), data("\n"), Ok(Frame::trailers(trailers.clone()))];
        let whole = Bytes::from(format!("{ASKED}\n"));
        let expected = (Some("large".to_owned()), Some(2), Ok((whole, Some(trailers))));
        assert_eq!(seen(layer(), asking(frames)).await, expected, "cut at {cut}");
    }
}

/// A client once chose by such a body that no condition on it held.
#[tokio::test]
async fn a_body_that_cannot_be_read_may_have_any_value_and_goes_on_unchanged() {
    let utf16: Vec<u8> = ASKED.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let long = format!("{{\"model\": \"large\", \"pad\": \"{}\"}}", "x".repeat(1_000));
    let (any, large, plain) = (Some("any"), Some("large"), &[][..]);
    let form = &[("content-type", "application/x-www-form-urlencoded")][..];
    let skipping = layer().on_unreadable(OnUnreadable::Skip);
    for (case, layer, fields, body, expected) in [
        ("gzip", layer(), &[("content-encoding", "gzip")][..], ASKED.into(), any),
        ("made up", layer(), &[("content-encoding", "identity, x")], ASKED.into(), any),
        ("empty", layer(), &[("content-encoding", "")], ASKED.into(), large),
        ("identity", layer(), &[("content-encoding", "identity")], ASKED.into(), large),
        ("no upgrade", layer(), &[("upgrade", "x")], ASKED.into(), large),
        ("upgrade", layer(), &[("upgrade", "x"), ("connection", "close, Upgrade")], ASKED.into(), any),
        ("too many", layer().at_once(0), plain, ASKED.into(), any),
        ("too long", layer().at_most(500), plain, long.clone().into(), any),
        ("not too long", layer().at_most(5_000), plain, long.into(), large),
        ("form", layer(), plain, "model=large".into(), any),
        ("typed form", layer(), form, "a=1&m%6fdel=l%61rge".into(), large),
        (
            "form of a browser",
            layer(),
            &[("content-type", "Application/X-WWW-Form-Urlencoded ; charset=utf-8")],
            "model=large".into(),
            large,
        ),
        ("form without it", layer(), form, "models=large&model%20=large".into(), None),
        ("form with it twice", layer(), form, "model=small&model=large".into(), any),
        ("json as a form", layer(), form, ASKED.into(), large),
        ("json that is a form too", layer(), form, r#"{"model": "small", "x": "&model=large&"}"#.into(), any),
        ("form with a brace", layer(), form, "model=large&x={".into(), any),
        ("neither", layer(), form, "{model: 'large'}".into(), any),
        ("cut off", layer(), plain, ASKED[..ASKED.len() - 1].into(), any),
        ("more behind it", layer(), plain, format!("{ASKED}{ASKED}").into(), any),
        ("list", layer(), plain, format!("[{ASKED}]").into(), any),
        ("utf-16", layer(), plain, utf16, any),
        ("byte order mark", layer(), plain, format!("\u{feff}{ASKED}").into(), large),
        ("null", layer(), plain, "{\"model\": null}".into(), any),
        ("object", layer(), plain, "{\"model\": {\"name\": \"large\"}}".into(), any),
        ("no field", layer(), plain, "{}".into(), None),
        ("no body", layer(), plain, "".into(), None),
        ("skipped", skipping, &[("content-encoding", "gzip")], ASKED.into(), None),
        ("no fields", RequestFieldsLayer::new([""; 0]).unwrap(), plain, ASKED.into(), None),
    ] {
        let body: Vec<u8> = body;
        let mut request = asking(body.chunks(10).map(|piece| data(piece.to_vec())));
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let (model, _, passed) = seen(layer, request).await;
        assert_eq!((model.as_deref(), passed), (expected, Ok((body.into(), None))), "{case}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_breaks_off_behind_the_layer_too() {
    let (model, _, body) =
        seen(layer(), asking([data("{\"model\": \"large\","), Err("the client is gone")])).await;
    assert_eq!((model.as_deref(), body), (Some("any"), Err("the client is gone")));
}

#[tokio::test]
async fn other_fields_can_be_read_while_the_layer_serves() {
    let layer = layer();
    layer.swap(&RequestFieldsLayer::new(["n.best"]).unwrap());
    let (model, best, _) = seen(layer.clone(), asking([data(ASKED)])).await;
    assert_eq!((model, best), (None, Some(2)));
    assert!(RequestFieldsLayer::new(["a..b"]).unwrap_err().to_string().contains("\"a..b\""));
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_on_before_its_body_has_ended_if_that_is_long_or_slow() {
    let began = tokio::time::Instant::now();
    for (at_most, waited) in [(100, 5), (10, 0)] {
        let (sender, receiver) = mpsc::channel(2);
        sender.send("{\"model\": \"large\"".into()).await.unwrap();
        let before = began.elapsed();
        let goes_on = service_fn(async |request: Request<ReadBody<Live>>| {
            assert!(!request.body().is_end_stream());
            Ok::<_, Infallible>(RequestFields::of((&request).into()).unwrap().is_readable())
        });
        let layer = layer().at_most(at_most);
        let is_readable = layer.layer(goes_on).oneshot(Request::new(Live(receiver))).await.unwrap();
        assert_eq!((is_readable, (began.elapsed() - before).as_secs()), (false, waited), "{at_most}");
        drop(sender);
    }
}

/// The service is not held ready by a request whose body does not come.
#[tokio::test]
async fn a_request_that_is_read_keeps_no_readiness_from_others() {
    let handler = service_fn(async |_: Request<ReadBody<Live>>| Ok::<_, Infallible>("ok"));
    let one_at_once = tower::limit::ConcurrencyLimit::new(handler, 1);
    let service = layer().layer(one_at_once);
    let (sender, receiver) = mpsc::channel(2);
    let mut slow = Box::pin(service.clone().oneshot(Request::new(Live(receiver))));
    assert!(slow.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let (other, receiver) = mpsc::channel(2);
    other.send("{}".into()).await.unwrap();
    drop(other);
    assert_eq!(service.oneshot(Request::new(Live(receiver))).await.unwrap(), "ok");
    drop(sender);
    assert_eq!(slow.await.unwrap(), "ok");
}

type Served = Ready<Result<Response<Body>, Infallible>>;

/// A service behind this limit, and the layer that reads for it.
fn limited(
    limit: Limit,
) -> impl Service<Request<Full<Bytes>>, Response = Response<Body>, Error = Infallible> + Clone {
    let handler = service_fn(|_: Request<ReadBody<Full<Bytes>>>| -> Served {
        ready(Ok(Response::new(Full::from("ok"))))
    });
    layer().layer(RateLimitLayer::new(limit).layer(handler))
}

async fn status<S>(service: &S, body: &str) -> u16
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let request = Request::post("/").header("x-key", "ada").body(Full::from(body.to_owned())).unwrap();
    service.clone().oneshot(request).await.unwrap().status().as_u16()
}

fn tokens() -> RateLimiter {
    on(&store().0, Policy::fixed_window("tokens", "10000/min"))
}

#[tokio::test]
async fn a_reservation_is_what_the_request_says_within_its_bounds() {
    for (body, reserved) in [
        ("{\"max_tokens\": 300}", 300),
        ("{\"max_tokens\": 0}", 1),
        ("{\"max_tokens\": 99999}", 2_000),
        ("{\"max_tokens\": \"many\"}", 2_000),
        ("{\"max_tokens\": 300.0}", 300),
        ("{\"max_tokens\": 3e2}", 300),
        ("{\"max_tokens\": 300.5}", 2_000),
        ("{\"max_tokens\": -5}", 2_000),
        ("{\"max_tokens\": null}", 2_000),
        ("{\"max_tokens\": 1, \"max_tokens\": 700}", 700),
        ("{}", 400),
        ("no JSON", 2_000),
        ("", 400),
    ] {
        let limiter = tokens();
        let reserve = Reserve::json("max_tokens", 400).unwrap().at_most(2_000);
        let limit = Limit::new(limiter.clone()).key(HeaderKey::new("x-key").unwrap()).reserve(reserve);
        assert_eq!(status(&limited(limit), body).await, 200);
        assert_eq!(10_000 - answer(limiter.peek("ada")).remaining(), reserved, "{body}");
    }
}

#[tokio::test]
async fn each_model_has_a_bucket_of_its_own_or_a_limit_of_its_own() {
    let limiter = on(&store().0, Policy::fixed_window("calls", "1/min"));
    let mut statuses = Vec::new();
    let key = (HeaderKey::new("x-key").unwrap(), FieldKey::new("model").unwrap()).verified_before();
    let by_model = limited(Limit::new(limiter).key(key));
    for body in ["{\"model\": \"a\"}", "{\"model\": \"b\"}", "{\"model\": \"a\"}", "{\"model\": 7}", "{}"] {
        statuses.push(status(&by_model, body).await);
    }
    assert_eq!(statuses, [200, 200, 429, 200, 200]);
    for (body, expected) in [("no JSON", 200), ("[]", 429), ("{\"model\": [\"a\"]}", 429)] {
        assert_eq!(status(&by_model, body).await, expected, "{body} is in the bucket of what cannot be read");
    }
    let limiter = on(&store().0, Policy::fixed_window("large", "1/min"));
    let is_large = |fields: &RequestFields| fields.may_be("model", |model| model == "large");
    let limit = Limit::new(limiter).key(HeaderKey::new("x-key").unwrap());
    let only_large = limited(limit.only_if(move |request| RequestFields::of(request).is_some_and(is_large)));
    let mut statuses = Vec::new();
    for model in ["large", "small", "large", "small"] {
        statuses.push(status(&only_large, &format!("{{\"model\": \"{model}\"}}")).await);
    }
    assert_eq!(statuses, [200, 200, 429, 200]);
}
