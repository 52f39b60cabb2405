//! What happens to requests whose key cannot be found: none of them is ever let through unlimited by accident.

use http::{Request, StatusCode};
use sluicegate_core::{Key, Policy};
use sluicegate_tests::log::Log;
use sluicegate_tower::key::{Extraction, MissingKey, OnMissingKey, RequestView, key_fn, key_from_extension};
use sluicegate_tower::{KeyExtractor, Limit};

use crate::support::{anonymous, answer, by_header, fields, from, on, problem, send, service, store};

#[tokio::test]
async fn requests_without_a_key_share_one_bucket_and_none_is_unlimited() {
    let (store, _) = store();
    let (service, handler) = service(by_header(on(&store, Policy::gcra("api", "2/min"))));
    let blank = || Request::get("/").header("x-key", "  ").body(()).unwrap();
    assert_eq!(send(&service, anonymous()).await.status(), StatusCode::OK);
    assert_eq!(send(&service, blank()).await.status(), StatusCode::OK);
    for request in [anonymous(), blank(), anonymous()] {
        assert_eq!(send(&service, request).await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(
        send(&service, from("ada")).await.status(),
        StatusCode::OK,
        "a key of one's own is not shared"
    );
    assert_eq!(handler.calls(), 3);
}

#[tokio::test]
async fn no_client_can_write_the_key_of_the_shared_bucket() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "1/min"));
    let raw_header = key_fn(|request| request.headers.get("x-key").map(|value| Key::from(value.as_bytes())));
    let (service, _) = service(Limit::new(limiter.clone()).key(raw_header));
    for written in
        ["\u{5}", "", "shared", "addr:none"].map(|text| http::HeaderValue::from_bytes(text.as_bytes()))
    {
        let Ok(written) = written else { continue };
        let mut request = anonymous();
        request.headers_mut().insert("x-key", written);
        send(&service, request).await;
    }
    assert_eq!(answer(limiter.peek(Key::shared())).remaining(), 1);
}

#[tokio::test]
async fn the_warning_about_shared_buckets_names_limit_and_cause_and_comes_once() {
    let log = Log::of_this_thread();
    let (store, _) = store();
    let (service, _) = service(by_header(on(&store, Policy::gcra("api", "2/min"))));
    for service in [&service, &service.clone(), &service] {
        for _ in 0..3 {
            send(service, anonymous()).await;
        }
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["WARN", "limit=\"api\"", "share one bucket", "the header x-key is missing"] {
        assert!(lines[0].contains(part), "{} says nothing of {part}", lines[0]);
    }
}

#[tokio::test]
async fn what_is_chosen_warns_of_nothing() {
    let log = Log::of_this_thread();
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "2/min"));
    for action in [OnMissingKey::Reject(StatusCode::BAD_REQUEST), OnMissingKey::Skip, OnMissingKey::Share] {
        send(&service(by_header(limiter.clone()).on_missing_key(action)).0, anonymous()).await;
    }
    for action in [OnMissingKey::Skip, OnMissingKey::Share] {
        send(&service(Limit::new(limiter.clone()).on_missing_key(action)).0, anonymous()).await;
    }
    assert_eq!(log.lines(), [""; 0]);
}

