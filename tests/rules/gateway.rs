//! The gateway of the examples, between real clients and real upstreams.

#[path = "../../examples/gateway.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod example;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{any, get};
use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use sluicegate::MemoryStore;
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate_tests::memory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use self::example::{Upstream, app};
use crate::rules::folder::Folder;
use crate::support::{Client, field, serve, whole};

const LONG: Duration = Duration::from_secs(60);

/// Answers, echoes, never answers, counts what comes, shows what it got, and breaks off.
fn upstream() -> Router {
    let shown = async |request: Request| {
        let mut names: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()))
            .collect();
        names.sort();
        ([("connection", "x-private"), ("x-private", "1"), ("x-public", "1")], names.concat())
    };
    let broken = async || {
        let parts = [Ok(Bytes::from("half")), Err("the disk is gone")];
        // The part comes through before the fault does.
        Response::new(Body::from_stream(futures_util::stream::iter(parts).then(async |part| {
            tokio::task::yield_now().await;
            part
        })))
    };
    Router::new()
        .route("/echo", any(async |request: Request| request.into_body()))
        .route("/never", any(std::future::pending::<()>))
        .route("/count", any(async |body: Bytes| body.len().to_string()))
        .route("/shown", get(shown))
        .route("/broken", get(broken))
        .fallback(async || "hello\n")
}

pub(crate) fn rules(text: &str) -> Rules {
    let (store, _) = memory::store();
    let file =
        RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    Rules::new(&store, file).expect("the store can keep them")
}

const GENEROUS: &str =
    "{ version: 1, policies: { a: { quota: 1000/h } }, rules: [{ name: all, limit: a, key: client }] }";

pub(crate) async fn gateway(rules: &Rules, upstream: SocketAddr, patience: Duration) -> SocketAddr {
    serve(app(rules, Upstream::at(&format!("http://{upstream}"), patience).unwrap())).await
}

/// The gateway before the upstream of all these tests.
async fn before_upstream(text: &str, patience: Duration) -> SocketAddr {
    gateway(&rules(text), serve(upstream()).await, patience).await
}

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    listener.local_addr().unwrap()
}

/// Sends a request whose body is what comes through the channel.
async fn upload(
    server: SocketAddr,
    path: &str,
) -> (mpsc::Sender<Bytes>, impl Future<Output = Response<Incoming>>) {
    let stream = TcpStream::connect(server).await.expect("the gateway listens");
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("it speaks HTTP/1.1");
    tokio::spawn(connection);
    let (parts, all) = mpsc::channel(1);
    let body = futures_util::stream::unfold(all, async |mut all: mpsc::Receiver<Bytes>| {
        let part = all.recv().await?;
        Some((Ok::<_, std::io::Error>(part), all))
    });
    let request = Request::post(path).header("host", "localhost").body(Body::from_stream(body)).unwrap();
    (parts, async move { sender.send_request(request).await.expect("the gateway answers") })
}

#[tokio::test]
async fn bodies_stream_both_ways_as_they_come() {
    let gateway = before_upstream(GENEROUS, LONG).await;
    let (parts, answer) = upload(gateway, "/echo").await;
    let answer = tokio::spawn(answer);
    parts.send("one".into()).await.unwrap();
    let mut body = answer.await.unwrap().into_body();
    for (said, next) in [("one", "two"), ("two", "three")] {
        // It is back before the next one is sent.
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), said);
        parts.send(next.into()).await.unwrap();
    }
    drop(parts);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "three");
}

#[tokio::test]
async fn an_upload_that_goes_on_is_not_slow() {
    // Longer than a busy machine leaves a task alone.
    let patience = Duration::from_secs(1);
    let gateway = before_upstream(GENEROUS, patience).await;
    let (parts, answer) = upload(gateway, "/count").await;
    let answer = tokio::spawn(answer);
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < 3 * patience {
        parts.send("x".into()).await.unwrap();
        sent += 1;
        tokio::time::sleep(patience / 100).await;
    }
    drop(parts);
    let answer = whole(answer.await.unwrap()).await;
    assert_eq!((answer.status(), &answer.body()[..]), (StatusCode::OK, sent.to_string().as_bytes()));
}

