//! The meaning of an outage: the one place where a missing answer of a store becomes a decision or an
//! error.
//!
//! Handles, observed stores and the fallback of a `Resilient` store all use it, so that a policy's [`OnOutage`] has one meaning.
//! An uncounted decision has the numbers of a key at rest, because nothing is known, and
//! [`DecidedBy::Outage`] says so.

use std::time::Duration;

use smallvec::SmallVec;

use super::OwnedAsk;
use crate::clock::{Clock, SystemClock, micros};
use crate::decision::{DecidedBy, Decision, Outcome, QuotaStatus};
use crate::error::{StoreError, StoreErrorKind};
use crate::few::few;
use crate::policy::{OnOutage, Policy};
use crate::store::{Ask, DecisionFuture, Mode, Store, judge};

/// The shortest wait for a request that is refused because the store cannot be reached.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Asks the store; in an outage, the policies decide.
pub(crate) fn ask_by_policy(store: &dyn Store, asks: &[Ask<'_>]) -> DecisionFuture {
    or_by_policy(store.decide(asks), asks)
}

/// Answers by the policies' [`OnOutage`] if the store gives no answer. For store wrappers.
///
/// An error stays an error if it is not an outage ([`StoreError::may_succeed_later`]), or if one of the asks is a report:
/// the caller has to know that a charge, a refund or a reset may not have happened.
///
/// # Cancel safety
/// As the answer: the store completes the call, polled or not.
pub fn or_by_policy(answer: DecisionFuture, asks: &[Ask<'_>]) -> DecisionFuture {
    if matches!(answer.known(), Some(Ok(_))) || !asks.iter().all(|ask| ask.mode().asks()) {
        return answer;
    }
    let fallback = OutageAnswer::of(asks);
    answer.map(move |result| result.or_else(|error| fallback.unanswered(error)))
}

/// Asks that wait for a store's answer; their policies answer if none comes. For store wrappers.
#[derive(Debug)]
pub struct OutageAnswer(SmallVec<[OwnedAsk; 1]>);

impl OutageAnswer {
    /// Keeps the asks of one call.
    pub fn of(asks: &[Ask<'_>]) -> Self {
        Self(few(asks.iter().map(OwnedAsk::new)))
    }

    /// Decides by each policy's [`OnOutage`], because the store failed with this error.
    ///
    /// # Errors
    /// The error itself if [`or_by_policy`] would return it.
    pub fn unanswered(&self, error: StoreError) -> Result<Decision, StoreError> {
        let asks: SmallVec<[Ask<'_>; 4]> = few(self.0.iter().map(OwnedAsk::ask));
        in_outage(&asks, error)
    }
}

/// The answer to these asks without the store, by each policy's [`OnOutage`]. This process keeps account of the asks that it decides, for
/// as long as it lives; none of those units are given back, and no request waits for a turn.
///
/// # Errors
/// The error itself if it is not an outage, or if one of the asks is a report: the caller has to
/// know that a charge, a refund or a reset may not have happened.
fn in_outage(asks: &[Ask<'_>], error: StoreError) -> Result<Decision, StoreError> {
    if !error.may_succeed_later() || asks.iter().any(|ask| !ask.mode().asks()) {
        return Err(error);
    }
    let now_us = SystemClock::new().now_us();
    let decision = match with_alone(asks) {
        Ok((local, store)) => {
            decide_in_outage(asks, &local, store, || (now_us, SHORTEST_WAIT))?.without_receipts()
        }
        Err(unkept) => {
            let each = (0..).zip(asks).map(|(place, ask)| (&**ask.numbers(), place == unkept));
            assumed(each, now_us, SHORTEST_WAIT)
        }
    };
    log(&error, &decision);
    Ok(decision)
}

/// Asks with their indexes in the request.
type Placed<'a> = SmallVec<[(u8, Ask<'a>); 4]>;

/// The asks that this process decides alone, and its store for them.
///
/// # Errors
/// The index of the first ask that memory cannot keep, because it must not pass uncounted.
fn with_alone<'a>(asks: &[Ask<'a>]) -> Result<(Placed<'a>, Option<&'a dyn Store>), u8> {
    let (mut local, mut store) = (Placed::new(), None);
    for (place, ask) in (0_u8..).zip(asks) {
        let Some(own) = ask.policy().alone() else { continue };
        store = Some(own.store());
        let mode = if ask.mode().longest_wait().is_some() { Mode::Spend } else { ask.mode() };
        let quotas = if on_outage(ask) == OnOutage::Local { ask.own() } else { None };
        local.push((place, ask.on(own.opened().ok_or(place)?).in_mode(mode).under(quotas)));
    }
    Ok((local, store))
}

/// Decides asks in an outage by each policy's [`OnOutage`]. For store wrappers.
///
/// `local` are the asks that a store of this process decides, each with its index in `asks`, and `store` is that store. `outage`
/// gives the time, in microseconds, and the shortest wait of a request that is refused because of the outage.
///
/// # Errors
/// The error of the store of this process.
pub fn decide_in_outage(
    asks: &[Ask<'_>],
    local: &[(u8, Ask<'_>)],
    store: Option<&dyn Store>,
    outage: impl FnOnce() -> (u64, Duration),
) -> Result<Decision, StoreError> {
    let assume = |refuses: fn(&Ask<'_>) -> bool| {
        let (now_us, pause) = outage();
        assumed(asks.iter().map(|ask| (&**ask.numbers(), refuses(ask))), now_us, pause)
    };
    if asks.iter().any(is_refused) {
        return Ok(assume(is_refused));
    }
    let Some(store) = store.filter(|_| !local.is_empty()) else { return Ok(assume(|_| false)) };
    let local_asks: SmallVec<[Ask<'_>; 4]> = few(local.iter().map(|(_, ask)| *ask));
    let decision = store.decide(&local_asks).now();
    let decision = decision.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))?;
    if decision.outcome() == Outcome::Impossible && asks.iter().all(fits_from_rest) {
        // The cost is too high for this process's share, but not for the quota: it could pass when the store is back.
        return Ok(assume(|ask| on_outage(ask).decides_here()));
    }
    let places: SmallVec<[u8; 4]> = few(local.iter().map(|(place, _)| *place));
    Ok(decision.of_asks(&places).by(DecidedBy::Fallback))
}

/// An uncounted decision, with the numbers of keys at rest. Each policy comes with a flag whether it refuses; the wait is at least `wait`.
pub(crate) fn assumed<'a>(
    each: impl Iterator<Item = (&'a Policy, bool)>,
    now_us: u64,
    wait: Duration,
) -> Decision {
    let wait_us = micros(wait.max(SHORTEST_WAIT));
    let statuses = (0_u8..).zip(each).flat_map(|(place, (policy, refused))| {
        (0_u8..).zip(policy.quotas()).map(move |(quota, of)| {
            let status = QuotaStatus::at_rest((place, quota), of.rule().capacity());
            let refusal = || status.with_remaining(0).with_reset_after_us(wait_us).refused_for_us(wait_us);
            if refused { refusal() } else { status }
        })
    });
    judge(now_us, 0, statuses).by(DecidedBy::Outage)
}

/// Logs the outage.
#[cfg(feature = "tracing")]
fn log(error: &StoreError, decision: &Decision) {
    use crate::support::Seldom;

    static LINE: Seldom = Seldom::new();
    if !LINE.is_due() {
        return;
    }
    let error: &(dyn std::error::Error + 'static) = error;
    match (decision.decided_by(), decision.is_allowed()) {
        (DecidedBy::Fallback, _) => {
            tracing::error!(error, "the rate limit store gave no answer: this process decides alone");
        }
        (_, true) => tracing::error!(error, "the rate limit store gave no answer: requests pass uncounted"),
        (_, false) => tracing::error!(error, "the rate limit store gave no answer: requests are refused"),
    }
}

#[cfg(not(feature = "tracing"))]
fn log(_: &StoreError, _: &Decision) {}

fn on_outage(ask: &Ask<'_>) -> OnOutage {
    ask.policy().policy().on_outage()
}

fn is_refused(ask: &Ask<'_>) -> bool {
    on_outage(ask) == OnOutage::Deny && ask.mode().asks()
}

/// Whether the whole quotas ever let the cost pass at once.
fn fits_from_rest(ask: &Ask<'_>) -> bool {
    ask.numbers().quotas().iter().all(|quota| ask.cost() <= quota.rule().capacity())
}
