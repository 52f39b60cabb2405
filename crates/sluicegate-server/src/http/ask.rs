//! The decisions of the API: `/v1/check`, `/v1/peek` and `/v1/reserve`.

use http::Request;
use sluicegate_core::limiter::ForLayers;
use sluicegate_core::store::Mode;
use sluicegate_core::{Decision, Policy};
use sluicegate_tower::limits::Limits;

use super::answer::{HttpReply, Replied};
use super::call::{CallSubject, HttpCall};
use super::problem::CallProblem;
use super::settle;
use crate::app::App;
use crate::asks::LimiterAsks;
use crate::receipt::ReceiptToken;

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
        (Verb::Refund, Some(receipt)) => return settle::refund(app, call, receipt).await,
        (Verb::Refund | Verb::Reset, _) => return settle::change(app, limits, verb, call).await,
        _ => {}
    }
    match call.subject(&app.rules, limits, &app.bounds)? {
        // Every key in it is unlimited.
        CallSubject::Named(asks) if asks.is_empty() => Ok(HttpReply::Allowed(None, None)),
        CallSubject::Named(asks) => decide(app, limits, verb, call, &asks).await,
        CallSubject::Request(request) if verb == Verb::Check => by_rules(app, limits, &request).await,
        CallSubject::Request(request) => match LimiterAsks::of(limits, (&*request).into()) {
            Ok(asks) if !asks.is_empty() => decide(app, limits, verb, call, &asks).await,
            Ok(asks) => {
                if verb == Verb::Reserve {
                    asks.check_shadows();
                }
                Ok(HttpReply::Allowed(None, None))
            }
            // The rules refuse it without a limit, so nothing is spent.
            Err(_) => by_rules(app, limits, &request).await,
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
            let mut decision = reserve(app, call, asks).await?;
            let receipt = app.receipts.write(asks.receipts(&mut decision));
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
    let decided = asks.label(decision);
    if decided.is_allowed() {
        asks.check_shadows();
        return HttpReply::Allowed(Some(decided), receipt);
    }
    match limits.conclude(decided) {
        Ok(_) => HttpReply::Allowed(None, receipt),
        Err(refused) => HttpReply::Refused(refused),
    }
}
