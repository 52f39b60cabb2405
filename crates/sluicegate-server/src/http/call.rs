//! The JSON of calls: [`HttpCall`], [`Settlement`].

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_core::RateLimiter;
use sluicegate_core::limiter::ForLayers;
use sluicegate_core::policy::TimeSpan;
use sluicegate_rules::Rules;
use sluicegate_tower::limits::{ChosenQuotas, Limits};

use super::ask::Verb;
use super::described::DescribedRequest;
use super::key::JsonKey;
use super::problem::CallProblem;
use crate::asks::{LimiterAsk, LimiterAsks};
use crate::bounds::Bounds;
use crate::receipt::USED;

/// A check of one policy.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Check")]
pub(super) struct NamedCheck {
    /// The name of the policy.
    policy: String,
    /// The key whose bucket is meant.
    key: JsonKey,
    /// The cost in units. Default: 1.
    cost: Option<u64>,
}

/// One check (`policy`, `key`, `cost`), several that are decided together (`checks`), a request for the rules (`request`), or independent
/// calls (`batch`).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Call")]
pub(super) struct HttpCall {
    /// The name of the policy.
    policy: Option<String>,
    /// The key whose bucket is meant.
    key: Option<JsonKey>,
    /// The cost in units. Default: 1.
    cost: Option<u64>,
    /// Checks of different policies: all spend, or none does.
    checks: Option<Vec<NamedCheck>>,
    /// A request that the rules decide.
    request: Option<DescribedRequest>,
    /// Independent calls. The answers have the same order.
    batch: Option<Vec<Self>>,
    /// For `/v1/reserve`: the longest wait for a turn, as `2s` or `500ms`. Default: no wait.
    wait: Option<String>,
    /// For `/v1/refund`: the receipt whose units are given back.
    receipt: Option<String>,
    /// For `/v1/refund` with a receipt: the units to give back. Default: all.
    units: Option<u64>,
}

/// The actual cost of a reservation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settlement {
    /// The receipt of the reservation.
    pub(super) receipt: String,
    /// The units that the work has cost, under each policy of the receipt.
    pub(super) actual: u64,
}

/// The subject of a call.
#[derive(Debug)]
pub(super) enum CallSubject {
    /// Policies by name.
    Named(LimiterAsks),
    /// A described request.
    Request(Box<http::Request<()>>),
}

impl HttpCall {
    /// The subject of the call under these rules.
    pub(super) fn subject(
        &self,
        rules: &Rules,
        limits: &Limits,
        bounds: &Bounds,
    ) -> Result<CallSubject, CallProblem> {
        let Self { policy, key, cost, checks, request, batch, .. } = self;
        match (policy, checks, request, batch) {
            (Some(policy), None, None, None) => {
                let key =
                    key.clone().ok_or_else(|| CallProblem::bad("\"key\" is missing: it names the bucket"))?;
                let check = NamedCheck { policy: policy.clone(), key, cost: *cost };
                named(rules, limits, &[check]).map(CallSubject::Named)
            }
            (None, Some(_), None, None) | (None, None, Some(_), None) if key.is_some() || cost.is_some() => {
                Err(CallProblem::bad(
                    "\"key\" and \"cost\" belong beside \"policy\", or into each of \"checks\"",
                ))
            }
            (None, Some(checks), None, None) if checks.is_empty() => {
                Err(CallProblem::bad("\"checks\" is empty: name at least one policy"))
            }
            (None, Some(checks), None, None) if checks.len() > bounds.batch => Err(CallProblem::too_much(
                format!("\"checks\" has {} checks; at most {} are accepted", checks.len(), bounds.batch),
            )),
            (None, Some(checks), None, None) => named(rules, limits, checks).map(CallSubject::Named),
            (None, None, Some(request), None) => {
                Ok(CallSubject::Request(Box::new(request.request().map_err(CallProblem::bad)?)))
            }
            (None, None, None, Some(_)) => {
                Err(CallProblem::bad("a \"batch\" cannot contain another: write all calls into one list"))
            }
            _ => {
                Err(CallProblem::bad("use exactly one of \"policy\", \"checks\", \"request\" and \"batch\""))
            }
        }
    }