/// The user of a layer that was added in the wrong place: all users shared one bucket.
#[tokio::test]
async fn a_missing_extension_is_a_500_that_names_the_order_of_layers_unless_sharing_was_chosen() {
    let log = Log::of_this_thread();
    let (store, _) = store();
    let by_user = || key_from_extension(|user: &u64| *user);
    let limit = |name: &str| Limit::new(on(&store, Policy::gcra(name, "2/min")));
    let keys: [Box<dyn KeyExtractor>; 2] = [Box::new(by_user()), Box::new((by_user(), Key::from("all")))];
    for key in keys {
        let (service, handler) = service(limit("api").key(key));
        assert_eq!(send(&service, anonymous()).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(handler.calls(), 0);
        let mut known = anonymous();
        known.extensions_mut().insert(7_u64);
        assert_eq!(send(&service, known).await.status(), StatusCode::OK);
    }
    for part in ["ERROR", "no u64 in its extensions", "put the layer that adds it around the limit"] {
        assert!(log.lines()[0].contains(part), "{:?}", log.lines());
    }
    let chosen = limit("shared").key(by_user()).on_missing_key(OnMissingKey::Share);
    assert_eq!(send(&service(chosen).0, anonymous()).await.status(), StatusCode::OK);
    let other = limit("other").key(by_user().or(Key::from("anonymous")));
    assert_eq!(send(&service(other).0, anonymous()).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_rejection_names_what_is_missing_and_spends_nothing() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "2/min"));
    let reject = OnMissingKey::Reject(StatusCode::UNAUTHORIZED);
    let (service, handler) = service(by_header(limiter.clone()).on_missing_key(reject));
    let refused = send(&service, anonymous()).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(fields(&refused), ["cache-control: no-store"]);
    assert_eq!(
        problem(refused).await,
        serde_json::json!({
            "type": "about:blank",
            "title": "Unauthorized",
            "status": 401,
            "detail": "the header x-key is missing",
        })
    );
    assert_eq!(handler.calls(), 0);
    assert_eq!(answer(limiter.peek(Key::shared())).remaining(), 2);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn any_reason_and_any_status_make_a_valid_problem() {
    let (store, _) = store();
    let reason = "no \"tenant\" in C:\\\n\t\u{1}, naïve";
    for status in [StatusCode::FORBIDDEN, StatusCode::from_u16(499).unwrap()] {
        let nobody = MissingReason(reason);
        let limit = Limit::new(on(&store, Policy::gcra("api", "2/min"))).key(nobody);
        let refused = send(&service(limit.on_missing_key(OnMissingKey::Reject(status))).0, anonymous()).await;
        assert_eq!(refused.status(), status);
        assert_eq!(problem(refused).await["detail"], reason);
    }
}

struct MissingReason(&'static str);

impl KeyExtractor for MissingReason {
    fn extract(&self, _: RequestView<'_>) -> Extraction {
        let reason = self.0;
        Extraction::pending(async move { Err(MissingKey::new(reason)) })
    }
}

#[tokio::test]
async fn a_skipped_limit_does_not_apply_and_leaves_no_trace() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "1/min"));
    let (service, handler) = service(by_header(limiter.clone()).on_missing_key(OnMissingKey::Skip));
    for _ in 0..3 {
        let response = send(&service, anonymous()).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
    }
    assert!(handler.last_seen().is_none());
    assert_eq!(answer(limiter.peek(Key::shared())).remaining(), 1);
}

#[tokio::test]
async fn what_is_to_be_refused_is_refused_wherever_it_stands_in_a_tuple() {
    struct Refuses;
    impl KeyExtractor for Refuses {
        fn extract(&self, _: RequestView<'_>) -> Extraction {
            MissingKey::new("malformed").rejecting(StatusCode::BAD_REQUEST).into()
        }
    }
    async fn status(key: impl KeyExtractor) -> u16 {
        let (store, _) = store();
        let limit = Limit::new(on(&store, Policy::gcra("api", "2/min"))).key(key);
        send(&service(limit.on_missing_key(OnMissingKey::Skip)).0, anonymous()).await.status().as_u16()
    }
    let missing = || key_fn(|_| None::<u64>);
    let statuses = [
        status((Refuses, missing())).await,
        status((missing(), Refuses)).await,
        status((missing(), missing(), Refuses)).await,
        status((MissingReason("late"), Refuses)).await,
        status((Refuses, MissingReason("late"))).await,
        status((missing(), MissingReason("late"))).await,
    ];
    assert_eq!(statuses, [400, 400, 400, 400, 400, 200]);
}
