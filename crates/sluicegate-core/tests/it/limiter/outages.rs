//! A store that gives no answer, without `Resilient`: each policy says what that means, and all that asks reads it in one way.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Change;
use sluicegate_core::store::{DecidedBy, Mode};
use sluicegate_core::{Decision, Key, OnOutage, Outcome, Policy, RateLimiter, Store};
use sluicegate_tests::around::failing;

fn mute(kind: StoreErrorKind, is_far: bool) -> Arc<dyn Store> {
    failing(kind, !is_far)
}

/// One limiter for each meaning of an outage, all on one store.
fn limiters(store: &Arc<dyn Store>) -> [RateLimiter; 3] {
    let of =
        |(name, on_outage)| Policy::gcra(name, "5/min").on_outage(on_outage).on(Arc::clone(store)).unwrap();
    [("local", OnOutage::Local), ("allow", OnOutage::Allow), ("deny", OnOutage::Deny)].map(of)
}

fn is_refused(decision: &Decision) -> bool {
    assert_eq!(decision.decided_by(), DecidedBy::Outage);
    decision.outcome() == Outcome::Denied
}

#[tokio::test]
async fn a_question_without_an_answer_is_decided_by_what_the_policy_says_of_an_outage() {
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Timeout, StoreErrorKind::Protocol] {
        for is_far in [false, true] {
            let store = mute(kind, is_far);
            for (limiter, refused) in limiters(&store).iter().zip([false, false, true]) {
                for decision in [
                    limiter.check("ada").await,
                    limiter.check_cost("ada", 99).await,
                    limiter.peek("ada").await,
                    limiter.reserve("ada", 1, Duration::from_secs(9)).await,
                    limiter.acquire("ada", 1, Duration::from_secs(9)).await,
                ] {
                    let mut decision = decision.unwrap();
                    assert_eq!(is_refused(&decision), refused, "{kind:?} {limiter:?}");
                    assert_eq!(
                        decision.remaining(),
                        if refused { 0 } else { 5 },
                        "the numbers are those of rest"
                    );
                    assert_eq!(decision.retry_after().is_some(), refused);
                    assert!(decision.take_receipt(0).is_none(), "there is nothing to give back");
                }
            }
        }
    }
}

#[tokio::test]
async fn of_several_policies_one_that_denies_is_enough() {
    let [local, allow, deny] = limiters(&mute(StoreErrorKind::Unavailable, false));
    let ada = Key::from("ada");
    let lax = RateLimiter::check_all([(&local, &ada, 1), (&allow, &ada, 1)]).await.unwrap();
    assert!(!is_refused(&lax) && lax.quotas().len() == 2);
    let strict = RateLimiter::check_all([(&local, &ada, 1), (&deny, &ada, 1)]).await.unwrap();
    assert!(is_refused(&strict));
    assert_eq!(strict.deciding().policy_index(), 1);
}

/// The caller has to know that it may not have happened.
#[tokio::test]
async fn a_report_without_an_answer_is_an_error_whatever_the_policy_says() {
    for is_far in [false, true] {
        for limiter in limiters(&mute(StoreErrorKind::Timeout, is_far)) {
            let ada = Key::from("ada");
            for answer in [
                limiter.charge("ada", 1).await,
                limiter.refund("ada", 1).await,
                limiter.reset("ada").await,
                RateLimiter::change_all([(&limiter, &ada, Change::Charge(1))]).await,
                RateLimiter::decide_all([
                    (&limiter, &ada, 1, Some(Mode::Spend)),
                    (&limiter, &ada, 1, Some(Mode::Charge)),
                ])
                .await,
            ] {
                assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Timeout);
            }
        }
    }
}

#[tokio::test]
async fn a_mistake_in_the_program_is_no_outage() {
    for is_far in [false, true] {
        for limiter in limiters(&mute(StoreErrorKind::ForeignPolicy, is_far)) {
            assert_eq!(limiter.check("ada").await.unwrap_err().kind(), StoreErrorKind::ForeignPolicy);
        }
    }
}
