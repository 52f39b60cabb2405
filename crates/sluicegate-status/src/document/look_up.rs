//! The status of a key, as the store knows it: [`by_key`] and [`by_request`].
//!
//! A look-up by a request shows the decision of each limit of the whole request; the extractors, conditions and tiers of the live limits
//! decide. A look-up by a key shows the decision on one unit of one policy. Neither spends anything, and neither is counted.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use sluicegate_core::limiter::Overrides;
use sluicegate_core::store::{DecidedBy, QuotaStatus};
use sluicegate_core::support::ceil_seconds;
use sluicegate_core::suspension::Strikes;
use sluicegate_core::{Decision, Key, Outcome, Policy, Quota, RateLimiter, StoreError};
use sluicegate_observed::ShownKey;
use sluicegate_tower::limits::{AskExplained, Explanation, LimitExplained, WouldBe};

use crate::document::shape::GivenQuotas;
use crate::page::Scope;
use crate::secret::Secret;

/// The length of a suspension by hand, if neither the operator nor the policy sets one.
const HALF_AN_HOUR: Duration = Duration::from_secs(1_800);

/// The note of a look-up while the store does not answer.
const BY_THIS_INSTANCE: &str =
    "as this instance knows it, by its own part of the quotas: the store does not answer";

/// The note of a look-up that cannot know the quotas of the key, because only requests bring them.
const OWN_QUOTAS: &str = "by the quotas of the policy; a request may bring others for its key, and a look-up as a request shows these";

/// The result of a look-up.
#[derive(Debug, Serialize)]
pub(crate) struct LookedUp {
    /// The key as its kind allows; none if a request was looked up.
    #[serde(skip)]
    pub(super) key: Option<String>,
    /// The decision that would be made now.
    pub(super) would_be: String,
    /// Each limit of the request, or the one policy whose key was named.
    pub(super) limits: Vec<KeyStatus>,
}

impl LookedUp {
    /// Adds a doubt to an unknown key that would pass: it may be no client's key.
    pub(crate) fn doubted(mut self, doubt: Option<&str>) -> Self {
        let at_rest = |quota: &QuotaStanding| quota.remaining == quota.capacity;
        let is_known = self.limits.iter().any(|limit| !limit.quotas.iter().all(at_rest));
        if let Some(doubt) = doubt.filter(|_| !is_known && self.would_be == WouldBe::Allowed.to_string()) {
            self.would_be = format!("{}, {doubt}", self.would_be);
        }
        self
    }
}

/// One limit, and the status of the key in it.
#[derive(Debug, Default, Serialize)]
pub(super) struct KeyStatus {
    pub(super) limit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tier: Option<String>,
    /// The key as its extractor's kind allows; a key that was typed in is not shown again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    pub(super) quotas: Vec<QuotaStanding>,
    /// The number of times that this instance has refused it in the last 5 to 10 minutes, if it is among the most refused keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<u64>,
    /// Its refusals on the way to the next suspension, if its policy counts refusals and the store knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strikes: Option<StrikesStanding>,
    /// The quotas that an operator has given to this key alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) given: Option<GivenQuotas>,
    /// Twice the quotas of the policy, if the key can have them.
    #[serde(skip)]
    pub(super) twice: Option<String>,
    /// The seconds of a suspension by hand, if keys of the policy can be suspended.
    #[serde(skip)]
    pub(super) suspends_for: Option<u64>,
    /// The reason why the limit is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_asked: Option<String>,
    /// A note on what these numbers leave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<&'static str>,
}

/// The status of a key in one quota.
#[derive(Debug, Serialize)]
pub(super) struct QuotaStanding {
    /// The quota as people write it: `5/min`.
    pub(super) label: String,
    /// Units that may be spent at once from rest.
    pub(super) capacity: u64,
    /// Units that may be spent now; rounded down.
    pub(super) remaining: u64,
    /// The seconds until all units are back.
    pub(super) reset_seconds: u64,
    /// The seconds until the request passes, if it does not pass now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) back_seconds: Option<u64>,
    /// Whether it does not pass because the key is suspended.
    pub(super) suspended: bool,
}

/// The refusals of a key that count, and the suspensions that are remembered.
#[derive(Debug, Serialize)]
pub(super) struct StrikesStanding {
    /// Refusals that count now; a suspension resets them to 0.
    pub(super) counted: u64,
    /// The number of refusals that suspends the key.
    pub(super) of: u64,
    /// Remembered suspensions; each makes the next one twice as long.
    pub(super) suspensions: u64,
}

/// Twice the quotas of the policy, as an operator would write them.
fn twice(policy: &Policy) -> Option<String> {
    let double = |quota: Quota| {
        quota.with_units(quota.limit().saturating_mul(2), quota.burst_size().saturating_mul(2))
    };
    let quotas: Vec<Quota> = policy.quotas().iter().map(|quota| double(quota.quota())).collect();
    policy.under(&quotas.clone().into()).ok()?;
    Some(quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(", "))
}

impl StrikesStanding {
    /// `None` in an outage.
    async fn of(limiter: &RateLimiter, key: &Key) -> Option<Self> {
        let Strikes { counted, after, suspensions, .. } = limiter.suspensions().strikes(key).await.ok()??;
        Some(Self { counted, of: after, suspensions })
    }
}

