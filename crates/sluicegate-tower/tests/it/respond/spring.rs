//! The fields of Spring Cloud Gateway.

use sluicegate_core::Policy;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::limits::Limits;
use sluicegate_tower::respond::HeaderFields;
use tower::Layer;

use crate::respond::header_modes::setting;
use crate::support::{Handler, by_header, fields, from, on, send, store};

fn layer(policy: PolicyBuilder, headers: HeaderFields) -> RateLimitLayer {
    let (store, _) = store();
    Limits::builder(by_header(on(&store, policy))).headers(headers).build().unwrap().into()
}

/// The fields of the first response.
async fn told(policy: PolicyBuilder) -> Vec<String> {
    let service = layer(policy, HeaderFields::Spring).layer(Handler::default());
    fields(&send(&service, from("ada")).await)
}

fn named([capacity, remaining, rate, requested]: [u64; 4]) -> Vec<String> {
    vec![
        format!("x-ratelimit-burst-capacity: {capacity}"),
        format!("x-ratelimit-remaining: {remaining}"),
        format!("x-ratelimit-replenish-rate: {rate}"),
        format!("x-ratelimit-requested-tokens: {requested}"),
    ]
}

#[tokio::test]
async fn a_whole_rate_is_told_in_units_and_a_slower_one_in_tokens_of_which_one_comes_a_second() {
    for (policy, expected) in [
        (Policy::gcra("api", "10/s burst 20"), [20, 19, 10, 1]),
        (Policy::token_bucket("api", "1000/min"), [3_000, 2_997, 50, 3]),
        // As Spring's documentation writes one request a minute.
        (Policy::gcra("api", "1/min"), [60, 0, 1, 60]),
        (Policy::sliding_counter("api", "5/min"), [60, 48, 1, 12]),
        (Policy::gcra("api", "3/500ms"), [3, 2, 6, 1]),
        (Policy::gcra("api", "7919/30d"), [20_526_048_000, 20_523_456_000, 7_919, 2_592_000]),
    ] {
        let shown = format!("{policy:?}");
        assert_eq!(told(policy).await, named(expected), "{shown}");
    }
}

#[tokio::test]
async fn a_refusal_carries_them_too_and_retry_after() {
    let service = layer(Policy::gcra("api", "1/min"), HeaderFields::Spring).layer(Handler::default());
    send(&service, from("ada")).await;
    let mut expected = named([60, 0, 1, 60]);
    expected.extend(["cache-control: no-store".to_owned(), "retry-after: 60".to_owned()]);
    expected.sort();
    assert_eq!(fields(&send(&service, from("ada")).await), expected);
}

#[tokio::test]
async fn a_hidden_policy_is_in_none_of_them() {
    assert_eq!(told(Policy::gcra("api", "1/min").hidden()).await, [""; 0]);
}

#[tokio::test]
async fn fields_of_a_service_that_leave_less_stay_and_others_go() {
    let behind = async |theirs| {
        let layer = layer(Policy::gcra("api", "5/min"), HeaderFields::Spring);
        fields(&send(&layer.layer(setting(theirs)), from("ada")).await)
    };
    let told = behind(&[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "3")]).await;
    assert_eq!(told, ["x-ratelimit-limit: 9", "x-ratelimit-remaining: 3"]);
    let told = behind(&[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "7")]).await;
    assert_eq!(told, named([60, 48, 1, 12]));
    // 50 tokens are five requests, and four are left here.
    let told = behind(&[("x-ratelimit-remaining", "50"), ("x-ratelimit-requested-tokens", "10")]).await;
    assert_eq!(told, named([60, 48, 1, 12]));
}

#[tokio::test]
async fn layers_of_different_choices_show_one_set_of_fields() {
    let spring = layer(Policy::gcra("one", "5/min"), HeaderFields::Spring);
    let legacy = layer(Policy::gcra("other", "10/min"), HeaderFields::Legacy);
    let outer_is_legacy = legacy.clone().layer(spring.clone().layer(Handler::default()));
    let told = fields(&send(&outer_is_legacy, from("ada")).await);
    assert_eq!(told, ["x-ratelimit-limit: 5", "x-ratelimit-remaining: 4", "x-ratelimit-reset: 12"]);
    let outer_is_spring = spring.layer(legacy.layer(Handler::default()));
    assert_eq!(fields(&send(&outer_is_spring, from("ada")).await), named([60, 36, 1, 12]));
}

#[test]
fn the_words_of_the_choice_are_read_and_others_are_told() {
    for (word, fields) in [
        ("all-on-refusal", HeaderFields::default()),
        ("all", HeaderFields::All),
        ("spring", HeaderFields::Spring),
    ] {
        assert_eq!(word.parse(), Ok(fields));
    }
    for fields in HeaderFields::ALL {
        assert_eq!(fields.to_string().parse(), Ok(fields));
    }
    let error = "x-ratelimit".parse::<HeaderFields>().unwrap_err().to_string();
    assert!(
        error.contains("use one of \"all-on-refusal\", \"all\", \"legacy\", \"ietf\", \"draft-6\", \"draft-7\", \"spring\", \"openai\", \"none\""),
        "{error}"
    );
}
