//! A store that gives no answer, without `Resilient`: each policy says what that means, and all that asks reads it in one way.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::error::{AcquireErrorKind, StoreErrorKind};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::{change_all, check_all};
use sluicegate_core::policy::Quotas;
use sluicegate_core::store::{DecidedBy, Mode};
use sluicegate_core::{Decision, Key, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store};
use sluicegate_observed::{Observed, StoreState};
use sluicegate_tests::around::{Fault, failing, remote};

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
            let [_, allow, deny] = limiters(&store);
            for (limiter, refused) in [(allow, false), (deny, true)] {
                for decision in [
                    limiter.check("ada").await,
                    limiter.check("ada").cost(99).await,
                    limiter.peek("ada").await,
                    limiter.check("ada").reserve(Duration::from_secs(9)).await,
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
                let acquired = limiter.check("ada").acquire(Duration::from_secs(9)).await;
                let kind = acquired.err().map(|error| error.kind());
                assert_eq!(kind, refused.then_some(AcquireErrorKind::Store));
            }
        }
    }
}

#[tokio::test]
async fn of_several_policies_one_that_denies_is_enough() {
    let [local, allow, deny] = limiters(&mute(StoreErrorKind::Unavailable, false));
    let ada = Key::from("ada");
    for number in 0..7 {
        let lax = check_all([allow.check(&ada), local.check(&ada)]).await.unwrap();
        assert_eq!((lax.is_allowed(), lax.decided_by()), (number < 5, DecidedBy::Fallback));
        assert_eq!(lax.deciding().policy_index(), 1, "nobody counts the other one");
    }
    let strict = check_all([local.check(&ada), deny.check(&ada)]).await.unwrap();
    assert!(is_refused(&strict));
    assert_eq!(strict.deciding().policy_index(), 1);
}

/// Once it passed uncounted, as under `Allow`, although `Local` is the default.
#[tokio::test]
async fn a_process_whose_store_gives_no_answer_holds_the_limit_by_itself() {
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Timeout, StoreErrorKind::Protocol] {
        for is_far in [false, true] {
            let [local, ..] = limiters(&mute(kind, is_far));
            assert_eq!(local.peek("ada").await.unwrap().remaining(), 5);
            assert_eq!(local.check("ada").cost(6).await.unwrap().outcome(), Outcome::Impossible);
            for number in 0..9 {
                let mut decision = local.check("ada").await.unwrap();
                assert_eq!((decision.is_allowed(), decision.decided_by()), (number < 5, DecidedBy::Fallback));
                assert!(decision.retry_after().is_none_or(|wait| wait.as_secs() == 11), "{decision:?}");
                assert!(
                    decision.take_receipt(0).is_none(),
                    "the store would give back what it never counted"
                );
            }
            assert!(!local.check("ada").reserve(Duration::from_secs(99)).await.unwrap().is_allowed());
            assert!(local.check("bob").await.unwrap().is_allowed());
            assert_eq!(local.check("bob").up_to(9).await.unwrap().granted(), Some(4));
        }
    }
}

/// A flapping store gives nobody a fresh limit each time.
#[tokio::test]
async fn what_a_process_has_let_pass_by_itself_counts_in_its_next_outage() {
    let fault = Fault::default();
    let local = Policy::gcra("local", "5/h").on(remote(&MemoryStore::new(), &fault)).unwrap();
    let mut passed = 0;
    for _ in 0..4 {
        fault.set(Some(StoreErrorKind::Unavailable));
        for _ in 0..4 {
            passed += u32::from(local.check("ada").await.unwrap().is_allowed());
        }
        fault.set(None);
        assert_eq!(local.peek("ada").await.unwrap().decided_by(), DecidedBy::Store);
    }
    assert_eq!(passed, 5);
}

#[tokio::test]
async fn a_process_by_itself_decides_by_the_quotas_that_a_key_brings_and_by_a_policy_that_is_replaced() {
    let store = mute(StoreErrorKind::Unavailable, true);
    let admitted = async |limiter: &RateLimiter| {
        let mut passed = 0;
        while limiter.check("ada").await.unwrap().is_allowed() {
            passed += 1;
        }
        passed
    };
    let plan = Policy::fixed_window("plan", "5/d").on(Arc::clone(&store)).unwrap();
    assert_eq!(admitted(&plan.with_quotas("7/d".parse::<Quotas>().unwrap()).unwrap()).await, 7);
    assert_eq!(admitted(&plan).await, 0);
    plan.replace(Policy::gcra("plan", "9/d").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(admitted(&plan).await, 9, "it begins at rest");
}

#[tokio::test]
async fn a_process_by_itself_decides_by_the_quota_that_the_policy_names_for_an_outage() {
    let policy = Policy::gcra("own", "100/h").and("9/d").on_outage("3/h".parse().unwrap());
    let own = policy.on(mute(StoreErrorKind::Unavailable, true)).unwrap();
    let plan = own.with_quotas("1/h, 1/d".parse::<Quotas>().unwrap()).unwrap();
    for number in 0..5 {
        for (limiter, key) in [(&own, "ada"), (&plan, "bob")] {
            let decision = limiter.check(key).await.unwrap();
            assert_eq!((decision.is_allowed(), decision.capacity()), (number < 3, 3));
        }
    }
}

#[tokio::test]
async fn a_suspension_that_nobody_can_read_leaves_the_limit_in_force() {
    let login = Policy::gcra("login", "5/h").suspend(2, "10min", "30min");
    let login = login.on(mute(StoreErrorKind::Unavailable, true)).unwrap();
    for number in 0..12 {
        let expected = if number < 5 { Outcome::Allowed } else { Outcome::Denied };
        assert_eq!(login.check("ada").await.unwrap().outcome(), expected);
    }
}

#[tokio::test]
async fn an_observed_store_counts_what_the_process_has_decided_by_itself() {
    for is_far in [false, true] {
        let store = mute(StoreErrorKind::Timeout, is_far);
        let store = Observed::named(format!("alone-{is_far}"), store).unwrap();
        let local = Policy::gcra("local", "5/h").on(&store).unwrap();
        for number in 0..7 {
            let decision = local.check("ada").await.unwrap();
            assert_eq!((decision.is_allowed(), decision.decided_by()), (number < 5, DecidedBy::Fallback));
        }
        let snapshot = store.snapshot();
        let totals = snapshot.policies[0].totals;
        assert_eq!((totals.allowed, totals.rejected), (5, 2));
        assert_eq!((snapshot.stores[0].state, snapshot.stores[0].errors.timeout), (StoreState::Down, 7));
    }
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
                change_all([limiter.charge(&ada, 1)]).await,
                check_all([limiter.check(&ada).mode(Mode::Spend), limiter.check(&ada).mode(Mode::Charge)])
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
