//! Proxies that ask before they forward, as each of them writes its requests. The proxies themselves are in the package `tests`.

use http::HeaderValue;
use reqwest::RequestBuilder;
use sluicegate_server::Bounds;
use sluicegate_tests::log::Log;

use crate::support::{Answered, RULES, Served, assert_rare};

const PATHS: [&str; 3] = ["/proxy/nginx", "/proxy/forward-auth", "/proxy/ext-authz"];

async fn behind_proxies(rules: &str) -> Served {
    Served::with(rules, |builder| builder.proxy("127.0.0.1")).await
}

/// The question of a proxy about a request of this peer.
fn about(
    served: &Served,
    dialect: &str,
    (method, target): (&str, &str),
    peer: impl AsRef<[u8]>,
) -> RequestBuilder {
    let asked = match dialect {
        "/proxy/nginx" => {
            served.get(dialect).header("x-original-method", method).header("x-original-uri", target)
        }
        "/proxy/forward-auth" => {
            served.get(dialect).header("x-forwarded-method", method).header("x-forwarded-uri", target)
        }
        _ => served.request(method, &format!("{dialect}{target}")),
    };
    asked.header("x-forwarded-for", HeaderValue::from_bytes(peer.as_ref()).unwrap())
}

async fn status(asked: RequestBuilder) -> (u16, Answered) {
    let answered = Answered::of(asked.send().await.unwrap()).await;
    let of_nginx = answered.field("x-sluicegate-status").parse();
    (of_nginx.unwrap_or(answered.status), answered)
}

/// Its own call has no body, so nginx says the length of the other one in a field.
#[tokio::test]
async fn the_length_that_nginx_passes_on_is_the_cost_and_the_status_of_the_policy_comes_back() {
    let rules = "
version: 1
policies: { bytes: { quota: 100/h, status: 503 } }
rules: [{ name: all, limit: bytes, key: client, cost: { bytes: request, min: 1, max: 90 } }]
";
    let served = behind_proxies(rules).await;
    let asked = |length| {
        let asked = about(&served, "/proxy/nginx", ("POST", "/"), "192.0.2.7");
        status(asked.header("x-original-content-length", length))
    };
    let (passed, answered) = asked("30").await;
    assert_eq!((passed, answered.field("x-ratelimit-remaining")), (200, "70"));
    assert_eq!(asked("71").await.0, 503);
    let unknown = about(&served, "/proxy/nginx", ("POST", "/"), "192.0.2.8");
    assert_eq!(status(unknown).await.1.field("x-ratelimit-remaining"), "10");
}

#[tokio::test]
async fn each_dialect_asks_for_the_request_that_the_proxy_received() {
    for dialect in PATHS {
        let served = behind_proxies(RULES).await;
        let login = |peer| status(about(&served, dialect, ("POST", "/login?next=/"), peer));
        for _ in 0..2 {
            assert_eq!(login("192.0.2.7").await.0, 200, "{dialect}");
        }
        let (refused, answered) = login("192.0.2.7").await;
        assert_eq!((refused, answered.field("retry-after")), (429, "12"), "{dialect}");
        assert_eq!(
            answered.status,
            if dialect == "/proxy/nginx" { 403 } else { 429 },
            "what the proxy passes on"
        );
        let (other, answered) = login("192.0.2.8:4711").await;
        assert_eq!((other, answered.field("x-ratelimit-remaining")), (200, "1"), "{dialect}");
        assert_eq!(status(about(&served, dialect, ("GET", "/login"), "192.0.2.7")).await.0, 200, "{dialect}");
        assert_eq!(
            status(about(&served, dialect, ("GET", "/internal/x"), "192.0.2.7")).await.0,
            403,
            "{dialect}"
        );
        let missing = about(&served, dialect, ("GET", "/members/7"), "192.0.2.7");
        assert_eq!(status(missing).await.0, 401, "{dialect}: the fields of the request count");
        let named = about(&served, dialect, ("GET", "/members/7"), "192.0.2.7").header("x-user", "ada");
        assert_eq!(status(named).await.0, 200, "{dialect}");
    }
}

