//! Every way to write another answer, in a crate that forbids what it can.
#![forbid(warnings, unused, nonstandard_style, unsafe_code, unused_qualifications, let_underscore_drop)]

#[path = "../support.rs"]
mod support;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::{Method, Uri};
use axum::response::Html;
use axum::routing::get;
use sluicegate::{Decided, MemoryStore, RateLimitExt, rate_limited};

#[derive(Clone)]
struct App;

#[derive(Clone)]
struct Part(&'static str);

impl FromRef<App> for Part {
    fn from_ref(_: &App) -> Self {
        Self("part")
    }
}

mod elsewhere {
    pub(crate) mod deep {
        use super::super::{App, Decided, Part, State, Uri};

        /// With a part of the state that the handler takes.
        pub(crate) async fn busy(
            part: State<Part>,
            _: State<App>,
            decided: Option<Decided>,
            uri: Uri,
        ) -> String {
            format!("{} {} {uri}", part.0.0, decided.is_some())
        }
    }
}

#[rate_limited("1/min", fallback = elsewhere::deep::busy)]
async fn path(_: State<App>) {}

#[rate_limited("1/min", fallback = |method: Method| async move { Html(method.to_string()) })]
async fn closure() {}

async fn generic<T: Default + ToString>() -> String {
    T::default().to_string()
}

#[rate_limited("1/min", fallback = generic::<u8>)]
async fn with_parameter() {}

#[rate_limited("1/min", fallback = second)]
async fn first(_: State<App>) -> &'static str {
    "first"
}

/// Limited itself.
#[rate_limited("1/min")]
async fn second(_: State<App>) -> &'static str {
    "second"
}

fn main() {
    let app = Router::new()
        .route("/path", get(path))
        .route("/closure", get(closure))
        .route("/parameter", get(with_parameter))
        .route("/first", get(first))
        .with_rate_limits(&MemoryStore::new())
        .with_state(App);
    support::run(async {
        for (path, text) in
            [("/path", "part true /path"), ("/closure", "GET"), ("/parameter", "0"), ("/first", "second")]
        {
            assert_eq!(support::get(&app, path).await.status, 200);
            let answer = support::get(&app, path).await;
            assert_eq!((answer.status, &*answer.text), (200, text));
        }
        assert_eq!(support::statuses(&app, "/first", 1).await, [429]);
    });
}
