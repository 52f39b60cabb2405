//! Keys of every kind: extractors, results of them, combined ones, closures, constants and paths.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::http::{HeaderName, Request};
use axum::routing::get;
use sluicegate::key::{Extraction, HeaderKey, RequestView, key_fn, key_from_extension};
use sluicegate::{Key, KeyExtractor, MemoryStore, PeerIp, RateLimitExt, rate_limited};

const FOR_ALL: fn() -> Key = || Key::from("all");

struct ByLanguage;

impl KeyExtractor for ByLanguage {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match request.headers.get("accept-language") {
            Some(language) => Extraction::found(language.as_bytes()),
            None => Extraction::missing("no language"),
        }
    }
}

#[rate_limited("1/min", key = HeaderKey::new("x-api-key"))]
async fn header() {}

#[rate_limited("1/min", key = HeaderKey::new("x-api-key")?.or(PeerIp::new()))]
async fn question_mark() {}

#[rate_limited("1/min", key = (HeaderKey::new("x-api-key")?, ByLanguage))]
async fn tuple() {}

#[rate_limited("1/min", key = key_fn(|request| request.uri.query().map(str::to_owned)))]
async fn closure() {}

#[rate_limited("1/min", key = key_from_extension(|id: &u64| *id))]
async fn extension() {}

#[rate_limited("1/min", key = FOR_ALL())]
async fn constant() {}

#[rate_limited("1/min", key = { let name = HeaderName::from_static("x-user"); HeaderKey::new(name.as_str()) })]
async fn block() {}

#[rate_limited("1/min", key = ByLanguage)]
async fn own() {}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/header", get(header))
        .route("/question_mark", get(question_mark))
        .route("/tuple", get(tuple))
        .route("/closure", get(closure))
        .route("/extension", get(extension))
        .route("/constant", get(constant))
        .route("/block", get(block))
        .route("/own", get(own))
        .with_rate_limits(&MemoryStore::new());
    let from = |path: &str, key: &str, language: &str| {
        let request = Request::get(path).header("x-api-key", key).header("x-user", key);
        request
            .header("accept-language", language)
            .extension(key.len() as u64)
            .body(Default::default())
            .unwrap()
    };
    support::run(async {
        for path in ["/header", "/question_mark", "/tuple", "/extension", "/block"] {
            for (key, status) in [("a", 200), ("a", 429), ("bb", 200)] {
                assert_eq!(support::send(&app, from(path, key, "en")).await.status, status, "{path} {key}");
            }
        }
        for path in ["/tuple", "/own"] {
            for (language, status) in [("de", 200), ("de", 429), ("fr", 200)] {
                assert_eq!(
                    support::send(&app, from(path, "a", language)).await.status,
                    status,
                    "{path} {language}"
                );
            }
        }
        for (path, status) in [("/closure?a", 200), ("/closure?a", 429), ("/closure?b", 200)] {
            assert_eq!(support::send(&app, from(path, "a", "en")).await.status, status, "{path}");
        }
        assert_eq!(support::statuses(&app, "/constant", 2).await, [200, 429]);
    });
}