#[tokio::test]
async fn the_host_is_that_of_the_original_request() {
    let rules = "
version: 1
policies: { one: { quota: 1/h } }
rules: [{ name: one, only_if: { host: a.example }, limit: one, key: everybody }]
";
    for dialect in PATHS {
        let served = behind_proxies(rules).await;
        let asks = |host: &'static str| {
            let asked = about(&served, dialect, ("GET", "/"), "192.0.2.7");
            let field = if dialect == "/proxy/forward-auth" { "x-forwarded-host" } else { "host" };
            async move { status(asked.header(field, host)).await.0 }
        };
        let answers = [asks("b.example").await, asks("a.example").await, asks("a.example").await];
        assert_eq!(answers, [200, 200, 429], "{dialect}");
    }
}

#[tokio::test]
async fn what_the_client_writes_into_x_forwarded_for_counts_as_the_rules_say() {
    let walked = RULES.replace("version: 1", "version: 1\nclients: { proxies: 10.0.0.0/8 }");
    for (rules, chain, other) in [
        // Nobody is trusted, so the peer of the proxy is the client.
        (RULES, "6.6.6.6, 192.0.2.7", "7.7.7.7, 192.0.2.7"),
        // A trusted hop in front of the proxy names the client.
        (&walked, "6.6.6.6, 192.0.2.7, 10.1.2.3", "7.7.7.7, 192.0.2.7, 10.9.9.9"),
    ] {
        let served = behind_proxies(rules).await;
        let login = |chain| status(about(&served, "/proxy/forward-auth", ("POST", "/login"), chain));
        assert_eq!(
            [login(chain).await.0, login(other).await.0, login(chain).await.0],
            [200, 200, 429],
            "{chain}"
        );
        let lines = about(&served, "/proxy/forward-auth", ("POST", "/login"), "6.6.6.6");
        let last = other.rsplit_once(", ").map_or(other, |(_, last)| last);
        let (client, hop) = if rules == RULES { ("5.5.5.5", last) } else { ("192.0.2.7", last) };
        let lines = lines.header("x-forwarded-for", format!("{client}, {hop}"));
        assert_eq!(status(lines).await.0, 429, "the last of several lines counts");
    }
}

/// nginx once took the 400 for a server that is away, and let the requests pass where it was told to.
#[tokio::test]
async fn bytes_that_are_no_text_in_front_of_the_last_address_change_neither_the_peer_nor_the_client() {
    let walked = RULES.replace("version: 1", "version: 1\nclients: { proxies: 10.0.0.0/8 }");
    for (rules, end) in [(RULES, "192.0.2.7"), (&walked, "192.0.2.7, 10.1.2.3")] {
        for dialect in PATHS {
            let served = behind_proxies(rules).await;
            let login = |begin: &[u8]| {
                let chain = [begin, end.as_bytes()].concat();
                status(about(&served, dialect, ("POST", "/login"), chain))
            };
            let answers = [login(b"\xff, ").await.0, login(b"").await.0, login(b"\xff\xfe,").await.0];
            assert_eq!(answers, [200, 200, 429], "{dialect}: {end}");
        }
    }
}

