//! A module that has its own meaning for every name that the expansion could use.
#![deny(warnings)]
#![allow(non_camel_case_types, non_upper_case_globals, dead_code, unused_macros)]

#[path = "../support.rs"]
mod support;

mod strange {
    pub struct Ok;
    pub struct Err;
    pub struct Result;
    pub struct Option;
    pub struct Vec;
    pub struct Send;
    pub struct Clone;
    pub struct S;
    pub struct M;
    pub struct Policy;
    pub struct Limited;
    pub struct Request;
    pub struct Response;
    pub mod std {}
    pub mod core {}
    pub mod axum {}
    pub mod sluicegate {}
    macro_rules! vec {
        () => {};
    }
    macro_rules! concat {
        () => {};
    }

    pub const store: &str = "x-store";
    pub const limited: u64 = 1;
    pub const request: u8 = 0;
    pub const state: u8 = 0;

    #[::sluicegate::rate_limited("1/min", key = ::sluicegate::key::HeaderKey::new(store), cost = limited)]
    pub async fn handler(::axum::extract::Path(name): ::axum::extract::Path<String>) -> String {
        name
    }

    #[::sluicegate::rate_limited("1/min")]
    pub async fn attribute() -> &'static str {
        call().await
    }

    async fn call() -> &'static str {
        "the module's own"
    }

    #[::sluicegate::rate_limited("1/min", name = "state")]
    pub async fn generic<S: ::core::marker::Send + ::core::marker::Sync + 'static, M>() -> &'static str
    where
        M: ::core::marker::Send + 'static,
    {
        ::core::any::type_name::<(S, M)>()
    }
}

use axum::Router;
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt};

fn main() {
    let app: Router = Router::new()
        .route("/handler/{name}", get(strange::handler))
        .route("/attribute", get(strange::attribute))
        .route("/generic", get(strange::generic::<u8, u16>))
        .with_rate_limits(&MemoryStore::new());
    support::run(async {
        assert_eq!(support::get(&app, "/handler/ada").await.text, "ada");
        assert_eq!(support::get(&app, "/attribute").await.text, "the module's own");
        assert_eq!(support::get(&app, "/generic").await.text, "(u8, u16)");
    });
}
