//! Handlers in `impl` blocks.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::routing::get;
use sluicegate_axum::{Decided, RateLimitStore, rate_limited};

use crate::support::{all_fields, get as ask, statuses, store};

#[derive(Clone)]
struct Api {
    greeting: &'static str,
}

#[derive(Clone)]
struct App {
    api: Api,
    shared: Arc<Api>,
}

impl FromRef<App> for Api {
    fn from_ref(app: &App) -> Self {
        app.api.clone()
    }
}

impl FromRef<App> for Arc<Api> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.shared)
    }
}

impl Api {
    const WORD: &'static str = "constant";

    #[rate_limited("2/min", crate = sluicegate_axum)]
    async fn plain(Path(name): Path<String>) -> String {
        // Not the `Self` of the method's type.
        struct Own(u8);
        impl Own {
            fn new() -> Self {
                Self(1)
            }
        }
        format!("{name} {}", Own::new().0)
    }

    #[rate_limited("2/min", crate = sluicegate_axum)]
    async fn own_type(State(api): State<Self>) -> String {
        format!("{} {}", Self::WORD, api.greeting)
    }

    /// Documented.
    #[rate_limited("2/min", crate = sluicegate_axum, fallback = Self::busy)]
    async fn by_reference(&self, Path(name): Path<String>) -> Result<String, String> {
        std::future::ready(()).await;
        if name == "nobody" {
            Err("nobody".to_owned())?
        }
        Ok(format!("{} {name}", self.greeting))
    }

    async fn busy(State(api): State<Self>, decided: Decided) -> String {
        format!("{}, later: {} left", api.greeting, decided.remaining())
    }

    #[rate_limited("2/min", crate = sluicegate_axum)]
    async fn by_value(mut self) -> &'static str {
        self.greeting = "by value";
        self.greeting
    }

    #[rate_limited("2/min", crate = sluicegate_axum)]
    pub(crate) async fn counted(self: Arc<Self>) -> String {
        format!("{} of {}", self.greeting, Arc::strong_count(&self) > 1)
    }
}

#[derive(Clone)]
struct Of<T>(T);

#[derive(Clone)]
struct Numbers;

impl FromRef<Numbers> for Of<u8> {
    fn from_ref(_: &Numbers) -> Self {
        Self(7)
    }
}

impl FromRef<Numbers> for Arc<u8> {
    fn from_ref(_: &Numbers) -> Self {
        Self::new(8)
    }
}

impl<T: ToString + Clone + Send + Sync + 'static> Of<T> {
    #[rate_limited("2/min", crate = sluicegate_axum)]
    async fn shown(&self) -> String {
        self.0.to_string()
    }

    /// Takes the parameter of its `impl` without a `self`: where it says `Self`, it is known to be in one.
    #[rate_limited("2/min", crate = sluicegate_axum)]
    async fn taken(State(value): State<Arc<T>>) -> String
    where
        Self: Sized,
    {
        value.to_string()
    }
}

#[tokio::test]
async fn a_method_is_called_on_the_routers_state() {
    let shared = Arc::new(Api { greeting: "shared" });
    let app = Router::new()
        .route("/plain/{name}", get(Api::plain))
        .route("/own_type", get(Api::own_type))
        .route("/by_reference/{name}", get(Api::by_reference))
        .route("/by_value", get(Api::by_value))
        .route("/counted", get(Api::counted))
        .layer(all_fields(&store()))
        .with_state(App { api: Api { greeting: "hello" }, shared });
    for (path, body) in [
        ("/plain/ada", "ada 1"),
        ("/own_type", "constant hello"),
        ("/by_reference/ada", "hello ada"),
        ("/by_value", "by value"),
        ("/counted", "shared of true"),
    ] {
        let seen = ask(&app, path).await;
        assert_eq!((seen.status.as_u16(), &*seen.body), (200, body));
    }
    assert_eq!(statuses(&app, "/own_type", 2).await, [200, 429]);
    assert_eq!(ask(&app, "/by_reference/nobody").await.body, "nobody");
    let later = ask(&app, "/by_reference/ada").await;
    assert_eq!((later.status.as_u16(), &*later.body), (200, "hello, later: 0 left"));
    let policy = ask(&app, "/counted").await.field("ratelimit-policy").to_owned();
    assert_eq!(policy, r#""it.methods.counted";q=2;w=60"#);
}

#[tokio::test]
async fn a_method_of_a_generic_type_is_a_handler_for_each_of_its_types() {
    let limits = RateLimitStore::new(store()).open(Of::<u8>::shown).unwrap();
    let app = Router::new()
        .route("/shown", get(Of::<u8>::shown))
        .route("/taken", get(Of::<u8>::taken))
        .layer(limits)
        .with_state(Numbers);
    assert_eq!(ask(&app, "/shown").await.body, "7");
    assert_eq!(ask(&app, "/taken").await.body, "8");
    assert_eq!(statuses(&app, "/shown", 2).await, [200, 429]);
}