#[tokio::test]
async fn a_described_request_that_cannot_be_read_is_refused_as_the_proxy_understands_it() {
    let served = behind_proxies(RULES).await;
    for dialect in PATHS {
        for (method, target, peer) in [
            ("G T", "/", &b"192.0.2.7"[..]),
            ("GET", "", b"192.0.2.7"),
            ("GET", "/", b"unix:"),
            ("GET", "/", b"192.0.2.7, \xff"),
        ] {
            if dialect == "/proxy/ext-authz" && peer == b"192.0.2.7" {
                // Here the method and the target are those of the question itself.
                continue;
            }
            let (refused, answered) = status(about(&served, dialect, (method, target), peer)).await;
            assert_eq!(refused, 400, "{dialect}: {answered:?}");
            // nginx makes 500 of any status but these, and the other proxies pass a 400 on.
            let passed_on = if dialect == "/proxy/nginx" { 403 } else { 400 };
            assert_eq!(answered.status, passed_on, "{dialect}: {answered:?}");
            assert!(answered.detail().contains("cannot be read"), "{dialect}: {answered:?}");
        }
    }
}

/// Envoy once took the status of a refusal for that of a server that is away, and let the requests pass where it was told to.
#[tokio::test]
async fn a_refusal_has_no_status_that_its_proxy_takes_for_an_outage() {
    let busy = RULES.replace("on_missing_key: 401", "on_missing_key: 503");
    let mut bounds = Bounds::default();
    bounds.requests = 0;
    for (rules, bounds) in [(&*busy, Bounds::default()), (RULES, bounds)] {
        let served = Served::with(rules, |builder| builder.proxy("127.0.0.1").bounds(bounds)).await;
        for (dialect, passed_on) in PATHS.into_iter().zip([403, 503, 429]) {
            let (own, answered) = status(about(&served, dialect, ("GET", "/members/7"), "192.0.2.7")).await;
            assert_eq!((own, answered.status), (503, passed_on), "{dialect}: {answered:?}");
        }
    }
}

#[tokio::test]
async fn requests_that_cannot_be_read_write_one_line_a_second_into_the_log() {
    let (log, served) = (Log::of_this_thread(), behind_proxies(RULES).await);
    assert_rare(&log, &["cannot be read"], 100, async || {
        let (refused, _) = status(about(&served, "/proxy/nginx", ("GET", "/"), "unix:")).await;
        assert_eq!(refused, 400);
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_is_no_named_proxy_is_not_believed() {
    for proxies in [&[][..], &["192.0.2.0/24"]] {
        let served =
            Served::with(RULES, |builder| proxies.iter().fold(builder, |b, network| b.proxy(network))).await;
        for dialect in PATHS {
            let answered = status(about(&served, dialect, ("GET", "/"), "192.0.2.7")).await.1;
            assert_eq!((answered.status, answered.field("x-sluicegate-status")), (403, ""));
            assert!(answered.detail().contains("--proxy"), "{answered:?}");
        }
    }
}

#[tokio::test]
async fn a_named_proxy_needs_no_secret_and_may_only_ask_there() {
    let served = Served::with(RULES, |builder| builder.proxy("127.0.0.0/8").secret("0123456789abcdef")).await;
    for dialect in PATHS {
        assert_eq!(status(about(&served, dialect, ("GET", "/"), "192.0.2.7")).await.0, 200, "{dialect}");
    }
    let check = serde_json::json!({ "policy": "mail", "key": "ada" });
    assert_eq!(served.post("/v1/check", &check).send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_proxy_that_leaves_a_field_out_gets_500_and_a_target_that_only_proxies_accept_is_read() {
    let served = behind_proxies(RULES).await;
    for dialect in ["/proxy/nginx", "/proxy/forward-auth"] {
        let answered = Answered::of(served.get(dialect).send().await.unwrap()).await;
        assert!(
            answered.status == 500 && answered.detail().contains("which request is meant"),
            "{dialect}: {answered:?}"
        );
        for target in ["/members/<7>", "/members/7?a={\"b\":1}|^`", "/members/\\7"] {
            let (refused, _) = status(about(&served, dialect, ("GET", target), "192.0.2.7")).await;
            assert_eq!(refused, 401, "{dialect} {target}: it meets its rule");
        }
    }
    let error = sluicegate_server::Server::builder(served.rules.clone())
        .proxy("10.0.0.0/33")
        .bind()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("networks of proxies"), "{error}");
}