/// Two an hour of each path, given back after 502 and 504 of the first only.
const REFUNDS: &str = "
version: 1
policies:
  given: { quota: 2/h }
  kept: { quota: 2/h }
rules:
  - { name: given, group: g, only_if: { path: [/given, /never] }, limit: given, key: client, refund_if: [502, 504] }
  - { name: kept, group: g, limit: kept, key: client }
";

#[tokio::test]
async fn an_upstream_that_is_down_is_502_and_costs_nothing_where_the_rule_says_so() {
    let gateway = gateway(&rules(REFUNDS), nobody().await, LONG).await;
    let mut client = Client::connect(gateway).await;
    for number in 0..6 {
        let given = client.get("/given").await;
        assert_eq!((given.status(), field(&given, "x-ratelimit-remaining")), (StatusCode::BAD_GATEWAY, "2"));
        let expected = if number < 2 { StatusCode::BAD_GATEWAY } else { StatusCode::TOO_MANY_REQUESTS };
        assert_eq!(client.get("/kept").await.status(), expected, "number {number}");
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_504_and_costs_nothing_where_the_rule_says_so() {
    let gateway = before_upstream(REFUNDS, Duration::from_secs(1)).await;
    let mut client = Client::connect(gateway).await;
    for _ in 0..3 {
        let never = client.get("/never").await;
        assert_eq!(
            (never.status(), field(&never, "x-ratelimit-remaining")),
            (StatusCode::GATEWAY_TIMEOUT, "2")
        );
    }
    assert_eq!(client.get("/given").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_here() {
    let gateway = before_upstream(GENEROUS, LONG).await;
    let answer = Client::connect(gateway).await.begin(http::Method::GET, "/broken").await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.into_body().collect().await.is_err(), "a client must not take the half for the whole");
}

#[tokio::test]
async fn what_is_of_one_connection_stays_there_and_the_peer_is_named() {
    let gateway = before_upstream(GENEROUS, LONG).await;
    let request = Request::get("/shown")
        .header("connection", "keep-alive, X-Hop")
        .header("x-hop", "1")
        .header("te", "trailers")
        .header("upgrade", "websocket")
        .header("x-forwarded-for", "6.6.6.6")
        .header("accept", "*/*");
    let answer =
        whole(Client::connect_from([127, 0, 0, 7], gateway).await.begin_with(request, "").await).await;
    assert_eq!(
        answer.body(),
        "accept: */*\nhost: localhost\nx-forwarded-for: 127.0.0.7\nx-forwarded-for: 6.6.6.6\n"
    );
    assert_eq!(field(&answer, "x-public"), "1");
    assert!(!answer.headers().contains_key("x-private") && !answer.headers().contains_key("connection"));
}

#[tokio::test]
async fn the_limits_are_those_of_the_file_beside_the_example() {
    let text = include_str!("../../examples/gateway/rules.yaml");
    let gateway = before_upstream(text, LONG).await;
    let mut client = Client::connect(gateway).await;
    assert_eq!(client.get("/internal/keys").await.status(), StatusCode::FORBIDDEN);
    assert_eq!(client.get("/api/v1").await.status(), StatusCode::UNAUTHORIZED);
    let with_key = http::Request::get("/api/v1").header("x-api-key", "k");
    let answer = whole(client.begin_with(with_key, "").await).await;
    assert_eq!(field(&answer, "ratelimit-policy"), r#""client";q=20;w=2, "api_key";q=1000;w=60"#);
    let mut logins = Vec::new();
    for _ in 0..6 {
        logins.push(client.post("/login").await.status().as_u16());
    }
    assert_eq!(logins, [200, 200, 200, 200, 200, 429]);
    // 19 are left, and six were one too many for the login only: a refused request spends nothing.
    let mut passed = 0;
    while client.get("/").await.status() == StatusCode::OK {
        passed += 1;
    }
    assert_eq!(passed, 14);
    assert_eq!(client.get("/health").await.status(), StatusCode::OK);
}

/// An upstream that resolves or decodes them would serve what the rules deny, or a login that no rule has counted.
#[tokio::test]
async fn no_path_in_disguise_gets_past_the_rules() {
    let text = include_str!("../../examples/gateway/rules.yaml");
    let gateway = before_upstream(text, LONG).await;
    let mut client = Client::connect(gateway).await;
    for path in ["/internal", "/internal/", "/internal/x", "/internal/x?y=/../"] {
        assert_eq!(client.get(path).await.status(), StatusCode::FORBIDDEN, "{path}");
    }
    let disguised = [
        "/x/../internal/x",
        "/./internal/x",
        "/%2e/internal/x",
        "/x/%2E%2e/internal/x",
        "/x/.%2e/internal/x",
        "/x/..;a=b/internal/x",
        "/x/..",
        "/internal%2fx",
        "/internal%2Fx",
        "/x%5c..%5cinternal",
        "/%69nternal/x",
        "//internal/x",
        "/%/x",
        "/internal;x/y",
        "/INTERNAL/y",
        "/Internal/",
    ];
    for path in disguised {
        let status = client.get(path).await.status();
        assert!([StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN].contains(&status), "{path}: {status}");
    }
    assert_eq!(client.post("/x/../login").await.status(), StatusCode::BAD_REQUEST);
    for path in ["/a.b/..c/.well-known/x", "/?next=/../%2F", "/100%25"] {
        assert_eq!(client.get(path).await.status(), StatusCode::OK, "{path}");
    }
}

/// A server that cuts parameters off, and ignores case and a slash at the end, counts what comes to each path as it reads it.
async fn free_upstream(served: mpsc::UnboundedSender<String>) -> SocketAddr {
    let serve_freely = async move |request: Request| {
        let path = request.uri().path().to_ascii_lowercase();
        let segments: Vec<_> = path.split('/').map(|segment| segment.split(';').next().unwrap()).collect();
        served.send(segments.join("/").trim_end_matches('/').to_owned()).unwrap();
    };
    serve(Router::new().fallback(serve_freely)).await
}

/// 8 of 8 spellings of each kind passed after `/login` said 429, and reached what is denied.
#[tokio::test]
async fn an_upstream_that_reads_paths_freely_is_not_reached_past_the_rules() {
    let text = include_str!("../../examples/gateway/rules.yaml");
    let (served, mut all) = mpsc::unbounded_channel();
    let gateway = gateway(&rules(text), free_upstream(served).await, LONG).await;
    let mut client = Client::connect(gateway).await;
    let spellings =
        ["/login", "/login/", "/LOGIN", "/login;x", "/Login;x=1/", "/lOGIN;/", "/login;a;b/;c", "/;x/login"];
    for (number, path) in spellings.iter().cycle().take(24).enumerate() {
        let status = client.post(path).await.status();
        assert!(number < 5 || status != StatusCode::OK, "{path}: {status}");
    }
    for path in
        ["/internal", "/INTERNAL/y", "/internal;x/y", "/Internal/;x", "/internal/y;z", "/;/internal/y"]
    {
        let status = client.get(path).await.status();
        assert!(![StatusCode::OK, StatusCode::NOT_FOUND].contains(&status), "{path}: {status}");
    }
    let mut logins = 0;
    while let Ok(path) = all.try_recv() {
        assert!(!path.contains("internal"), "{path}");
        logins += usize::from(path.trim_start_matches('/') == "login");
    }
    assert!((1..=5).contains(&logins), "{logins} logins at 5 a minute");
}

/// Two an hour for one host, whatever else is asked for.
const OF_A_HOST: &str = "
version: 1
policies: { a: { quota: 2/h }, b: { quota: 1000/h } }
rules:
  - { name: api, group: g, only_if: { host: api.example }, limit: a, key: everybody }
  - { name: rest, group: g, limit: b, key: everybody }
";

/// Sends the head as it stands, and reads status and body.
async fn raw(server: SocketAddr, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server).await.expect("the gateway listens");
    stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("it is an answer");
    (status, answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
}

/// The limit was on the host of one field, and the upstream got another: 5 of 5 passed.
#[tokio::test]
async fn the_upstream_gets_the_host_by_which_the_rules_have_decided() {
    let gateway = before_upstream(OF_A_HOST, LONG).await;
    let ask = async |line: &str, hosts: &[&str]| {
        let fields: String = hosts.iter().map(|host| format!("host: {host}\r\n")).collect();
        raw(gateway, &format!("{line}\r\n{fields}")).await
    };
    for (line, host, told) in [
        ("GET http://other.example/shown HTTP/1.1", "api.example", "other.example"),
        ("GET http://other.example:81/shown HTTP/1.1", "api.example", "other.example:81"),
        ("GET http://u:p@other.example/shown HTTP/1.1", "api.example", "other.example"),
        ("GET /shown HTTP/1.1", "other.example", "other.example"),
    ] {
        for _ in 0..5 {
            let (status, body) = ask(line, &[host]).await;
            assert_eq!(status, 200, "{line}");
            assert!(
                body.contains(&format!("host: {told}\n")) && !body.contains("api.example"),
                "{line}: {body}"
            );
        }
    }
    let two =
        [&["api.example", "other.example"][..], &["other.example", "api.example"], &["other.example"; 2]];
    for hosts in two {
        assert_eq!(ask("GET /shown HTTP/1.1", hosts).await.0, 400, "{hosts:?}");
        assert_eq!(ask("GET http://other.example/shown HTTP/1.1", hosts).await.0, 400, "{hosts:?}");
    }
    for hosts in [
        &[][..],
        &[""],
        &["x@api.example"],
        &["api.example, other.example"],
        &["api.example/x"],
        &["api example"],
    ] {
        assert_eq!(ask("GET /shown HTTP/1.1", hosts).await.0, 400, "{hosts:?}");
    }
    assert_eq!(ask("GET /shown HTTP/1.0", &[]).await.0, 400);
    let mut passed = 0;
    for host in ["api.example", "API.example.", "api.example:80", "api.example", "api.example"] {
        passed += usize::from(ask("GET /shown HTTP/1.1", &[host]).await.0 == 200);
    }
    assert_eq!(passed, 2);
}

/// Without a condition on the host the rules let it pass, and the gateway does not.
#[tokio::test]
async fn two_hosts_are_refused_whatever_the_rules_look_at() {
    let gateway = before_upstream(GENEROUS, LONG).await;
    assert_eq!(raw(gateway, "GET / HTTP/1.1\r\nhost: a.example\r\nhost: a.example\r\n").await.0, 400);
    assert_eq!(raw(gateway, "GET / HTTP/1.1\r\nhost: a.example\r\n").await, (200, "hello\n".to_owned()));
}

#[tokio::test]
async fn a_file_that_changes_takes_effect_while_the_gateway_runs() {
    let folder = Folder::with(GENEROUS);
    let rules = folder.open(MemoryStore::new());
    rules.follow();
    let gateway = gateway(&rules, serve(upstream()).await, LONG).await;
    let mut client = Client::connect(gateway).await;
    for limit in ["900", "2000"] {
        folder.swap(&GENEROUS.replace("1000", limit));
        let deadline = Instant::now() + LONG;
        while field(&client.get("/").await, "x-ratelimit-limit") != limit {
            assert!(Instant::now() < deadline, "{limit} does not take effect");
        }
    }
}

#[test]
fn an_upstream_that_is_no_server_is_told_apart_from_one() {
    for (url, problem) in
        [("127.0.0.1:8080", "http://127.0.0.1:8080"), ("https://a", "plain HTTP"), ("", "not a URL")]
    {
        let error = Upstream::at(url, LONG).err().expect("it is none");
        assert!(error.contains(problem), "{error}");
    }
}

/// A key of the route needs a router in front of the rules.
#[tokio::test]
async fn a_key_of_the_route_is_one_bucket_for_all_of_its_paths() {
    let text = "version: 1
policies: { api: { quota: 2/h } }
rules: [{ name: all, limit: api, key: route, on_missing_key: 404 }]";
    let file = RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap();
    let rules = Rules::new(MemoryStore::new(), file).unwrap();
    let hello = || get(async || "hello");
    let app = Router::new().route("/users/{id}", hello()).route("/users/{id}/name", hello());
    let address = serve(app.fallback(async || "hello").layer(rules.layer())).await;
    let mut client = Client::connect(address).await;
    for (path, expected) in [
        ("/users/1", 200),
        ("/users/2?x=1", 200),
        ("/users/3", 429),
        ("/users/3/name", 200),
        ("/elsewhere", 404),
    ] {
        assert_eq!(client.get(path).await.status(), expected, "{path}");
    }
}
