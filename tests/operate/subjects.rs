//! A user of signed tokens that is refused, as the person on call sees it: over sockets, on page, in JSON and in the log.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::get;
use http::{Request, StatusCode};
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use sluicegate::key::{ApiKey, BearerJwt};
use sluicegate::observed::Observed;
use sluicegate::status::StatusPage;
use sluicegate::{KeyExtractor, Limit, PeerIp, Policy, RateLimitExt, RateLimitLayer};
use sluicegate_tests::log::Log;

use crate::support::{Client, serve, whole};

const SECRET: &[u8] = b"a secret of 32 bytes, or of more";
const ISSUER: &str = "https://login.example.com";

fn token(subject: &str) -> String {
    let expires = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3_600;
    let claims = json!({ "sub": subject, "iss": ISSUER, "exp": expires });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET)).unwrap()
}

struct Page {
    client: Client,
    token: String,
}

impl Page {
    async fn get(&mut self, path: &str) -> String {
        let request = Request::get(path).header("x-operator", "ada");
        let response = whole(self.client.begin_with(request, "").await).await;
        assert_eq!(response.status(), StatusCode::OK);
        if let Some(token) = response.headers().get("x-status-token") {
            self.token = token.to_str().unwrap().to_owned();
        }
        String::from_utf8(response.into_body().to_vec()).unwrap()
    }

    async fn look_up(&mut self, body: Value) -> (StatusCode, Value) {
        let request = Request::post("/status/keys/look-up")
            .header("x-operator", "ada")
            .header("x-status-token", &self.token)
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/json");
        let response = whole(self.client.begin_with(request, body.to_string()).await).await;
        (response.status(), serde_json::from_slice(response.body()).unwrap())
    }
}

/// The page once said "passes" of a user who was refused, and the list, the JSON and the log had bytes of its digest as text.
#[tokio::test]
async fn the_subject_of_a_token_is_looked_up_with_its_issuer_and_shown_as_a_short_digest() {
    let (log, (store, clock)) = (Log::of_this_thread(), sluicegate_tests::memory::store());
    let store = Observed::named("subjects", store).unwrap();
    let users = Policy::gcra("users", "2/h").on(&store).unwrap();
    let tokens = BearerJwt::hs256(SECRET).unwrap().issuer(ISSUER).issuer("https://partner.example.com");
    let limit = RateLimitLayer::new(Limit::new(users).key(tokens.or(PeerIp::new())));
    let strict = Policy::gcra("strict", "1/h").on(&store).unwrap();
    let only = BearerJwt::hs256(SECRET).unwrap().issuer(ISSUER).or(ApiKey::header("x-api-key").unwrap());
    let strict = RateLimitLayer::new(Limit::new(strict).key(only));
    let page = StatusPage::new(&store)
        .limits("users", limit.limits_handle())
        .limits("strict", strict.limits_handle())
        .guard(|request| {
            request.headers.get("x-operator").and_then(|name| name.to_str().ok().map(str::to_owned))
        })
        .secret([7; 32])
        .host("localhost")
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .rate_limit(limit)
        .route("/strict", get(|| async { "hello" }).layer(strict))
        .nest_service("/status", page.clone())
        .route_service("/status.json", page);
    let server = serve(app).await;
    let mut user = Client::connect(server).await;
    for (path, expected) in [("/", [200, 200, 429, 429]), ("/strict", [200, 429, 429, 429])] {
        for status in expected {
            let request = Request::get(path).header("authorization", format!("Bearer {}", token("grace")));
            assert_eq!(user.begin_with(request, "").await.status(), status, "{path}");
        }
    }

    let mut page = Page { client: Client::connect(server).await, token: String::new() };
    let json: Value = serde_json::from_str(&page.get("/status.json").await).unwrap();
    let policy =
        |name: &str| json["policies"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    for name in ["users", "strict"] {
        let offender = &policy(name)["offenders"][0];
        let key = offender["key"].as_str().unwrap();
        assert_eq!(offender["kind"], "digest", "{offender}");
        assert!(key.len() == 8 && key.bytes().all(|digit| digit.is_ascii_hexdigit()), "{offender}");
        let body = page.get("/status").await;
        assert!(body.contains(&format!("digest {key}")), "{body}");
    }

    // As text there is no answer, and it says what to write.
    for (policy, forms) in [
        ("users", "the subject of a token, with its issuer, as \"subject\", or an address"),
        ("strict", "as \"subject\", or an API key or token, as \"secret\""),
    ] {
        let (status, answer) = page.look_up(json!({"policy": policy, "key": "grace"})).await;
        let said = answer["error"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(status == StatusCode::BAD_REQUEST && said.contains(forms), "{said}");
    }
    let remaining = |found: &Value| found["limits"][0]["quotas"][0]["remaining"].as_u64();
    let subject = json!({"policy": "users", "key": "grace", "as": "subject", "issuer": ISSUER});
    let (_, found) = page.look_up(subject.clone()).await;
    assert_eq!(remaining(&found), Some(0), "{found}");
    assert!(found["would_be"].as_str().unwrap().starts_with("is refused"), "{found}");
    let mut other = subject.clone();
    other["issuer"] = json!("https://partner.example.com");
    assert_eq!(remaining(&page.look_up(other).await.1), Some(2), "another issuer's user of that name");
    let mut unsaid = subject;
    unsaid.as_object_mut().unwrap().remove("issuer");
    assert_eq!(page.look_up(unsaid).await.0, StatusCode::BAD_REQUEST, "one of two issuers");
    // A single issuer need not be said.
    let (_, found) = page.look_up(json!({"policy": "strict", "key": "grace", "as": "subject"})).await;
    assert_eq!(remaining(&found), Some(0), "{found}");

    clock.advance(Duration::from_secs(60));
    page.get("/status").await;
    let lines = log.lines();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("a policy has refused requests")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("kind=\"digest\"") && line.is_ascii()), "{lines:?}");
}
