//! Decides requests, from kept refusals or with the store.
//!
//! 1. All asks are checked before any call. If one of them is refused, the whole request is: the others are not asked and spend nothing.
//! 2. If a refusal has just ended, one request becomes the probe, and the others wait for its answer, once.
//! 3. The store is asked, and its answer is kept even if the future is dropped: a client that hangs up at once would otherwise cost a
//!    call each time.

use std::cell::LazyCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::clock::Clock;
use sluicegate_core::key::KeyRef;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{
    Ask, DecidedBy, DecisionFuture, DenyCacheStatus, Mode, Notice, OwnQuotas, Place, PreparedPolicy,
    QuotaStatus, ShortAnswer, ShortWay, StoreStatus, judge,
};
use sluicegate_core::wrap::{OwnedAsk, Within, Wrap};
use sluicegate_core::{ConfigError, Decision, Policy, StoreError};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::refusal::{CachedRefusal, CallTimes, Id, Keep, Question};
use super::table::{KeyProbe, RefusalLookup, RefusalTable};
use crate::latch::Latch;

/// The part that limiters hold. Calls that have to wait clone its state.
pub(super) struct CachedStore(pub(super) Arc<CacheState>);

pub(super) struct CacheState {
    /// The inner store; its refusals are kept.
    pub(super) within: Within<CachedPolicy>,
    /// Shared with probes, which notify it when they are dropped.
    pub(super) table: Arc<RefusalTable>,
    /// The number of keys that the table has room for, as configured.
    pub(super) slots: usize,
    pub(super) keep: Keep,
    /// The cache's own clock. Refusals are kept by spans, so neither its epoch nor the store's matters.
    pub(super) clock: Arc<dyn Clock>,
    /// Requests that were refused here, without a call.
    pub(super) refused: AtomicU64,
    /// Requests that went on to the store.
    pub(super) asked: AtomicU64,
}

/// The state kept of a policy.
pub(super) struct CachedPolicy {
    /// Separates its keys from the keys of other policies. A policy that is replaced by a different one gets another number.
    version: u64,
}

pub(super) type Questions = SmallVec<[Question; 2]>;
pub(super) type Probes = SmallVec<[KeyProbe; 1]>;

impl Wrap for CachedStore {
    type Own = CachedPolicy;

    fn within(&self) -> &Within<CachedPolicy> {
        &self.0.within
    }

    fn own_place(&self) -> Option<Place> {
        Some(Place::DenyCache)
    }

    fn prepare(
        &self,
        policy: &Arc<Policy>,
        _: Option<(&CachedPolicy, Inherit)>,
    ) -> Result<CachedPolicy, ConfigError> {
        Ok(CachedPolicy { version: self.0.table.version(policy) })
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // A refusal that spends is a report as well.
        let reports = |ask: &Ask<'_>| !is_question(ask.mode()) || ask.policy().policy().counts_rejected();
        if asks.iter().any(reports) { self.0.report(asks) } else { self.0.decide(asks, true) }
    }

    fn short_way(&self, policy: &PreparedPolicy, within: Arc<dyn ShortWay>) -> Option<Arc<dyn ShortWay>> {
        let version = self.0.within.own(policy).ok()?.version;
        let counts = policy.policy().counts_rejected() || policy.policy().suspension().is_some();
        let (state, policy) = (Arc::clone(&self.0), policy.clone());
        Some(Arc::new(CachedShortWay { within, state, policy, version, counts }))
    }

    fn hear(&self, notice: &Notice<'_>) {
        if let Notice::Replaced { .. } = notice {
            // This is rare; each forgotten key costs one call.
            self.0.table.clear();
        }
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn report(&self, status: &mut StoreStatus) {
        status.deny_cache = Some(self.0.status());
    }
}

impl CacheState {
    pub(super) fn status(&self) -> DenyCacheStatus {
        let mut status = DenyCacheStatus::default();
        (status.keys, status.evictions) = self.table.counts();
        status.slots = self.slots;
        // Relaxed: these are counts.
        status.refused = self.refused.load(Ordering::Relaxed);
        status.asked = self.asked.load(Ordering::Relaxed);
        status
    }

