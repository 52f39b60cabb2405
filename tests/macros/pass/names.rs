//! Names: the path of the function, with what a policy's name cannot have, and one that is given.
#![deny(warnings)]

#[path = "../support.rs"]
mod support;

use axum::Router;
use axum::routing::get;
use sluicegate::attribute::RateLimitStore;
use sluicegate::respond::HeaderFields;
use sluicegate::{MemoryStore, rate_limited};

#[rate_limited("1/min")]
async fn with_underscores_2() {}

#[rate_limited("1/min")]
async fn r#move() {}

#[rate_limited("1/min")]
async fn _leading() {}

#[allow(non_snake_case)]
#[rate_limited("1/min")]
async fn logIn() {}

#[rate_limited("1/min", name = "given")]
async fn other() {}

fn main() {
    let limits =
        RateLimitStore::new(&MemoryStore::new()).configure(|limits| limits.headers(HeaderFields::All));
    let app: Router = Router::new()
        .route("/underscores", get(with_underscores_2))
        .route("/move", get(r#move))
        .route("/leading", get(_leading))
        .route("/login", get(logIn))
        .route("/given", get(other))
        .layer(limits);
    support::run(async {
        let policy = async |path| {
            let headers = support::get(&app, path).await.headers;
            let policy = headers["ratelimit-policy"].to_str().unwrap().to_owned();
            policy.strip_suffix(";q=1;w=60").unwrap().trim_matches('"').to_owned()
        };
        // The crate's name is what the test calls it.
        let krate = module_path!().split("::").next().unwrap().replace(|c: char| c.is_uppercase(), "-");
        assert_eq!(policy("/underscores").await, format!("{krate}.with_underscores_2"));
        assert_eq!(policy("/move").await, format!("{krate}.move"));
        assert_eq!(policy("/leading").await, format!("{krate}._leading"));
        let hashed = policy("/login").await;
        assert!(hashed.ends_with(&format!(".{krate}.login")) && hashed.len() == krate.len() + 15, "{hashed}");
        assert_eq!(policy("/given").await, "given");
    });
}
