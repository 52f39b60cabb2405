//! Plans from verified tokens: each user has the limit of its plan, and costly endpoints get a tenth of it. Run it, and
//! try the `curl` lines that it prints.

use std::error::Error;
use std::future::ready;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use serde_json::json;
use sluicegate::key::{ApiKey, BearerJwt, RequestView};
use sluicegate::limits::Tiers;
use sluicegate::respond::HeaderFields;
use sluicegate::{
    ConfigError, KeyExtractor, Limit, MemoryStore, PeerIp, Policy, RateLimitExt, RateLimitLayer,
};
use sluicegate_examples::listen;

/// Everyone who knows it can make tokens. A real service uses 32 random bytes, and stores them with its other secrets.
const SECRET: &[u8] = b"known to all who read this example";

pub(crate) fn app(store: &MemoryStore) -> Result<Router, ConfigError> {
    // One policy, in which each key has the quota of its plan: when a user's plan changes, spent units stay spent.
    let plans = Tiers::builder(&Policy::gcra("api", "100/min").on(store)?)
        .tier("free", "100/min")
        .tier("pro", "1000/min")
        .unlimited("enterprise")
        .default_tier("free")
        .build()?;
    // In separate buckets, called `api.ai`: 10/min on the plan free, 100/min on pro.
    let ai = plans.share(1, 10, "ai")?;
    // A client that makes up API keys gets a bucket for each of them, but has one address.
    let address = Policy::gcra("address", "3000/min").on(store)?;

    Ok(Router::new()
        .route("/search", get(|| async { "found nothing\n" }))
        .route("/profile", get(|| async { "nobody in particular\n" }))
        // The default for all routes above, which have no limit of their own.
        .rate_limit(by_plan(plans)?)
        .route("/ai-generate", post(|| async { "an answer that took long\n" }).rate_limit(by_plan(ai)?))
        // In front of all routes. The header fields name every quota, including those of the inner plan.
        .rate_limit(RateLimitLayer::builder(address).headers(HeaderFields::All).build()?))
}

/// The verified token names the plan; the key is the token's subject, or else the API key, or else the address.
fn by_plan(plans: Tiers) -> Result<Limit, ConfigError> {
    let verifier = tokens()?;
    let plan_of = move |request: RequestView<'_>| {
        let claims = verifier.verify(request).ok();
        ready(claims.and_then(|claims| claims.text("plan").map(str::to_owned)))
    };
    let key = tokens()?.or(ApiKey::header("x-api-key")?).or(PeerIp::new());
    Ok(Limit::tiered_async(plans, plan_of).key(key))
}

fn tokens() -> Result<BearerJwt, ConfigError> {
    Ok(BearerJwt::hs256(SECRET)?.issuer("https://login.example.com"))
}

/// The token that the login service gives to a user, valid for a day.
fn token(user: &str, plan: &str, secret: &[u8]) -> Result<String, jsonwebtoken::errors::Error> {
    let expires = get_current_timestamp() + 24 * 60 * 60;
    let claims = json!({ "iss": "https://login.example.com", "sub": user, "plan": plan, "exp": expires });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(secret))
}

pub(crate) fn guide(address: SocketAddr) -> Result<String, Box<dyn Error>> {
    Ok(format!(
        "\
Plans on http://{address}: free 100 a minute, pro 1000, enterprise no limit; a tenth of that for POST /ai-generate.
Without a good token, the plan is free. All of an address together: 3000 a minute.

Tokens:

  FREE={free}
  PRO={pro}
  ENTERPRISE={enterprise}
  FORGED={forged}

Try:

  for i in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}}\\n' -X POST -H \"Authorization: Bearer $FREE\" http://{address}/ai-generate; done | uniq -c
  for t in $FREE $PRO $ENTERPRISE $FORGED; do curl -si -H \"Authorization: Bearer $t\" http://{address}/search | grep -iE '^(HTTP|ratelimit)'; done
  for k in one two; do curl -si -H \"x-api-key: $k\" http://{address}/profile | grep -iE '^(HTTP|ratelimit:)'; done
  curl -si http://{address}/profile | grep -iE '^(HTTP|ratelimit:)'

Ctrl-C ends it.",
        free = token("ada", "free", SECRET)?,
        pro = token("bob", "pro", SECRET)?,
        enterprise = token("eve", "enterprise", SECRET)?,
        forged = token("mallory", "enterprise", b"not the secret of the login service")?,
    ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?)?);
    axum::serve(listener, app(&MemoryStore::new())?.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
        .await?;
    Ok(())
}
