//! Type parameters and constants, with bounds in both places, chosen where the route is made.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use std::fmt::{Debug, Display};

use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Path, State};
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

trait Greeter: Clone + Send + Sync + 'static {
    fn greet(&self, name: &str) -> impl Future<Output = String> + Send;
}

#[derive(Clone)]
struct Polite;

impl Greeter for Polite {
    async fn greet(&self, name: &str) -> String {
        format!("good day, {name}")
    }
}

#[derive(Clone)]
struct App {
    greeter: Polite,
}

impl FromRef<App> for Polite {
    fn from_ref(app: &App) -> Self {
        app.greeter.clone()
    }
}

#[rate_limited("9/min")]
async fn greet<G: Greeter>(State(greeter): State<G>, Path(name): Path<String>) -> String {
    greeter.greet(&name).await
}

#[rate_limited("9/min", name = "shown")]
async fn show<T, const N: usize>(extracted: T) -> String
where
    T: FromRequestParts<App> + Debug,
    String: Display,
{
    format!("{extracted:?} {N}")
}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/greet/{name}", get(greet::<Polite>))
        .route("/method", get(show::<axum::http::Method, 3>))
        .route("/uri", get(show::<axum::http::Uri, 4>))
        .with_rate_limits(&MemoryStore::new())
        .with_state(App { greeter: Polite });
    support::run(async {
        assert_eq!(support::get(&app, "/greet/ada").await.text, "good day, ada");
        assert_eq!(support::get(&app, "/method").await.text, "GET 3");
        let uri = support::get(&app, "/uri").await;
        // Both have the limit of one attribute.
        assert_eq!((&*uri.text, &uri.headers["x-ratelimit-remaining"]), ("/uri 4", &"7".parse().unwrap()));
    });
}
