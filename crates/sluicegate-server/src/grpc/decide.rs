//! Deciding the descriptors of a call, together or each by itself.

use std::sync::Arc;

use http::Request;
use sluicegate_core::limiter::check_all;
use sluicegate_core::store::{DecisionFuture, Mode, QuotaStatus};
use sluicegate_core::support::Seldom;
use sluicegate_core::{Policy, StoreError};
use sluicegate_tower::limits::{Limits, Refused};
use sluicegate_tower::rate_limit::Decided;

use crate::app::{App, Charge};
use crate::asks::{LimiterAsk, LimiterAsks};
use crate::grpc::answer::DescriptorAnswers;
use crate::grpc::call::{EnvoyCall, Hits};

/// A descriptor to which rules apply, and its asks.
struct DescriptorAsks {
    /// The place of the descriptor in the call.
    place: usize,
    hits: Hits,
    asks: LimiterAsks,
}

/// The descriptors that one call of the store decides.
struct StoreCall<'a>(Vec<&'a DescriptorAsks>);

/// Decides a call by the rules.
pub(super) async fn decide(
    app: &App,
    limits: &Limits,
    call: EnvoyCall,
) -> Result<DescriptorAnswers, StoreError> {
    let (mut answer, mut asking) =
        (DescriptorAnswers::of(call.hits.len()), Vec::with_capacity(call.hits.len()));
    for (place, (request, hits)) in call.descriptors.requests().zip(&call.hits).enumerate() {
        match LimiterAsks::of(limits, (&request).into()) {
            Ok(asks) => asking.push(DescriptorAsks { place, hits: *hits, asks }),
            Err(_) => {
                if let Some(refused) = refused(limits, &request).await {
                    answer.refuse(place, refused);
                }
            }
        }
    }
    let (refunds, spends): (Vec<&DescriptorAsks>, Vec<&DescriptorAsks>) = asking
        .iter()
        .filter(|asking| !asking.asks.is_empty())
        .partition(|asking| asking.hits == Hits::Refund);
    let groups = match app.charge {
        // A rule has refused one of them, so none may spend.
        Charge::AllOrNone if answer.is_refused() => Vec::new(),
        Charge::AllOrNone => vec![StoreCall(spends)],
        Charge::Each => spends.into_iter().map(|asking| StoreCall(vec![asking])).collect(),
    };
    let refunds = refunds.into_iter().map(|asking| StoreCall(vec![asking]));
    // All are asked before the first answer is waited for.
    let asked: Vec<_> =
        groups.into_iter().chain(refunds).filter(|group| !group.0.is_empty()).map(StoreCall::ask).collect();
    for (group, decision) in asked {
        let decided = Decided::new(decision.await?, group.policies());
        answer.add(decided, |status| group.place(status));
    }
    for DescriptorAsks { hits, asks, .. } in &asking {
        if *hits == Hits::Spend && !answer.is_refused() {
            asks.check_shadows();
        }
    }
    Ok(answer)
}

/// The refusal of a rule without a limit, such as one under `deny`; nothing is spent.
async fn refused(limits: &Limits, request: &Request<()>) -> Option<Box<Refused>> {
    static REFUSED: Seldom = Seldom::new();
    let refused = limits.decide(request).await.err()?;
    if refused.refusal(request).status().is_server_error() && REFUSED.is_due() {
        tracing::error!(%refused, "a rule cannot be decided for a descriptor, which is refused; said once a second");
    }
    Some(refused)
}

impl<'a> StoreCall<'a> {
    fn asked(&self) -> impl Iterator<Item = (&'a DescriptorAsks, &'a LimiterAsk)> {
        self.0.iter().flat_map(|asking| asking.asks.iter().map(|asked| (*asking, asked)))
    }

    /// Asks the store.
    fn ask(self) -> (Self, DecisionFuture) {
        let decision = check_all(self.asked().map(|(asking, asked)| {
            let mode = match asking.hits {
                Hits::Spend => Mode::Spend,
                Hits::Look => Mode::Peek,
                Hits::Refund => Mode::Refund,
            };
            asked.limiter.check(&asked.key).cost(asked.cost).mode(mode)
        }));
        (self, decision)
    }

    fn policies(&self) -> Arc<[Arc<Policy>]> {
        self.asked().map(|(_, asked)| asked.limiter.policy()).collect()
    }

    /// The descriptor that a status is about.
    fn place(&self, status: &QuotaStatus) -> Option<usize> {
        self.asked().nth(status.policy_index()).map(|(asking, _)| asking.place)
    }
}
