//! The JSON of calls: [`HttpCall`], [`Settlement`].

use std::time::Duration;

use axum::body::Body;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluicegate_core::policy::TimeSpan;
use sluicegate_core::store::Mode;
use sluicegate_core::{Decision, Policy, RateLimiter};
use sluicegate_rules::{Descriptors, Rules};
use sluicegate_tower::limits::{ChosenQuotas, Limits};
use sluicegate_tower::rate_limit::Decided;

use crate::app::App;
use crate::asks::{LimiterAsk, LimiterAsks};
use crate::builder::Bounds;
use crate::http::answer::{HttpReply, Replied};
use crate::http::described::{CallDescriptor, DescribedRequest};
use crate::http::key::JsonKey;
use crate::http::object::Object;
use crate::http::problem::CallProblem;
use crate::receipt::{ReceiptToken, USED};

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

/// One check (`policy`, `key`, `cost`), several that are decided together (`checks`), a request for the rules (`request`), descriptors of one
/// (`domain`, `descriptors`), or independent calls (`batch`).
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
    #[schemars(length(min = 1))]
    checks: Option<Vec<Object<NamedCheck>>>,
    /// A request that the rules decide.
    request: Option<Object<DescribedRequest>>,
    /// The domain of `descriptors`.
    domain: Option<String>,
    /// Descriptors of a request, as in Envoy's rate limit protocol, that the rules decide together.
    #[schemars(length(min = 1))]
    descriptors: Option<Vec<Object<CallDescriptor>>>,
    /// Independent calls. The answers have the same order.
    batch: Option<Vec<Object<Self>>>,
    /// For `/v1/reserve`: the longest wait for a turn, as `2s` or `500ms`. Default: no wait.
    wait: Option<String>,
    /// For `/v1/refund`: the receipt whose units are given back.
    #[schemars(length(min = 1, max = 16384))]
    receipt: Option<String>,
    /// For `/v1/refund` with a receipt: the units to give back. Default: all.
    units: Option<u64>,
}

/// The actual cost of a reservation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settlement {
    /// The receipt of the reservation.
    #[schemars(length(min = 1, max = 16384))]
    pub(super) receipt: String,
    /// The units that the work has cost, under each policy of the receipt.
    pub(super) actual: u64,
}

/// The subject of a call.
#[derive(Debug)]
pub(super) enum CallSubject {
    /// Policies by name.
    Named(LimiterAsks),
    /// A described request, or a request for each descriptor.
    Requests(Vec<Request<()>>),
}

impl HttpCall {
    /// The subject of the call under these rules.
    pub(super) fn subject(
        &self,
        rules: &Rules,
        limits: &Limits,
        bounds: &Bounds,
    ) -> Result<CallSubject, CallProblem> {
        let Self { policy, key, cost, checks, request, domain, descriptors, batch, .. } = self;
        let has_key = key.is_some() || cost.is_some();
        match (policy, checks, request, (domain, descriptors), batch) {
            (Some(policy), None, None, (None, None), None) => {
                let key =
                    key.clone().ok_or_else(|| CallProblem::bad("\"key\" is missing: it names the bucket"))?;
                let check = Object(NamedCheck { policy: policy.clone(), key, cost: *cost });
                named(rules, limits, &[check]).map(CallSubject::Named)
            }
            (None, _, _, _, None) if has_key => Err(CallProblem::bad(
                "\"key\" and \"cost\" belong beside \"policy\", or into each of \"checks\"",
            )),
            (None, Some(checks), None, (None, None), None) if checks.is_empty() => {
                Err(CallProblem::bad("\"checks\" is empty: name at least one policy"))
            }
            (None, Some(checks), None, (None, None), None) if checks.len() > bounds.batch => {
                Err(too_many("checks", checks.len(), bounds.batch))
            }
            (None, Some(checks), None, (None, None), None) => {
                named(rules, limits, checks).map(CallSubject::Named)
            }
            (None, None, Some(request), (None, None), None) => {
                Ok(CallSubject::Requests(vec![request.0.request().map_err(CallProblem::bad)?]))
            }
            (None, None, None, (Some(domain), Some(all)), None) if !domain.is_empty() && !all.is_empty() => {
                if all.len() > bounds.descriptors {
                    return Err(too_many("descriptors", all.len(), bounds.descriptors));
                }
                let all = all.iter().map(|Object(descriptor)| descriptor.descriptor());
                Ok(CallSubject::Requests(Descriptors::new(domain, all).requests().collect()))
            }
            (None, None, None, (Some(_), _) | (_, Some(_)), None) => {
                Err(CallProblem::bad("\"domain\" and \"descriptors\" belong together, and neither is empty"))
            }
            (None, None, None, (None, None), Some(_)) => {
                Err(CallProblem::bad("a \"batch\" cannot contain another: write all calls into one list"))
            }
            _ => Err(CallProblem::bad(
                "use exactly one of \"policy\", \"checks\", \"request\", \"descriptors\" and \"batch\"",
            )),
        }
    }

