//! The changes of the API: `/v1/settle`, `/v1/refund` and `/v1/reset`.

use sluicegate_core::store::Mode;
use sluicegate_tower::limits::Limits;
use sluicegate_tower::rate_limit::Decided;

use super::answer::Reply;
use super::ask::Verb;
use super::call::{Call, Settlement, Subject};
use super::problem::Problem;
use crate::app::App;
use crate::asks::Asks;

/// Charges or gives back the difference between the reserved and the actual units.
pub(super) async fn settle(app: &App, settlement: &Settlement) -> Result<Reply, Problem> {
    let mut redeemed = app.receipts.redeem(&settlement.receipt).await?;
    let (policies, settled) = (redeemed.policies(), redeemed.settle(settlement.actual));
    Ok(Reply::Reported(Decided::new(settled.await?, policies), None))
}

/// Gives back units of a receipt, and issues a receipt for the units that are left.
pub(super) async fn refund(app: &App, call: &Call, receipt: &str) -> Result<Reply, Problem> {
    let mut redeemed = app.receipts.redeem(receipt).await?;
    let (policies, given) = (redeemed.policies(), redeemed.refund(call.units()));
    let decided = Decided::new(given.await?, policies);
    let rest = redeemed.rest(&app.receipts);
    Ok(Reply::Reported(decided, rest))
}

/// Gives back units of keys, or resets keys.
pub(super) async fn change(app: &App, limits: &Limits, verb: Verb, call: &Call) -> Result<Reply, Problem> {
    let asks = match call.subject(&app.rules, limits, &app.bounds)? {
        Subject::Named(asks) => asks,
        Subject::Request(request) => Asks::of(limits, (&*request).into())
            .map_err(|_| Problem::bad("the rules refuse this request without a limit, so it has no keys"))?,
    };
    if asks.is_empty() {
        return Ok(Reply::Allowed(None, None));
    }
    let mode = if verb == Verb::Reset { Mode::Reset } else { Mode::Refund };
    Ok(Reply::Reported(asks.label(asks.decide(mode).await?), None))
}