    /// The number of the quotas that the key of an ask brings: equal quotas have the same number.
    pub(super) fn quotas(&self, ask: &Ask<'_>) -> u64 {
        let number = |own: &Arc<OwnQuotas>| {
            let made = own.prepared(ask.policy(), || Ok::<_, Infallible>(self.table.version(own.policy())));
            made.map_or_else(|never| match never {}, |number| *number)
        };
        ask.own().map_or(0, number)
    }

    /// Decides asks that are questions. A request that has waited for a probe once does not wait for another.
    #[inline]
    fn decide(self: &Arc<Self>, asks: &[Ask<'_>], may_wait: bool) -> DecisionFuture {
        match asks {
            [ask] => self.decide_one(ask, may_wait),
            asks => self.decide_all(asks, may_wait),
        }
    }

    /// Decides one ask, the usual case: a kept refusal answers at once.
    #[inline]
    fn decide_one(self: &Arc<Self>, ask: &Ask<'_>, may_wait: bool) -> DecisionFuture {
        let asks = std::slice::from_ref(ask);
        let kept = match self.within.own(ask.policy()) {
            Ok(kept) => kept,
            Err(foreign) => return DecisionFuture::ready(Err(foreign)),
        };
        let id = self.table.id(kept.version, ask.key());
        let spends = usize::from(ask.mode() != Mode::Peek);
        let question = Question::new(0, ask, spends, (id, self.quotas(ask)), self.table.mark());
        let now_us = self.clock.now_us();
        let Some(question) = question else {
            return self.ask_store(asks, Questions::new(), Probes::new(), now_us);
        };
        let refused = |refusal: &CachedRefusal| {
            let statuses = refusal.statuses(&question, ask.numbers(), now_us);
            judge(refusal.at_us(now_us), 0, statuses).by(DecidedBy::Cache)
        };
        let probes = match self.table.look(&question, now_us, refused) {
            RefusalLookup::Refused(decision) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return DecisionFuture::ready(Ok(decision));
            }
            RefusalLookup::Nothing => Probes::new(),
            RefusalLookup::Due => self.table.probe(id).into_iter().collect(),
            RefusalLookup::Probed(latch) => match Handle::try_current() {
                Ok(_) if may_wait => return self.wait(asks, latch),
                _ => Probes::new(),
            },
        };
        self.ask_store(asks, std::iter::once(question).collect(), probes, now_us)
    }

    fn decide_all(self: &Arc<Self>, asks: &[Ask<'_>], may_wait: bool) -> DecisionFuture {
        let questions = match self.questions(asks) {
            Ok(questions) => questions,
            Err(foreign) => return DecisionFuture::ready(Err(foreign)),
        };
        let now_us = self.clock.now_us();
        let (mut refusals, mut due) =
            (SmallVec::<[(usize, CachedRefusal); 1]>::new(), SmallVec::<[Id; 1]>::new());
        let mut probed = None;
        for (index, question) in questions.iter().enumerate() {
            match self.table.look(question, now_us, CachedRefusal::clone) {
                RefusalLookup::Nothing => {}
                RefusalLookup::Refused(refusal) => refusals.push((index, refusal)),
                RefusalLookup::Due => due.push(question.id),
                RefusalLookup::Probed(latch) => probed = Some(latch),
            }
        }
        if !refusals.is_empty() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return DecisionFuture::ready(Ok(self.refuse(asks, &questions, &refusals, now_us)));
        }
        if let (Some(latch), true, Ok(_)) = (probed, may_wait, Handle::try_current()) {
            return self.wait(asks, latch);
        }
        let probes = due.into_iter().filter_map(|id| self.table.probe(id)).collect();
        self.ask_store(asks, questions, probes, now_us)
    }

