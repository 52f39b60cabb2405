//! Layers around layers, as with a limit on a route and one on the router around it: one set of fields, one decision.

use http::{Response, StatusCode};
use sluicegate_core::{Outcome, Policy};
use sluicegate_tests::log::Log;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::respond::HeaderFields;
use tower::Layer;

use crate::support::{
    Body, Handler, all_fields, assert_no_duplicates, by_header, described, fields, from, layer, number, on,
    reading, send, store,
};

#[tokio::test]
async fn two_layers_show_one_set_of_fields_with_all_policies_and_the_tightest_numbers() {
    for (outer, inner) in [("200/min", "5/min"), ("5/min", "200/min")] {
        let (store, _) = store();
        let service =
            layer(&store, "outer", outer).layer(layer(&store, "inner", inner).layer(Handler::default()));
        let response = send(&service, from("ada")).await;
        assert_no_duplicates(&response);
        assert_eq!(number(&response, "x-ratelimit-limit"), Some(5));
        assert_eq!(number(&response, "x-ratelimit-remaining"), Some(4));
        assert_eq!(number(&response, "x-ratelimit-reset"), Some(12));
        let names = described(&response, "ratelimit")
            .unwrap()
            .into_iter()
            .map(|(name, numbers)| (name, numbers["r"]));
        let left = |quota| if quota == "5/min" { 4 } else { 199 };
        assert_eq!(
            names.collect::<Vec<_>>(),
            [("outer".to_owned(), left(outer)), ("inner".to_owned(), left(inner))]
        );
    }
}

#[tokio::test]
async fn three_layers_look_like_one() {
    let (store, _) = store();
    let service = layer(&store, "b", "100/min").layer(layer(&store, "c", "3/min").layer(Handler::default()));
    let service = layer(&store, "a", "10/min").layer(service);
    let response = send(&service, reading(from("ada"))).await;
    assert_eq!(
        fields(&response),
        [
            r#"ratelimit-policy: "a";q=10;w=60, "b";q=100;w=60, "c";q=3;w=60"#,
            r#"ratelimit: "a";r=9;t=6, "b";r=99;t=1, "c";r=2;t=20"#,
            "x-ratelimit-limit: 3",
            "x-ratelimit-remaining: 2",
            "x-ratelimit-reset: 20",
        ]
    );
    let decision: &Decided = response.extensions().get().expect("the merged decision");
    assert_eq!((decision.quotas().len(), decision.policy().map(Policy::name)), (3, Some("c")));
}

#[tokio::test]
async fn handlers_see_the_innermost_decision_and_clients_of_the_stack_the_merged_one() {
    let (store, _) = store();
    let handler = Handler::default();
    let service = layer(&store, "inner", "20/min").decided().layer(handler.clone());
    let service = layer(&store, "outer", "10/min").decided().layer(service);
    let response = send(&service, reading(from("ada"))).await;
    let seen = handler.last_seen().expect("the request carried a decision");
    assert_eq!((seen.remaining(), seen.policy().map(Policy::name)), (19, Some("inner")));
    let merged: &Decided = response.extensions().get().expect("the response carries a decision");
    assert_eq!((merged.outcome(), merged.quotas().len(), merged.remaining()), (Outcome::Allowed, 2, 9));
    let labels = merged.quotas().iter().map(|standing| merged.quota_of(standing).unwrap().label());
    assert_eq!(labels.collect::<Vec<_>>(), ["outer", "inner"]);
}

/// Each allowed response had it, although almost nobody reads it.
#[tokio::test]
async fn an_allowed_response_carries_the_decision_only_where_somebody_reads_it_and_a_refusal_always() {
    let (store, _) = store();
    let handler = Handler::default();
    let service = layer(&store, "inner", "3/min").layer(handler.clone());
    let of = |response: &Response<Body>| response.extensions().get::<Decided>().map(|told| told.remaining());
    assert_eq!(of(&send(&service, from("ada")).await), None);
    assert_eq!(of(&send(&service, reading(from("ada"))).await), Some(1));
    // A layer around it has read the decision, and shows it in its fields.
    let service = layer(&store, "outer", "4/min").layer(service);
    let response = send(&service, from("ada")).await;
    assert_eq!((number(&response, "x-ratelimit-remaining"), of(&response)), (Some(0), None));
    let refused = send(&service, from("ada")).await;
    assert_eq!((refused.status(), of(&refused)), (StatusCode::TOO_MANY_REQUESTS, Some(0)));
}

/// It knew nothing of the layer inside once that one left its decision only where it was announced.
#[tokio::test]
async fn a_layer_without_extensions_reads_what_one_further_in_decides() {
    let (store, _) = store();
    let inner = layer(&store, "inner", "3/min").layer(Handler::default());
    let outer = all_fields(by_header(on(&store, Policy::gcra("outer", "9/min"))));
    let service = outer.without_extensions().build().unwrap().layer(inner);
    let response = send(&service, from("ada")).await;
    assert_no_duplicates(&response);
    assert_eq!(number(&response, "x-ratelimit-remaining"), Some(2));
    let names: Vec<_> =
        described(&response, "ratelimit").unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["outer", "inner"]);
}

