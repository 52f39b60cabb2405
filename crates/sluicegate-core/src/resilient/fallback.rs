//! What is decided while the store cannot be asked: by its policies' [`OnOutage`].

use std::time::Duration;

use smallvec::SmallVec;

use super::{Prepared, State};
use crate::clock::micros;
use crate::decision::{DecidedBy, Decision, Outcome, QuotaStatus};
use crate::error::StoreError;
use crate::policy::OnOutage;
use crate::store::{Ask, Mode, judge};

/// The shortest wait that a request is told that is refused because the store cannot be reached.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

impl State {
    /// Decides without the store, which could not answer for the reason given.
    pub(super) fn decide_alone(&self, asks: &[Ask<'_>], reason: StoreError) -> Result<Decision, StoreError> {
        let on_outage = |ask: &Ask<'_>| ask.policy().policy().on_outage();
        let refuses = |ask: &Ask<'_>| on_outage(ask) == OnOutage::Deny && ask.mode().asks();
        if asks.iter().any(|ask| ask.mode() == Mode::Reset) {
            // Who resets a key wants it to be so everywhere, and has to know that it is not.
            return Err(reason);
        }
        if asks.iter().any(|ask| matches!(ask.mode(), Mode::Return | Mode::Depart) && !is_its(ask)) {
            // The turn is the store's, which may or may not have heard of it.
            return Err(reason);
        }
        if asks.iter().any(refuses) {
            return Ok(self.assumed(asks, refuses));
        }
        let local: SmallVec<[(u8, Ask<'_>); 4]> = (0_u8..)
            .zip(asks)
            .filter_map(|(index, ask)| {
                let share = ask.policy().prepared::<Prepared>()?.share.as_ref()?;
                let ask = ask.on(share);
                // A receipt of the store is by another clock.
                Some((index, if is_its(&ask) { ask } else { ask.plainly(ask.mode()) }))
            })
            .collect();
        let decision = if local.is_empty() {
            self.assumed(asks, |_| false)
        } else {
            let local_asks: SmallVec<[Ask<'_>; 4]> = local.iter().map(|(_, ask)| *ask).collect();
            let Ok(decision) = self.fallback.decide(&local_asks).now() else { return Err(reason) };
            let decision = decision?;
            if decision.outcome() == Outcome::Impossible && asks.iter().all(fits_from_rest) {
                // It is too much for this process' share, not for the quota: it could pass when the store is back.
                return Ok(self.assumed(asks, |ask| on_outage(ask) == OnOutage::Local));
            }
            let places: SmallVec<[u8; 4]> = local.iter().map(|(index, _)| *index).collect();
            decision.of_asks(&places).by(DecidedBy::Fallback)
        };
        if decision.is_allowed() {
            self.note_spending(asks);
        }
        Ok(decision)
    }

    /// A decision that nobody counted: refused by the policies that `refuses` names, if there are any.
    fn assumed(&self, asks: &[Ask<'_>], refuses: impl Fn(&Ask<'_>) -> bool) -> Decision {
        let wait_us = micros(self.longest_pause().max(SHORTEST_WAIT));
        let statuses = (0_u8..).zip(asks).flat_map(|(policy, ask)| {
            let refused = refuses(ask);
            (0_u8..).zip(ask.policy().policy().quotas()).map(move |(quota, of)| {
                let status = QuotaStatus::at_rest((policy, quota), of.rule().capacity());
                let refusal =
                    || status.with_remaining(0).with_reset_after_us(wait_us).refused_for_us(wait_us);
                if refused { refusal() } else { status }
            })
        });
        judge(self.now_us(), 0, statuses).by(DecidedBy::Outage)
    }

    /// Remembers what was spent without the store, to be debited when it is back.
    fn note_spending(&self, asks: &[Ask<'_>]) {
        for ask in asks {
            // What is let through uncounted stays uncounted; a charge is known to be owed, whatever the policy.
            let counts = match ask.mode() {
                Mode::Charge => true,
                mode => mode.spends() && ask.policy().policy().on_outage() == OnOutage::Local,
            };
            if counts {
                self.debts.add(ask.policy(), ask.key().to_key(), ask.cost());
            } else {
                self.strike(ask);
            }
        }
    }

    /// Tells the fallback what the store has decided, so that it does not start from rest when it is needed.
    pub(super) fn keep_warm(&self, asks: &[Ask<'_>], decision: &Decision) {
        if !decision.is_allowed() {
            return;
        }
        for ask in asks {
            let Some(share) =
                ask.policy().prepared::<Prepared>().and_then(|prepared| prepared.share.as_ref())
            else {
                continue;
            };
            let local = ask.on(share);
            let local = match ask.mode() {
                // As far as it fits: a share is smaller than what the store may let through here.
                Mode::Spend | Mode::Reserve { .. } | Mode::Charge => local.plainly(Mode::Spend),
                Mode::Refund if is_its(ask) => {
                    self.strike(ask);
                    local
                }
                Mode::Refund | Mode::Return => local.plainly(Mode::Refund),
                Mode::Peek | Mode::Depart => continue,
                Mode::Reset => local,
            };
            drop(self.fallback.decide(&[local]));
        }
    }

    /// Strikes off the debt what is given back of what the fallback has let pass, or may have.
    fn strike(&self, ask: &Ask<'_>) {
        if matches!(ask.mode(), Mode::Refund | Mode::Return) && (is_its(ask) || ask.receipt().is_none()) {
            self.debts.strike(ask.policy(), &ask.key().to_key(), ask.cost());
        }
    }
}

/// Whether it is about what the fallback let pass.
pub(super) fn is_its(ask: &Ask<'_>) -> bool {
    ask.receipt().is_some_and(|receipt| receipt.decided_by() == DecidedBy::Fallback)
}

/// Whether the quotas, whole, ever let the cost pass at once.
fn fits_from_rest(ask: &Ask<'_>) -> bool {
    ask.policy().policy().quotas().iter().all(|quota| ask.cost() <= quota.rule().capacity())
}
