//! Authentication, and where a server listens.

use serde_json::json;
use sluicegate_server::{ServeErrorKind, Server};
use sluicegate_tests::log::Log;
use sluicegate_tests::memory;

use crate::support::{Answered, RULES, Served, assert_rare, by_name};

const SECRET: &str = "0123456789abcdef";

#[tokio::test]
async fn with_a_secret_only_those_who_show_it_may_ask() {
    let served = Served::with(RULES, |builder| builder.secret("another of the same").secret(SECRET)).await;
    let check = json!({ "policy": "mail", "key": "ada" });
    for path in ["/v1/check", "/v1/peek", "/v1/reserve", "/v1/settle", "/v1/refund", "/v1/reset"] {
        let answered = Answered::of(served.post(path, &check).send().await.unwrap()).await;
        assert_eq!((answered.status, answered.field("www-authenticate")), (401, "Bearer"), "{path}");
    }
    assert_eq!(served.get("/metrics").send().await.unwrap().status(), 401);
    let wrong = served.post("/v1/check", &check).bearer_auth("0123456789abcdeF");
    assert_eq!(wrong.send().await.unwrap().status(), 401);
    for secret in [SECRET, "another of the same"] {
        let right = served.post("/v1/check", &check).bearer_auth(secret);
        assert_eq!(right.send().await.unwrap().status(), 200);
    }
    for path in ["/healthz", "/openapi.json"] {
        assert_eq!(served.get(path).send().await.unwrap().status(), 200, "{path} needs no secret");
    }
}

#[tokio::test]
async fn wrong_secrets_are_counted_and_write_one_line_a_second_into_the_log() {
    let log = Log::of_this_thread();
    let served = Served::with(RULES, |builder| builder.secret(SECRET)).await;
    assert_rare(&log, &["showed no secret"], 50, async || {
        assert_eq!(served.get("/metrics").bearer_auth("wrong").send().await.unwrap().status(), 401);
        let page = served.get("/status").basic_auth("ada", Some("wrong"));
        assert_eq!(page.send().await.unwrap().status(), 401);
    })
    .await;
}

#[tokio::test]
async fn the_status_page_is_for_people_who_have_the_secret_as_their_password() {
    let served = Served::with(RULES, |builder| builder.secret(SECRET)).await;
    let page = || served.get("/status.json").header("host", "localhost");
    let refused = page().send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert!(refused.headers()["www-authenticate"].to_str().unwrap().starts_with("Basic"));
    assert_eq!(page().basic_auth("ada", Some("wrong")).send().await.unwrap().status(), 401);
    let shown = page().basic_auth("ada", Some(SECRET)).send().await.unwrap();
    assert_eq!(shown.status(), 200);
    let page =
        served.get("/status").basic_auth("ada", Some(SECRET)).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("<form"), "an operator can change things");

    let open = Served::start().await;
    let page = open.get("/status").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("login") && !page.contains("<form"), "without a secret it is read-only");
}

#[tokio::test]
async fn what_others_reach_is_guarded_or_open_on_purpose() {
    let bind =
        async |address: &str,
               change: fn(sluicegate_server::ServerBuilder) -> sluicegate_server::ServerBuilder| {
            let builder = Server::builder(by_name(&memory::store().0, RULES)).http(address.parse().unwrap());
            change(builder).bind().await
        };
    for address in ["0.0.0.0:0", "[::]:0"] {
        let error = bind(address, |builder| builder).await.unwrap_err();
        assert_eq!(error.kind(), ServeErrorKind::Setting);
        assert!(error.to_string().contains("--insecure-open"), "{error}");
    }
    assert!(bind("0.0.0.0:0", sluicegate_server::ServerBuilder::insecure_open).await.is_ok());
    assert!(bind("0.0.0.0:0", |builder| builder.secret(SECRET)).await.is_ok());
    assert!(bind("127.0.0.1:0", |builder| builder).await.is_ok());
    let error = bind("127.0.0.1:0", |builder| builder.secret("short")).await.unwrap_err();
    assert!(error.to_string().contains("5 bytes; at least 16"), "{error}");
    let taken = bind("127.0.0.1:0", |builder| builder).await.unwrap();
    let address = taken.http_address().to_string();
    let error = bind(&address, |builder| builder).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ServeErrorKind::Listen, format!("{address} is not available"))
    );
}