#[tokio::test]
async fn without_extensions_nobody_sees_the_decision_and_the_fields_are_all_there() {
    let (store, _) = store();
    let handler = Handler::default();
    let limit = by_header(on(&store, Policy::gcra("api", "1/min")));
    let service = all_fields(limit).without_extensions().build().unwrap().layer(handler.clone());
    for expected in [5, 7] {
        let response = send(&service, from("ada")).await;
        assert!(response.extensions().get::<Decided>().is_none());
        assert_eq!(fields(&response).len(), expected);
    }
    assert!(handler.last_seen().is_none());
}

#[tokio::test]
async fn an_outer_layer_without_extensions_does_not_hide_why_the_inner_one_refused() {
    // Such a layer does not know that there is one behind it, so it must leave tighter numbers alone.
    let (store, _) = store();
    let outer = all_fields(by_header(on(&store, Policy::gcra("outer", "100/min"))));
    let outer = outer.without_extensions().build().unwrap();
    let service = outer.layer(layer(&store, "inner", "1/min").layer(Handler::default()));
    send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await;
    assert_eq!(
        (refused.status(), number(&refused, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some(60))
    );
    assert_eq!(number(&refused, "x-ratelimit-remaining"), Some(0), "{:?}", fields(&refused));
}

#[tokio::test]
async fn fields_of_an_inner_layer_survive_an_outer_one_that_shows_none() {
    let (store, _) = store();
    let outer = all_fields(by_header(on(&store, Policy::gcra("outer", "100/min"))));
    let service = outer.headers(HeaderFields::None).build().unwrap();
    let service = service.layer(layer(&store, "inner", "5/min").layer(Handler::default()));
    let response = send(&service, from("ada")).await;
    assert_eq!(number(&response, "x-ratelimit-limit"), Some(5));
    assert_eq!(described(&response, "ratelimit").unwrap().len(), 1);
}

/// The same limiter in both layers: each request spends twice.
fn doubled(quota: &str) -> RateLimit<RateLimit<Handler>> {
    let (store, _) = store();
    layer(&store, "api", quota).layer(layer(&store, "api", quota).layer(Handler::default()))
}

#[tokio::test]
async fn a_limiter_in_two_layers_is_named_once_with_what_is_left_after_both() {
    let response = send(&doubled("5/min"), from("ada")).await;
    assert_no_duplicates(&response);
    assert_eq!(number(&response, "x-ratelimit-remaining"), Some(3));
    assert_eq!(described(&response, "ratelimit-policy").unwrap().len(), 1);
    // The tightest of the standings with this name, not the first.
    assert_eq!(described(&response, "ratelimit").unwrap()[0].1["r"], 3);
}

/// With 1/min the layer inside refused everything, and nothing said why.
#[tokio::test]
async fn a_limiter_in_two_layers_is_logged_once_whether_the_inner_one_lets_pass_or_refuses() {
    for quota in ["5/min", "1/min"] {
        let (store, _) = store();
        let same = || layer(&store, "api", quota);
        let other = layer(&store, "other", quota);
        let log = Log::of_this_thread();
        send(&same().layer(other.layer(Handler::default())), from("ada")).await;
        assert_eq!(log.lines(), [""; 0], "two policies");
        // Whatever stands between them.
        let service = same().layer(other.layer(same().layer(Handler::default())));
        for key in ["bob", "bob", "eve"] {
            send(&service, from(key)).await;
        }
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("WARN") && lines[0].contains("api") && lines[0].contains("twice"),
            "{lines:?}"
        );
    }
}

#[tokio::test]
async fn a_refusal_by_a_limiter_in_two_layers_shows_the_standing_that_refused() {
    let service = doubled("3/min");
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    // One is left: the outer layer takes it, the inner one refuses, and it is given back.
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_no_duplicates(&refused);
    let shown = &described(&refused, "ratelimit").unwrap()[0].1;
    assert_eq!(Some(shown["r"]), number(&refused, "x-ratelimit-remaining"));
    assert!(number(&refused, "retry-after").unwrap() >= shown["t"]);
}

/// Seen: a layer that leaves nothing in extensions was counted twice in silence.
#[tokio::test]
async fn a_layer_without_extensions_that_asks_the_policy_of_one_around_it_is_logged_too() {
    let log = Log::of_this_thread();
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "9/min"));
    let inner = RateLimitLayer::builder(by_header(limiter.clone())).without_extensions().build().unwrap();
    let service = RateLimitLayer::new(by_header(limiter)).decided().layer(inner.layer(Handler::default()));
    for _ in 0..2 {
        send(&service, from("ada")).await;
    }
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].contains("ask the same policy"), "{lines:?}");
}
