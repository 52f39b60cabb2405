//! Every place where axum takes a handler: chained methods, nested and merged routers, fallbacks, sub-states.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::handler::{Handler, HandlerWithoutStateExt};
use axum::routing::{any, get};
use sluicegate::attribute::RateLimitStore;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[derive(Clone)]
struct App {
    number: u8,
}

impl FromRef<App> for u8 {
    fn from_ref(app: &App) -> Self {
        app.number
    }
}

#[rate_limited("2/min")]
async fn part(State(number): State<u8>) -> String {
    number.to_string()
}

#[rate_limited("2/min")]
async fn whole(State(app): State<App>) -> String {
    app.number.to_string()
}

#[rate_limited("2/min")]
async fn stateless() {}

pub(crate) fn main() {
    let store = MemoryStore::new();
    let inner: Router<App> = Router::new().route("/whole", any(whole));
    let app: Router = Router::new()
        .route("/part", get(part).post(whole).fallback(stateless))
        .nest("/inner", inner)
        .merge(Router::new().route("/merged", get(part)))
        .route_service("/service", stateless.into_service())
        .fallback(stateless)
        .with_rate_limits(&store)
        .route("/own", get(stateless.layer(RateLimitStore::new(&store))))
        .with_state(App { number: 7 });
    let alone: Router = Router::new().fallback_service(stateless.with_state(())).with_rate_limits(&store);
    support::run(async {
        assert_eq!(support::get(&app, "/part").await.text, "7");
        assert_eq!(support::get(&app, "/inner/whole").await.text, "7");
        assert_eq!(
            support::statuses(&app, "/merged", 2).await,
            [200, 429],
            "the same handler, the same bucket"
        );
        assert_eq!(support::get(&app, "/service").await.status, 200);
        assert_eq!(support::get(&app, "/own").await.status, 200);
        assert_eq!(support::get(&app, "/nowhere").await.status, 429);
        assert_eq!(support::get(&alone, "/").await.status, 429);
    });
}
