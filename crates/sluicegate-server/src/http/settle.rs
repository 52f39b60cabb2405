//! The changes of the API: `/v1/settle`, `/v1/refund` and `/v1/reset`.

use sluicegate_core::store::Mode;
use sluicegate_tower::limits::Limits;
use sluicegate_tower::rate_limit::Decided;

use super::answer::{HttpReply, Replied};
use super::ask::Verb;
use super::call::{CallSubject, HttpCall, Settlement};
use super::problem::CallProblem;
use crate::app::App;
use crate::asks::LimiterAsks;

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
pub(super) async fn change(app: &App, limits: &Limits, verb: Verb, call: &HttpCall) -> Replied {
    let asks = match call.subject(&app.rules, limits, &app.bounds)? {
        CallSubject::Named(asks) => asks,
        CallSubject::Request(request) => LimiterAsks::of(limits, (&*request).into()).map_err(|_| {
            CallProblem::bad("the rules refuse this request without a limit, so it has no keys")
        })?,
    };
    if asks.is_empty() {
        return Ok(HttpReply::Allowed(None, None));
    }
    let mode = if verb == Verb::Reset { Mode::Reset } else { Mode::Refund };
    Ok(HttpReply::Reported(asks.label(asks.decide(mode).await?), None))
}