    /// The longest wait for a turn.
    pub(super) fn longest_wait(&self, bounds: &Bounds) -> Result<Duration, CallProblem> {
        let Some(text) = &self.wait else { return Ok(Duration::ZERO) };
        let wait: TimeSpan = text.parse().map_err(|_| {
            CallProblem::bad(format!("\"wait\" is {text:?}, which is not a time: write it as 2s or 500ms"))
        })?;
        let wait = Duration::from(wait);
        if wait >= bounds.request {
            let text = format!(
                "\"wait\" is {wait:?}, and has to be below {:?}, the time for a request",
                bounds.request
            );
            return Err(CallProblem::bad(text));
        }
        Ok(wait)
    }

    /// The calls of the batch, if it is one.
    pub(super) fn batch(&self, bounds: &Bounds) -> Result<Option<&[Self]>, CallProblem> {
        let Some(batch) = &self.batch else { return Ok(None) };
        if self.members().iter().any(|(_, is_there)| *is_there) {
            return Err(CallProblem::bad("\"batch\" stands alone: write the other members into its calls"));
        }
        if batch.len() > bounds.batch {
            let text = format!("\"batch\" has {} calls; at most {} are accepted", batch.len(), bounds.batch);
            return Err(CallProblem::too_much(text));
        }
        Ok(Some(batch))
    }

    /// All members except `batch`, and whether each is present.
    fn members(&self) -> [(&'static str, bool); 8] {
        let Self { policy, key, cost, checks, request, batch: _, wait, receipt, units } = self;
        [
            ("wait", wait.is_some()),
            ("receipt", receipt.is_some()),
            ("units", units.is_some()),
            ("policy", policy.is_some()),
            ("key", key.is_some()),
            ("cost", cost.is_some()),
            ("checks", checks.is_some()),
            ("request", request.is_some()),
        ]
    }

    /// The receipt to give back from.
    pub(super) fn receipt(&self) -> Option<&str> {
        self.receipt.as_deref()
    }

    /// The units of the receipt to give back, if not all of them.
    pub(super) fn units(&self) -> Option<u64> {
        self.units
    }

    /// Refuses members that have no meaning for this operation.
    pub(super) fn check_members(&self, verb: Verb) -> Result<(), CallProblem> {
        let is_of_receipt = verb == Verb::Refund && self.receipt.is_some();
        let is_stray = |member: &str| match member {
            "wait" => verb != Verb::Reserve,
            "receipt" => verb != Verb::Refund,
            "units" => !is_of_receipt,
            "cost" => is_of_receipt || verb == Verb::Reset,
            _ => is_of_receipt,
        };
        match self.members().into_iter().find(|(name, is_there)| *is_there && is_stray(name)) {
            Some((name, _)) => {
                Err(CallProblem::bad(format!("{name:?} has no meaning in this call: leave it out")))
            }
            None => Ok(()),
        }
    }
}

/// Checks of policies by name.
fn named(rules: &Rules, limits: &Limits, checks: &[NamedCheck]) -> Result<LimiterAsks, CallProblem> {
    let mut asks = LimiterAsks::default();
    for NamedCheck { policy, key, cost } in checks {
        let limiter = limiter(rules, policy)?;
        if asks.iter().any(|asked| asked.limiter.is(&limiter)) {
            return Err(CallProblem::bad(format!(
                "policy {policy:?} occurs twice in \"checks\", whose policies have to differ: use \"batch\""
            )));
        }
        let json = key;
        let key = json.key(limits, policy).map_err(CallProblem::bad)?;
        let limiter = match rules.quotas_of(policy, &json.name(&key)) {
            ChosenQuotas::Quotas(quotas) => {
                limiter.with_quotas(quotas).map_err(|error| CallProblem::bad(error.to_string()))?
            }
            ChosenQuotas::Unlimited => continue,
            _ => limiter,
        };
        asks.push(LimiterAsk { limiter, key, cost: cost.unwrap_or(1) });
    }
    Ok(asks)
}

/// The limiter of a policy in the rules file.
fn limiter(rules: &Rules, policy: &str) -> Result<RateLimiter, CallProblem> {
    let limiter = rules.store().limiters().get(policy).filter(|_| policy != USED);
    limiter.filter(|limiter| !limiter.with_policy(|policy| policy.is_of_suspension())).ok_or_else(|| {
        CallProblem::new(
            http::StatusCode::NOT_FOUND,
            format!("there is no policy {policy:?} in the rules file"),
        )
    })
}
