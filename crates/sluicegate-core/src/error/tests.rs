use std::error::Error;

use super::*;

#[test]
fn a_mistake_says_where_it_is_and_leaves_its_source_to_the_chain() {
    let error = ConfigError::new(ConfigErrorKind::Store, "the CA is not a certificate in PEM");
    let error = error.with_source("no end line").in_policy("login").in_quota(2).at(3..5);
    assert_eq!(error.to_string(), "policy \"login\": the CA is not a certificate in PEM");
    assert_eq!((error.policy(), error.quota(), error.span()), (Some("login"), Some(2), Some(3..5)));
    assert_eq!(error.source().unwrap().to_string(), "no end line");
    assert_eq!(error.clone(), error);
    assert_ne!(error.clone().at(3..6), error);
}

#[test]
fn a_chain_prints_each_message_once() {
    let error = StoreError::with_source(StoreErrorKind::Unavailable, "connection refused");
    assert_eq!(error.to_string(), "the store cannot be reached");
    assert_eq!(error.source().unwrap().to_string(), "connection refused");
}

/// An error after which a call may succeed later was called transient, which suggested that repeating it is safe.
#[test]
fn an_error_tells_what_may_succeed_later_from_what_is_safe_to_repeat() {
    for (error, later, spent) in [
        (StoreError::new(StoreErrorKind::Timeout), true, true),
        (StoreError::new(StoreErrorKind::Unavailable), true, true),
        (StoreError::new(StoreErrorKind::Unavailable).unsent(), true, false),
        (StoreError::new(StoreErrorKind::Protocol), true, true),
        (StoreError::new(StoreErrorKind::ForeignPolicy), false, false),
    ] {
        assert_eq!((error.may_succeed_later(), error.may_have_spent()), (later, spent), "{error:?}");
    }
}
