//! Nothing that a client or a server writes takes longer than in proportion to its length: 400 kB of each shape that
//! an extractor or a parser loops over, against 100 kB of it.

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{HeaderValue, Request, Response};
use sluicegate_core::{Key, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::InFlightLayer;
#[cfg(feature = "jwt")]
use sluicegate_tower::key::BearerJwt;
use sluicegate_tower::key::{ApiKey, Bearer, Cookie, HeaderKey, PeerAddr, RequestPath};
use sluicegate_tower::limits::path_in;
use sluicegate_tower::outgoing::OutgoingLayer;
use sluicegate_tower::{ClientIp, KeyExtractor, Limit, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Body, limiter};

const SIZE: usize = 100_000;

/// In proportion is four times; with each byte looked at for each byte, it is sixteen times.
const MOST: u32 = 9;

/// Below this, a difference is that of caches.
const NOISE: Duration = Duration::from_millis(5);

/// The time that this thread has worked, without that in which others did.
fn worked() -> Duration {
    // The scheduler counts when a thread gives way.
    std::thread::yield_now();
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let counted = counted.and_then(|line| line.split(' ').next()?.parse().ok());
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    counted.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Asserts that `work` on four times as much takes about four times as long.
fn grows_in_proportion<T>(what: &str, size: usize, prepare: impl Fn(usize) -> T, work: impl Fn(&T)) {
    let least = |size| {
        let input = prepare(size);
        let time = || {
            let start = worked();
            work(&input);
            worked() - start
        };
        (0..3).map(|_| time()).min().unwrap()
    };
    let (small, large) = (least(size), least(4 * size));
    assert!(
        large < MOST * small + NOISE,
        "{what}: {small:?} for {size} bytes, {large:?} for four times as many"
    );
}

/// As much of a text again and again as fits.
fn filled(begin: &str, unit: &str, end: &str, size: usize) -> String {
    format!("{begin}{}{end}", unit.repeat(size / unit.len()))
}

/// The head of a request from a proxy, with fields.
fn parts(fields: impl IntoIterator<Item = (&'static str, String)>) -> Parts {
    let mut request = Request::get("/").extension(PeerAddr("10.0.0.9:443".parse().unwrap()));
    for (name, value) in fields {
        request = request.header(name, HeaderValue::try_from(value).unwrap());
    }
    request.body(()).unwrap().into_parts().0
}

/// Fields of one extractor in each shape, in one line, and as a line for each unit.
fn extracts(extractor: impl KeyExtractor, name: &'static str, shapes: &[[&str; 3]]) {
    for &[begin, unit, end] in shapes {
        let in_one_line = |size| parts([(name, filled(begin, unit, end, size))]);
        let in_lines = |size| {
            let lines = (0..size / 16).map(|_| (name, unit.to_owned()));
            parts(lines.chain([(name, format!("{begin}{unit}{end}"))]))
        };
        let extract = |parts: &Parts| _ = black_box(extractor.extract(parts.into()).now());
        grows_in_proportion(&format!("{name}: {begin}{unit}..{end}"), SIZE, in_one_line, extract);
        grows_in_proportion(&format!("lines of {name}: {unit}"), SIZE, in_lines, extract);
    }
}

#[test]
fn reading_cookies_takes_time_in_proportion() {
    let shapes = [
        ["session=\"", "\"", "\""],
        ["", "session=a;", ""],
        ["", "a=b;", ""],
        ["", ";", ""],
        ["", "=", ""],
        ["session=", "%25", ""],
        ["session=", "%", "32%35"],
        ["session=%22", "%22", "%22"],
        ["", "%73ession=s1;", ""],
        ["", "s%65", "=1"],
        ["session=", " ", "a"],
    ];
    extracts(Cookie::new("session").unwrap(), "cookie", &shapes);
    extracts(Cookie::new("session").unwrap().first_of_several(), "cookie", &shapes);
    for session in [Cookie::new("session").unwrap(), Cookie::new("session").unwrap().first_of_several()] {
        // The value in quotes, and again and again without: 380 kB of it once took eight seconds.
        let quotes_and_cookies = |size: usize| {
            let quotes = "\"".repeat(size / 4);
            parts([("cookie", filled(&format!("session={quotes}a{quotes};"), "session=a;", "", size / 2))])
        };
        let extract = |parts: &Parts| _ = black_box(session.extract(parts.into()).now());
        grows_in_proportion("quotes and cookies", SIZE, quotes_and_cookies, extract);
    }
}

#[test]
fn reading_addresses_takes_time_in_proportion() {
    let behind = || ClientIp::behind(["10.0.0.0/8"]).unwrap();
    let list = [
        ["", "10.0.0.1, ", "10.0.0.2"],
        ["", ",", ""],
        ["", " ", ""],
        ["", "a", ""],
        ["", "1.", ", 10.0.0.1"],
        ["[", ":", "]"],
        ["fe80::1%", "%", ""],
    ];
    extracts(behind(), "x-forwarded-for", &list);
    extracts(ClientIp::hops(32).unwrap(), "x-forwarded-for", &list);
    extracts(ClientIp::insecure_behind_anyone(), "x-forwarded-for", &list);
    extracts(behind().header("x-real-ip").unwrap(), "x-real-ip", &list);
    let pairs = [
        ["", "for=10.0.0.1, ", "for=10.0.0.2"],
        ["", "for=10.0.0.1;", ""],
        ["", ";", "for=10.0.0.1"],
        ["", "\"", ""],
        ["", "\\", "\""],
        ["for=\"", "\\\"", "\""],
        ["for=\"", ",", "\""],
        ["", "a=\"\";", "for=10.0.0.1"],
        ["", "=", ""],
        ["", ",\"", ""],
    ];
    extracts(behind().forwarded(), "forwarded", &pairs);
    extracts(ClientIp::insecure_behind_anyone().forwarded(), "forwarded", &pairs);
}

#[test]
fn reading_credentials_takes_time_in_proportion() {
    let values = [["", "a", ""], ["", " ", "a"], ["a", " ", "a"]];
    extracts(ApiKey::header("x-api-key").unwrap(), "x-api-key", &values);
    extracts(HeaderKey::new("x-key").unwrap(), "x-key", &values);
    let tokens = [
        ["Bearer ", "a", ""],
        ["Bearer ", " ", "a"],
        ["Bearer ", "a", "!"],
        ["Bearer a", "=", ""],
        ["Bearer a", "=a", ""],
        ["Bearer ", "a.", "a"],
        ["Bearer e30.", "e30", ".e30"],
    ];
    extracts(Bearer::new(), "authorization", &tokens);
    #[cfg(feature = "jwt")]
    extracts(BearerJwt::hs256(&[7; 32]).unwrap(), "authorization", &tokens);
}

#[test]
fn reading_paths_takes_time_in_proportion() {
    // A path has 64 KiB at most.
    const SIZE: usize = 15_000;
    let is_open = path_in(["/health", "/metrics/*", "/{a}/{b}", "/*"]).unwrap();
    for unit in ["/a", "/", "/..", "/a/..", "/./", ";", "%", "%2e", "/%2E%2e", "%41", "a"] {
        let path = |size| {
            let mut parts = parts([]);
            parts.uri = filled("/", unit, "", size).parse().unwrap();
            parts
        };
        let extract = |parts: &Parts| {
            _ = black_box((RequestPath::new().extract(parts.into()).now(), is_open(parts.into())))
        };
        grows_in_proportion(unit, SIZE, path, extract);
    }
}

/// The result of a call that nobody else has to wake.
fn now<T>(call: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(call)
}

#[test]
fn choosing_the_body_of_a_refusal_takes_time_in_proportion() {
    let closed = RateLimitLayer::builder(limiter(Policy::gcra("api", "1/h"))).deny(|_| true).build().unwrap();
    let nobody = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Body::default()))));
    let service = closed.layer(nobody);
    for unit in ["text/html,", "text/html;q=0.1,", ";", ",", ";q=1", ";a=b", "*/*, ", "a", " ", "\""] {
        let refused = |parts: &Parts| {
            let response = now(service.clone().oneshot(Request::from_parts(parts.clone(), ())));
            assert_eq!(response.unwrap().status(), 403);
        };
        grows_in_proportion(unit, SIZE, |size| parts([("accept", filled("", unit, "", size))]), refused);
    }
}

