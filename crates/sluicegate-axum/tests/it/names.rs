//! The name that a limit has by default: once it was the bare name of the function, and `users::create` shared its
//! bucket with `posts::create`.

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, RateLimitStore, rate_limited};
use sluicegate_tests::log::Log;

use crate::support::{all_fields, get as ask, statuses, store};

mod users {
    #[sluicegate_axum::rate_limited("2/min", crate = sluicegate_axum)]
    pub(crate) async fn create() {}
}

mod posts {
    #[sluicegate_axum::rate_limited("2/min", crate = sluicegate_axum)]
    pub(crate) async fn create() {}
}

mod comments {
    #[sluicegate_axum::rate_limited("3/min", crate = sluicegate_axum)]
    pub(crate) async fn create() {}
}

struct Users;
struct Posts;

impl Users {
    #[rate_limited("2/min", crate = sluicegate_axum)]
    async fn remove() {}
}

impl Posts {
    #[rate_limited("2/min", crate = sluicegate_axum)]
    async fn remove() {}
}

#[tokio::test]
async fn functions_of_one_name_in_different_modules_have_buckets_and_quotas_of_their_own() {
    let app = Router::new()
        .route("/users", get(users::create))
        .route("/posts", get(posts::create))
        .route("/comments", get(comments::create))
        .layer(all_fields(&store()));
    assert_eq!(statuses(&app, "/users", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/posts", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/comments", 4).await, [200, 200, 200, 429]);
    for (path, policy) in [
        ("/users", r#""it.names.users.create";q=2;w=60"#),
        ("/posts", r#""it.names.posts.create";q=2;w=60"#),
        ("/comments", r#""it.names.comments.create";q=3;w=60"#),
    ] {
        assert_eq!(ask(&app, path).await.field("ratelimit-policy"), policy);
    }
}

#[tokio::test]
async fn two_methods_of_one_name_in_a_module_are_told_apart_by_a_name_and_never_share_unasked() {
    let error = RateLimitStore::new(store()).open(Users::remove).unwrap().open(Posts::remove).unwrap_err();
    let text = error.to_string();
    for part in ["both called \"it.names.remove\"", "it/names.rs:", "`name = \"..\"`"] {
        assert!(text.contains(part), "{text}");
    }
    let log = Log::of_this_thread();
    let app = Router::new()
        .route("/users", get(Users::remove))
        .route("/posts", get(Posts::remove))
        .with_rate_limits(store());
    assert_eq!(statuses(&app, "/users", 1).await, [200]);
    assert_eq!(statuses(&app, "/posts", 2).await, [500, 500]);
    assert_eq!(statuses(&app, "/users", 2).await, [200, 429]);
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].contains("both called \"it.names.remove\""), "{lines:?}");
}
