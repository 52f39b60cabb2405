//! Passes the checks of one key on to the fast path of the inner store, if no refusal of the key is kept: [`CachedShortWay`].

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_core::key::KeyRef;
use sluicegate_core::store::{Ask, DecisionFuture, Mode, PreparedPolicy, QuotaStatus, ShortWay};

use super::question::Question;
use super::store::{CacheState, Probes, Questions};

/// The fast path of a policy, around the fast path of the inner store.
pub(super) struct CachedShortWay {
    pub(super) within: Arc<dyn ShortWay>,
    pub(super) state: Arc<CacheState>,
    pub(super) policy: PreparedPolicy,
    /// The number of the policy.
    pub(super) version: u64,
}

impl ShortWay for CachedShortWay {
    fn spend(
        &self,
        key: &KeyRef<'_>,
        cost: u64,
        told: Option<&dyn Fn(u64, &QuotaStatus)>,
        otherwise: &dyn Fn() -> DecisionFuture,
    ) -> DecisionFuture {
        let Self { state, .. } = self;
        let id = || state.table.id(self.version, *key, false);
        if !state.table.is_unknown(id) {
            return otherwise();
        }
        let (is_asked, mark, sent_us) = (Cell::new(false), state.table.mark(), state.clock.now_us());
        let answer = self.within.spend(key, cost, told, &|| {
            is_asked.set(true);
            otherwise()
        });
        match answer.known() {
            // An ask goes through the cache, which keeps its answer.
            _ if is_asked.get() => answer,
            Some(Ok(decision)) if decision.is_allowed() && decision.remaining() >= cost => {
                state.asked.fetch_add(1, Ordering::Relaxed);
                answer
            }
            _ => {
                let ask = Ask::new(&self.policy, *key, cost, Mode::Spend);
                let question = Question::new(0, &ask, true, (id(), state.quotas(&ask)), mark);
                state.answered(answer, question.into_iter().collect::<Questions>(), Probes::new(), sent_us)
            }
        }
    }
}