/// Fields of a response, in each shape that lists of structured fields can have.
const LISTS: [[&str; 3]; 12] = [
    ["", "\"x\";r=0;t=3, ", "\"y\";r=0"],
    ["", "\"api\";r=0, ", "\"y\";r=0"],
    ["\"x\"", ";a", ""],
    ["\"x\";r=0", ";t=3", ""],
    ["\"", "\\\"", "\""],
    ["\"", ",", "\";r=0"],
    ["(", "\"x\" ", ")"],
    ["", "(", ""],
    ["", ",", ""],
    ["", " ", ""],
    ["\"x\";r=", "0", ""],
    [":", "YQ==", ":"],
];

#[test]
fn heeding_a_server_takes_time_in_proportion() {
    let shapes = LISTS.map(|shape| ("ratelimit", shape));
    let others =
        [("retry-after", ["", "9", ""]), ("retry-after", ["Sat, ", " ", "21 Nov"]), ("date", ["", "a", ""])];
    for (name, [begin, unit, end]) in shapes.into_iter().chain(others) {
        let answer = |size| Arc::new(HeaderValue::try_from(filled(begin, unit, end, size)).unwrap());
        let heed = |value: &Arc<HeaderValue>| {
            let value = Arc::clone(value);
            let server = service_fn(move |_: Request<()>| {
                let mut response = Response::new(());
                *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
                response.headers_mut().insert(name, (*value).clone());
                ready(Ok::<_, Infallible>(response))
            });
            now(OutgoingLayer::new().layer(server).oneshot(Request::new(()))).unwrap();
        };
        grows_in_proportion(&format!("{name}: {begin}{unit}..{end}"), SIZE, answer, heed);
    }
}

#[test]
fn adding_to_the_fields_of_a_service_takes_time_in_proportion() {
    let shapes = LISTS.map(|shape| ("ratelimit", shape));
    let others = ["x-a, ", ",", "ratelimit", " "];
    let others = others.map(|unit| ("access-control-expose-headers", ["", unit, ""]));
    for (name, [begin, unit, end]) in shapes.into_iter().chain(others) {
        let answer = |size| Arc::new(HeaderValue::try_from(filled(begin, unit, end, size)).unwrap());
        let join = |value: &Arc<HeaderValue>| {
            let value = Arc::clone(value);
            let service = service_fn(move |_: Request<()>| {
                let mut response = Response::new(Body::default());
                response.headers_mut().insert(name, (*value).clone());
                ready(Ok::<_, Infallible>(response))
            });
            let limit = |name| Limit::new(limiter(Policy::gcra(name, "9/h"))).key(Key::from("all"));
            let inner = RateLimitLayer::builder(limit("api")).expose_headers().build().unwrap();
            let in_flight = InFlightLayer::new(InFlight::new("calls", 9).unwrap()).key(Key::from("all"));
            let service = RateLimitLayer::new(limit("outer")).layer(in_flight.layer(inner.layer(service)));
            now(service.oneshot(Request::new(()))).unwrap();
        };
        grows_in_proportion(&format!("{name}: {begin}{unit}..{end}"), SIZE, answer, join);
    }
}