    /// Waits once for another request's probe, then decides.
    #[cold]
    fn wait(self: &Arc<Self>, asks: &[Ask<'_>], latch: Latch) -> DecisionFuture {
        let asks: SmallVec<[OwnedAsk; 1]> = asks.iter().map(OwnedAsk::new).collect();
        let state = Arc::clone(self);
        DecisionFuture::begun_here(async move {
            latch.opened().await;
            let follows = {
                let asks: SmallVec<[Ask<'_>; 4]> = asks.iter().map(OwnedAsk::ask).collect();
                state.decide(&asks, false)
            };
            follows.await
        })
    }

    /// Asks the store, and keeps its answer.
    fn ask_store(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        questions: Questions,
        probes: Probes,
        sent_us: u64,
    ) -> DecisionFuture {
        let answer = self.within.decide(asks);
        self.answered(answer, questions, probes, sent_us)
    }

    /// Keeps an answer of the store.
    pub(super) fn answered(
        self: &Arc<Self>,
        answer: DecisionFuture,
        questions: Questions,
        probes: Probes,
        sent_us: u64,
    ) -> DecisionFuture {
        self.asked.fetch_add(1, Ordering::Relaxed);
        // Looked at in place: a decision is large.
        if let Some(result) = answer.known() {
            // A lease teaches the cache nothing, except that the probe has finished.
            if !probes.is_empty() || result.as_ref().map_or(true, is_of_the_store) {
                self.keep(&questions, result, sent_us);
            }
            return answer;
        }
        let state = Arc::clone(self);
        // Kept even if the future is dropped.
        answer.map_even_if_dropped(move |result| {
            state.keep(&questions, &result, sent_us);
            drop(probes);
            result
        })
    }

    /// Keeps the store's answer. Decisions of an outage and of leases are local already.
    fn keep(&self, questions: &[Question], result: &Result<Decision, StoreError>, sent_us: u64) {
        let times = || CallTimes { sent_us, received_us: self.clock.now_us() };
        // Joint turns are bounded by the shortest patience, so the answer says nothing about each turn alone.
        let spends = || questions.iter().filter(|question| !question.looks);
        let is_plain = spends().count() == 1 || spends().all(|question| question.patience_us == 0);
        for (index, question) in questions.iter().enumerate() {
            let mut others = questions[..index].iter().chain(&questions[index + 1..]);
            // Asks about one bucket affect each other: a cost that does not fit after the first may fit alone.
            let is_alone = others.all(|other| other.id != question.id);
            let refusal = match result {
                Ok(decision) if is_plain && is_alone && is_of_the_store(decision) => {
                    let is_settled = !decision.is_allowed() || decision.delay().is_zero();
                    CachedRefusal::of(question, decision, times, self.keep).filter(|_| is_settled)
                }
                _ => None,
            };
            self.table.keep(question.id, question.mark, refusal);
        }
    }

    /// The decision that follows from the known refusals of some questions. It says nothing about the others.
    fn refuse(
        &self,
        asks: &[Ask<'_>],
        questions: &[Question],
        refusals: &[(usize, CachedRefusal)],
        now_us: u64,
    ) -> Decision {
        let mut statuses = SmallVec::<[QuotaStatus; 4]>::new();
        for (index, refusal) in refusals {
            let question = &questions[*index];
            statuses.extend(refusal.statuses(question, asks[question.ask_index()].numbers(), now_us));
        }
        let at_us = refusals.iter().map(|(_, refusal)| refusal.at_us(now_us)).max().unwrap_or(now_us);
        judge(at_us, 0, statuses).by(DecidedBy::Cache)
    }

    /// Forwards reports, and forgets their keys: before the call, and again when it is done, because questions that were
    /// asked in between may have been decided before the report.
    fn report(self: &Arc<Self>, asks: &[Ask<'_>]) -> DecisionFuture {
        let (mut ids, mut looks) = (SmallVec::<[Id; 2]>::new(), Questions::new());
        for (index, ask) in (0..).zip(asks) {
            let version = match self.within.own(ask.policy()) {
                Ok(kept) => kept.version,
                Err(foreign) => return DecisionFuture::ready(Err(foreign)),
            };
            let id = self.table.id(version, ask.key());
            if ask.mode() == Mode::Peek {
                // A caller that counts a refusal learns that the key is suspended.
                looks.extend(Question::new(index, ask, 1, (id, self.quotas(ask)), self.table.mark()));
            } else {
                ids.push(id);
            }
        }
        let sent_us = self.clock.now_us();
        let forget = move |table: &RefusalTable| ids.iter().for_each(|id| table.forget(*id));
        forget(&self.table);
        let state = Arc::clone(self);
        self.within.decide(asks).map_even_if_dropped(move |result| {
            forget(&state.table);
            state.keep(&looks, &result, sent_us);
            result
        })
    }

    /// The asks that a refusal may answer.
    fn questions(&self, asks: &[Ask<'_>]) -> Result<Questions, StoreError> {
        let mut questions = Questions::new();
        let spends = asks.iter().filter(|ask| ask.mode() != Mode::Peek).count();
        for (index, ask) in (0..).zip(asks) {
            let kept = self.within.own(ask.policy())?;
            let bucket = (self.table.id(kept.version, ask.key()), self.quotas(ask));
            questions.extend(Question::new(index, ask, spends, bucket, self.table.mark()));
        }
        Ok(questions)
    }
}

/// Whether a decision comes from the store itself.
fn is_of_the_store(decision: &Decision) -> bool {
    decision.decided_by() == DecidedBy::Store
}

fn is_question(mode: Mode) -> bool {
    matches!(mode, Mode::Spend | Mode::Take | Mode::Reserve { .. } | Mode::Peek)
}

/// The fast path of a policy, around the fast path of the inner store.
struct CachedShortWay {
    within: Arc<dyn ShortWay>,
    state: Arc<CacheState>,
    policy: PreparedPolicy,
    /// The number of the policy.
    version: u64,
    /// Whether a refusal counts, so that an ask has to go through the cache.
    counts: bool,
}

impl ShortWay for CachedShortWay {
    fn spend(&self, key: &KeyRef<'_>, cost: u64) -> Option<ShortAnswer> {
        let Self { state, .. } = self;
        let id = LazyCell::new(|| state.table.id(self.version, *key));
        let is_unknown = state.table.is_unknown(|| *id);
        let (mark, now_us) = (state.table.mark(), state.clock.now_us());
        let question = || {
            let ask = Ask::new(&self.policy, *key, cost, self.policy.spends());
            Question::new(0, &ask, 1, (*id, state.quotas(&ask)), mark)
        };
        if !is_unknown {
            return if self.counts { None } else { self.refusal(&question()?, now_us) };
        }
        // Without an answer, an ask goes through the cache, which keeps what it learns.
        let answer = self.within.spend(key, cost)?;
        // Relaxed: it is a count.
        state.asked.fetch_add(1, Ordering::Relaxed);
        if !answer.status().passed() || answer.status().remaining() < cost {
            let question = question().into_iter().collect::<Questions>();
            state.keep(&question, &Ok(answer.numbers()), now_us);
        }
        Some(answer)
    }

    fn is_at_rest(&self, key: &KeyRef<'_>) -> bool {
        self.within.is_at_rest(key)
    }
}

impl CachedShortWay {
    /// The kept refusal of this question, if there is one.
    fn refusal(&self, question: &Question, now_us: u64) -> Option<ShortAnswer> {
        let Self { state, policy, .. } = self;
        let refused = |refusal: &CachedRefusal| {
            let status = refusal.statuses(question, policy.numbers(), now_us).next()?;
            Some(ShortAnswer::new(refusal.at_us(now_us), status).by(DecidedBy::Cache))
        };
        let RefusalLookup::Refused(answer) = state.table.look(question, now_us, refused) else { return None };
        // Relaxed: it is a count.
        state.refused.fetch_add(1, Ordering::Relaxed);
        answer
    }
}
