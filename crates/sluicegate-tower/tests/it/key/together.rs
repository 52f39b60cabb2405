//! Whose bucket it is: extractors together, and limits with different keys together.

use http::{Request, StatusCode};
use sluicegate_core::{Key, Policy};
use sluicegate_tower::key::{
    Extraction, HeaderKey, MissingKey, OnMissingKey, RequestView, key_fn, key_from_extension,
};
use sluicegate_tower::{KeyExtractor, Limit};
use tower::Layer;

use crate::support::{
    Handler, all_fields, anonymous, answer, by_header, described, from, number, on, problem, send, service,
    store,
};

#[tokio::test]
async fn extractors_combine_to_one_bucket_per_combination() {
    #[derive(Clone)]
    struct User(u64);
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "5/min"));
    let by_user_or_key = key_from_extension(|user: &User| user.0).or(HeaderKey::new("x-key").unwrap());
    let by_path = key_fn(|request| Some(request.uri.path().to_owned()));
    let limit = Limit::new(limiter.clone()).key((by_user_or_key, by_path, Key::from("v1")));
    let (service, _) = service(limit.on_missing_key(OnMissingKey::Reject(StatusCode::BAD_REQUEST)));
    let mut known = from("ada");
    known.extensions_mut().insert(User(7));
    assert_eq!(send(&service, known).await.status(), StatusCode::OK);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, anonymous()).await.status(), StatusCode::BAD_REQUEST);
    let remaining = |key: Key| answer(limiter.peek(key)).remaining();
    assert_eq!(remaining((7, "/", "v1").into()), 4, "the extension comes before the header");
    assert_eq!(remaining(("ada", "/", "v1").into()), 3);
    assert_eq!(remaining("ada".into()), 5);
}

#[tokio::test]
async fn of_two_limits_with_different_keys_both_are_spent_from_or_none() {
    let (store, _) = store();
    let per_path = on(&store, Policy::gcra("path", "2/min"));
    let per_key = on(&store, Policy::sliding_log("key", "10/min"));
    let by_path = key_fn(|request| Some(request.uri.path().to_owned()));
    let layer = all_fields(by_header(per_key.clone()).cost(3).unwrap())
        .and(Limit::new(per_path.clone()).key(by_path))
        .build()
        .unwrap();
    let service = layer.layer(Handler::default());
    for _ in 0..2 {
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    }
    // The path is used up: bob is refused, and has spent nothing of his own.
    assert_eq!(send(&service, from("bob")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer(per_key.peek("bob")).remaining(), 10);
    // Ada has 4 left, of which the next request takes 3 and the one after that is refused: its path stays whole.
    let elsewhere = || Request::get("/b").header("x-key", "ada").body(()).unwrap();
    assert_eq!(send(&service, elsewhere()).await.status(), StatusCode::OK);
    let refused = send(&service, elsewhere()).await;
    assert_eq!(problem(refused).await["violated-policies"], serde_json::json!(["key"]));
    assert_eq!(answer(per_path.peek("/b")).remaining(), 1);
    assert_eq!(answer(per_key.peek("ada")).remaining(), 1);
}

#[tokio::test]
async fn when_the_first_limit_is_skipped_the_fields_are_those_of_the_second() {
    // X-RateLimit-Limit was once looked up by the place among those asked in the list of all limits.
    let (store, _) = store();
    let first = by_header(on(&store, Policy::gcra("key", "100/min"))).on_missing_key(OnMissingKey::Skip);
    let second = Limit::new(on(&store, Policy::gcra("all", "3/min"))).key(Key::from("all"));
    let layer = all_fields(first).and(second).build().unwrap();
    let service = layer.layer(Handler::default());
    let response = send(&service, anonymous()).await;
    assert_eq!(number(&response, "x-ratelimit-remaining"), Some(2));
    assert_eq!(number(&response, "x-ratelimit-limit"), Some(3));
    let standings = described(&response, "ratelimit").unwrap();
    assert_eq!(standings.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["all"]);
    let response = send(&service, from("ada")).await;
    assert_eq!(described(&response, "ratelimit").unwrap().len(), 2);
}

/// Looks for nobody, and takes its time.
struct Nobody;

impl KeyExtractor for Nobody {
    fn extract(&self, _: RequestView<'_>) -> Extraction {
        Extraction::pending(async {
            tokio::task::yield_now().await;
            Err(MissingKey::new("there is nobody"))
        })
    }
}

#[tokio::test]
async fn an_extractor_that_finds_nothing_late_leaves_it_to_the_next() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "5/min"));
    let key = Nobody.or(HeaderKey::new("x-key").unwrap());
    let reject = OnMissingKey::Reject(StatusCode::BAD_REQUEST);
    let (service, _) = service(Limit::new(limiter.clone()).key(key).on_missing_key(reject));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(answer(limiter.peek("ada")).remaining(), 4);
    assert_eq!(send(&service, anonymous()).await.status(), StatusCode::BAD_REQUEST);
}