/// The status of one key of one policy.
pub(crate) async fn by_key(
    scope: &Scope,
    secret: &Secret,
    limiter: &RateLimiter,
    key: &Key,
) -> Result<LookedUp, StoreError> {
    let decision = limiter.peek(key).await?;
    let policy = limiter.given(key.as_ref()).as_ref().unwrap_or(limiter).policy();
    let of_policy = limiter.store().limiters().get(policy.name());
    let given = given_quotas(limiter, key);
    let is_of_policy = of_policy.is_some_and(|of_policy| of_policy == *limiter);
    let may_bring_quotas = policy.takes_quotas() && is_of_policy && given.is_none();
    let note = match decision.decided_by() {
        DecidedBy::Fallback => Some(BY_THIS_INSTANCE),
        _ => may_bring_quotas.then_some(OWN_QUOTAS),
    };
    let standing = KeyStatus {
        limit: policy.name().to_owned(),
        policy: Some(policy.name().to_owned()),
        reference: Some(secret.seal(policy.name(), key)),
        strikes: StrikesStanding::of(limiter, key).await,
        twice: twice(&limiter.policy()),
        suspends_for: suspends_for(&policy),
        refused: refused_lately(scope, policy.name(), key),
        note,
        given,
        ..KeyStatus::default()
    };
    let (would_be, standing) = match decision.decided_by() {
        DecidedBy::Off => {
            (WouldBe::Unlimited, KeyStatus { not_asked: Some("the policy is off".to_owned()), ..standing })
        }
        DecidedBy::Outage => (WouldBe::Uncounted, standing),
        _ => {
            let quotas = decision.quotas().iter().map(|status| quota(&policy, status)).collect();
            (would_be(&policy, &decision), KeyStatus { cost: Some(1), quotas, ..standing })
        }
    };
    let key = Some(ShownKey::of(key).to_string());
    Ok(LookedUp { key, would_be: would_be.to_string(), limits: vec![standing] })
}

/// How often this instance has lately refused the key, if it is listed.
fn refused_lately(scope: &Scope, policy: &str, key: &Key) -> Option<u64> {
    let digest = ShownKey::of(key).digest;
    let policies = scope.stores.iter().flat_map(|(observed, _)| observed.snapshot().policies);
    let offenders = policies.filter(|it| it.policy.name() == policy).flat_map(|it| it.offenders);
    offenders.into_iter().find(|offender| offender.digest == digest).map(|offender| offender.rejected)
}

/// The decision on one unit.
fn would_be(policy: &Policy, decision: &Decision) -> WouldBe {
    match decision.is_allowed() {
        true if decision.delay().is_zero() => WouldBe::Allowed,
        true => WouldBe::Delayed(decision.delay()),
        false => WouldBe::Refused {
            status: StatusCode::TOO_MANY_REQUESTS,
            retry_after: decision.retry_after().map(|wait| Duration::from_secs(ceil_seconds(wait))),
            why: match decision.outcome() {
                Outcome::Suspended => format!("its key is suspended by policy {:?}", policy.name()),
                _ => format!("policy {:?} has no room", policy.name()),
            },
        },
    }
}

/// The quotas that an operator has given this key alone.
fn given_quotas(limiter: &RateLimiter, key: &Key) -> Option<GivenQuotas> {
    let overrides = Overrides::of(Arc::clone(limiter.store()));
    overrides.standing(limiter.policy().name(), Some(key)).map(|over| GivenQuotas::of(&over))
}

/// The limits that a request would meet.
pub(crate) async fn by_request(scope: &Scope, secret: &Secret, explained: Explanation) -> LookedUp {
    let mut limits = Vec::with_capacity(explained.limits.len());
    for limit in explained.limits {
        // Limits of a request may be on a store that is not on the page.
        let asked = limit.asks.as_ref().ok();
        let asked = asked.and_then(|asked| Some((scope.limiter(asked.policy.name())?, asked.key.clone())));
        let known = match asked {
            Some((limiter, key)) => KeyStatus {
                refused: refused_lately(scope, limiter.policy().name(), &key),
                strikes: StrikesStanding::of(&limiter, &key).await,
                given: given_quotas(&limiter, &key),
                twice: twice(&limiter.policy()),
                ..KeyStatus::default()
            },
            None => KeyStatus::default(),
        };
        let KeyStatus { refused, strikes, given, twice, .. } = known;
        limits.push(KeyStatus { refused, strikes, given, twice, ..standing(secret, limit) });
    }
    LookedUp { key: None, would_be: explained.outcome.to_string(), limits }
}

/// The length of a suspension by hand if the operator does not set it: that of a first suspension by the policy.
pub(crate) fn usual_span(policy: &Policy) -> Duration {
    policy.suspension().and_then(|suspension| suspension.lasts(0)).unwrap_or(HALF_AN_HOUR)
}

/// The length in seconds.
fn suspends_for(policy: &Policy) -> Option<u64> {
    policy.suspension().map(|_| ceil_seconds(usual_span(policy)))
}

fn standing(secret: &Secret, LimitExplained { name, asks, .. }: LimitExplained) -> KeyStatus {
    let AskExplained { policy, tier, key, cost, quotas, .. } = match asks {
        Ok(asks) => asks,
        Err(why) => return KeyStatus { limit: name, not_asked: Some(why), ..KeyStatus::default() },
    };
    KeyStatus {
        limit: name,
        policy: Some(policy.name().to_owned()),
        tier,
        key: Some(ShownKey::of(&key).to_string()),
        reference: Some(secret.seal(policy.name(), &key)),
        suspends_for: suspends_for(&policy),
        cost: Some(cost),
        quotas: quotas.iter().map(|status| quota(&policy, status)).collect(),
        ..KeyStatus::default()
    }
}

fn quota(policy: &Policy, status: &QuotaStatus) -> QuotaStanding {
    QuotaStanding {
        label: policy
            .quotas()
            .get(status.quota_index())
            .map_or_else(String::new, |quota| quota.quota().to_string()),
        capacity: status.capacity(),
        remaining: status.remaining(),
        reset_seconds: ceil_seconds(status.reset_after()),
        back_seconds: (!status.passed()).then(|| ceil_seconds(status.available_after())),
        suspended: status.is_suspended(),
    }
}