    /// The longest wait for a turn.
    fn longest_wait(&self, bounds: &Bounds) -> Result<Duration, CallProblem> {
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
    pub(super) fn batch(&self, bounds: &Bounds) -> Result<Option<&[Object<Self>]>, CallProblem> {
        let Some(batch) = &self.batch else { return Ok(None) };
        if self.members().iter().any(|(_, is_there)| *is_there) {
            return Err(CallProblem::bad("\"batch\" stands alone: write the other members into its calls"));
        }
        if batch.len() > bounds.batch {
            return Err(too_many("batch", batch.len(), bounds.batch));
        }
        Ok(Some(batch))
    }

    /// All members except `batch`, and whether each is present.
    fn members(&self) -> [(&'static str, bool); 10] {
        let Self { policy, key, cost, checks, request, domain, descriptors, batch: _, wait, receipt, units } =
            self;
        [
            ("wait", wait.is_some()),
            ("receipt", receipt.is_some()),
            ("units", units.is_some()),
            ("policy", policy.is_some()),
            ("key", key.is_some()),
            ("cost", cost.is_some()),
            ("checks", checks.is_some()),
            ("request", request.is_some()),
            ("domain", domain.is_some()),
            ("descriptors", descriptors.is_some()),
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
    fn check_members(&self, verb: Verb) -> Result<(), CallProblem> {
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

/// Refuses a list that is too long.
fn too_many(member: &str, length: usize, most: usize) -> CallProblem {
    CallProblem::too_much(format!("{member:?} has {length} items; at most {most} are accepted"))
}

/// Checks of policies by name.
fn named(rules: &Rules, limits: &Limits, checks: &[Object<NamedCheck>]) -> Result<LimiterAsks, CallProblem> {
    let mut asks = LimiterAsks::default();
    for Object(NamedCheck { policy, key, cost }) in checks {
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
        asks.push(LimiterAsk { limiter, key, cost: cost.unwrap_or(1), limit: None });
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

// Request bodies: JSON within the bounds.

/// A body may take one of this many parts of the time for a request.
const PART: u32 = 3;

/// Reads and parses a body.
pub(super) async fn read<T: DeserializeOwned>(
    bounds: &Bounds,
    request: Request<Body>,
) -> Result<T, CallProblem> {
    let (head, body) = request.into_parts();
    // A web page of another origin can send text without a preflight request, but not JSON.
    if !is_json(&head.headers) {
        return Err(CallProblem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body has to be JSON, sent with Content-Type: application/json",
        ));
    }
    let too_long = || {
        CallProblem::too_much(format!(
            "the body is longer than {} bytes, the most that this server reads",
            bounds.body
        ))
    };
    let announced =
        head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > bounds.body) {
        return Err(too_long());
    }
    let longest = bounds.request / PART;
    let read =
        tokio::time::timeout(longest, Limited::new(body, bounds.body).collect()).await.map_err(|_| {
            CallProblem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {longest:?}"),
            )
        })?;
    let bytes = match read {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_long()),
        Err(_) => return Err(CallProblem::bad("the body ended early")),
    };
    serde_json::from_slice(&bytes)
        .map(|Object(call)| call)
        .map_err(|error| CallProblem::bad(format!("the body cannot be read: {error}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json") || media.to_ascii_lowercase().ends_with("+json")
}

// The decisions of the API: `/v1/check`, `/v1/peek` and `/v1/reserve`.

/// The operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Decides now, and spends.
    Check,
    /// Decides now, and spends nothing.
    Peek,
    /// Decides, waits for a turn, and gives a receipt.
    Reserve,
    /// Gives units back.
    Refund,
    /// Resets keys.
    Reset,
}

/// Performs one call.
pub(super) async fn ask(app: &App, limits: &Limits, verb: Verb, call: &HttpCall) -> Replied {
    call.check_members(verb)?;
    match (verb, call.receipt()) {
        (Verb::Refund, Some(receipt)) => return refund(app, call, receipt).await,
        (Verb::Refund | Verb::Reset, _) => return change(app, limits, verb, call).await,
        _ => {}
    }
    match call.subject(&app.rules, limits, &app.bounds)? {
        // Every key in it is unlimited.
        CallSubject::Named(asks) if asks.is_empty() => Ok(HttpReply::Allowed(None, None)),
        CallSubject::Named(asks) => decide(app, limits, verb, call, &asks).await,
        CallSubject::Requests(requests) => match &requests[..] {
            [request] if verb == Verb::Check => by_rules(app, limits, request).await,
            requests => match LimiterAsks::of_all(limits, requests) {
                Ok(asks) if !asks.is_empty() => decide(app, limits, verb, call, &asks).await,
                Ok(asks) => {
                    if verb != Verb::Peek {
                        asks.check_shadows();
                    }
                    Ok(HttpReply::Allowed(None, None))
                }
                // The rules refuse it without a limit, so nothing is spent.
                Err(refused) => by_rules(app, limits, refused).await,
            },
        },
    }
}

/// Decides a described request as a layer with these rules does; it waits where a policy waits.
async fn by_rules(app: &App, limits: &Limits, request: &Request<()>) -> Replied {
    match app.ready.unless_ending(limits.decide(request)).await {
        // `refund_if` looks at the response of a service, and there is none here.
        Some(Ok(admitted)) => Ok(HttpReply::Allowed(admitted.decided().cloned(), None)),
        Some(Err(refused)) => Ok(HttpReply::Refused(refused)),
        None => Err(CallProblem::shutting_down()),
    }
}

async fn decide(app: &App, limits: &Limits, verb: Verb, call: &HttpCall, asks: &LimiterAsks) -> Replied {
    match verb {
        Verb::Reserve => {
            let place = app.receipts.place().ok_or_else(|| {
                let most = app.bounds.receipts;
                CallProblem::temporary(format!(
                    "{most} receipts are neither used nor expired, the most that this server keeps: settle them, or ask later"
                ))
            })?;
            let mut decision = reserve(app, call, asks).await?;
            let receipt = app.receipts.write(asks.receipts(&mut decision), place);
            Ok(reply(limits, asks, decision, receipt))
        }
        Verb::Peek => Ok(HttpReply::Reported(asks.label(asks.decide(Mode::Peek).await?), None)),
        _ => Ok(reply(limits, asks, asks.decide(Mode::Spend).await?, None)),
    }
}

async fn reserve(app: &App, call: &HttpCall, asks: &LimiterAsks) -> Result<Decision, CallProblem> {
    for asked in asks.iter() {
        // Makes refunds exact.
        let kept = asked.limiter.remember(Policy::with_refunds);
        kept.map_err(|error| CallProblem::bad(error.to_string()))?;
    }
    let longest = call.longest_wait(&app.bounds)?;
    if longest.is_zero() {
        return Ok(asks.decide(Mode::Spend).await?);
    }
    let _waiting = app.waiting.try_acquire().map_err(|_| {
        let most = app.bounds.waiting;
        CallProblem::temporary(format!(
            "{most} requests wait for their turn, the most that this server accepts"
        ))
    })?;
    Ok(app.ready.unless_ending(asks.reserve(longest)).await.ok_or_else(CallProblem::shutting_down)??)
}

/// The reply to a decision.
fn reply(
    limits: &Limits,
    asks: &LimiterAsks,
    decision: Decision,
    receipt: Option<ReceiptToken>,
) -> HttpReply {
    let limit = asks.deciding_limit(&decision);
    let decided = asks.label(decision);
    if decided.is_allowed() {
        asks.check_shadows();
        return HttpReply::Allowed(Some(decided), receipt);
    }
    match limits.conclude(decided, limit) {
        Ok(_) => HttpReply::Allowed(None, receipt),
        Err(refused) => HttpReply::Refused(refused),
    }
}

// The changes of the API: `/v1/settle`, `/v1/refund` and `/v1/reset`.

/// Charges or gives back the difference between the reserved and the actual units.
pub(super) async fn settle(app: &App, settlement: &Settlement) -> Replied {
    let mut redeemed = app.receipts.redeem(&settlement.receipt).await?;
    let (policies, settled) = (redeemed.policies(), redeemed.settle(settlement.actual));
    Ok(HttpReply::Reported(Decided::new(settled.await?, policies), None))
}

/// Gives back units of a receipt, and issues a receipt for the units that are left.
pub(super) async fn refund(app: &App, call: &HttpCall, receipt: &str) -> Replied {
    let mut redeemed = app.receipts.redeem(receipt).await?;
    let (policies, given) = (redeemed.policies(), redeemed.refund(call.units()));
    let decided = Decided::new(given.await?, policies);
    let rest = redeemed.rest(&app.receipts);
    Ok(HttpReply::Reported(decided, rest))
}

/// Gives back units of keys, or resets keys.
async fn change(app: &App, limits: &Limits, verb: Verb, call: &HttpCall) -> Replied {
    let asks = match call.subject(&app.rules, limits, &app.bounds)? {
        CallSubject::Named(asks) => asks,
        CallSubject::Requests(requests) => LimiterAsks::of_all(limits, &requests).map_err(|_| {
            CallProblem::bad("the rules refuse this request without a limit, so it has no keys")
        })?,
    };
    if asks.is_empty() {
        return Ok(HttpReply::Allowed(None, None));
    }
    let mode = if verb == Verb::Reset { Mode::Reset } else { Mode::Refund };
    Ok(HttpReply::Reported(asks.label(asks.decide(mode).await?), None))
}
