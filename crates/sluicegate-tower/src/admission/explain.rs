//! Explains the decision on a request by a walk that spends nothing.

use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::{Mode, QuotaStatus};
use sluicegate_core::{Decision, Policy, StoreError};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use crate::admission::asks::RequestAsks;
use crate::admission::explanation::{AskExplained, Explanation, LimitExplained, WouldBe};
use crate::admission::foreseen::foreseen;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::guard::Place;
use crate::guard::gate::Waits;
use crate::guard::service::Queue;
use crate::key::RequestView;
use crate::limits::Limit;
use crate::limits::door::DoorVerdict;
use crate::limits::plan::What;
use crate::limits::walk::{LimitFinding, RequestAsk, Walk, WalkStep, WhyNot};
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;

impl Limits {
    /// Explains the decision on a request: every limit in order, whether it applies or the reason why not, its
    /// policy, key, tier and cost, and the status of each quota. It spends nothing and takes no place in the queue;
    /// keys and tiers are looked up as for a decision, and messages that are logged once may be logged here. Under a policy
    /// that [counts refused requests](sluicegate_core::policy::PolicyBuilder::count_rejected) the wait of a refusal is a
    /// lower bound, because making the request now and being refused would make the wait longer.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::key::HeaderKey;
    /// use sluicegate_tower::limits::{Limits, WouldBe, path_in};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let by_key = || HeaderKey::new("x-api-key");
    /// let login = Limit::new(Policy::gcra("login", "5/min").on(&store)?).key(by_key()?).only_if(path_in(["/login"])?);
    /// let api = Limit::new(Policy::gcra("api", "100/min").on(&store)?).key(by_key()?);
    /// let limits = Limits::builder(api).and(login).build()?;
    ///
    /// let request = Request::get("/search").header("x-api-key", "k1").body(())?;
    /// let explained = limits.explain(&request).await;
    /// assert_eq!(explained.outcome, WouldBe::Allowed);
    /// assert_eq!(explained.limits[1].asks.as_ref().unwrap_err(), "a condition of it does not hold");
    /// println!("{explained}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it undoes nothing, because nothing is done.
    ///
    /// # Panics
    /// When a key or a tier has to be waited for outside of a tokio runtime that has its timer enabled.
    pub fn explain<'a>(
        &self,
        request: impl Into<RequestView<'a>>,
    ) -> Pin<Box<dyn Future<Output = Explanation> + Send + 'a>> {
        let (limits, request) = (self.clone(), request.into());
        Box::pin(async move { Explaining::new(&limits).explain(request).await })
    }
}

/// An explanation that is being made.
struct Explaining<'a> {
    limits: &'a Limits,
    explained: Vec<LimitExplained>,
    asks: RequestAsks,
    /// Whether a limit delays bodies.
    holds: bool,
    /// The first reason to refuse the request.
    stop: Option<Stop>,
}

impl<'a> Explaining<'a> {
    fn new(limits: &'a Limits) -> Self {
        // Limits that the walk does not reach keep this text.
        let passed_by = "a limit before it in its group applies, or its group does not";
        let explained = limits
            .plan()
            .limits
            .iter()
            .map(|limit| LimitExplained { name: limit.title(), asks: Err(passed_by.to_owned()) });
        Self {
            limits,
            explained: explained.collect(),
            asks: RequestAsks::default(),
            holds: false,
            stop: None,
        }
    }

    async fn explain(mut self, request: RequestView<'_>) -> Explanation {
        match self.entry(request).await {
            DoorVerdict::PastTheLimits => return self.unasked(WouldBe::Exempt, "the request is exempt"),
            DoorVerdict::Refused(status) => {
                let outcome = self.refused(Stop::Plain(RefusalReason::Blocked(status)), request);
                return self.unasked(outcome, "the request is refused before any limit");
            }
            DoorVerdict::ToTheLimits | DoorVerdict::Asking(_) => {}
        }
        self.say_why_not(request);
        self.walk(request).await;
        let outcome = self.peek(request).await;
        Explanation { outcome, limits: self.explained }
    }

    async fn entry(&self, request: RequestView<'_>) -> DoorVerdict {
        let Some(door) = &self.limits.settings().door else { return DoorVerdict::ToTheLimits };
        match door.entry(request) {
            DoorVerdict::Asking(answer) => {
                let answer = tokio::time::timeout(self.limits.waits().longest_lookup, answer).await;
                door.entry_of(answer.unwrap_or(false), request)
            }
            entry => entry,
        }
    }

    /// Asks selectors for the reasons why limits do not apply. The walk then overwrites the text of each limit that it reaches.
    fn say_why_not(&mut self, request: RequestView<'_>) {
        for step in &self.limits.plan().steps {
            let What::Select(select, members) = &step.what else { continue };
            for (place, member) in members.iter().enumerate() {
                let Some(why) = select.why_not(request, place) else { continue };
                self.explained[member.limits.clone()]
                    .iter_mut()
                    .for_each(|limit| limit.asks = Err(why.clone()));
            }
        }
    }

    /// Walks over all limits, including limits after a refusal.
    async fn walk(&mut self, request: RequestView<'_>) {
        let plan = self.limits.plan();
        let longest_lookup = self.limits.waits().longest_lookup;
        let (waits, mut place) = (Waits { queue: Queue::up_to(1), longest_lookup }, Place::default());
        let mut walk = Walk::default();
        let mut next = walk.next(plan, request);
        loop {
            next = match next {
                WalkStep::Found(limit, finding) => {
                    self.found(limit, finding).await;
                    walk.next(plan, request)
                }
                WalkStep::Waits(mut lookup) => {
                    poll_fn(|cx| lookup.poll(cx, (plan, request), &waits, &mut place)).await
                }
                WalkStep::End => return,
            }
        }
    }

    async fn found(&mut self, limit: usize, finding: LimitFinding) {
        let why = match finding {
            LimitFinding::Asks { ask, is_enforced } => {
                self.explained[limit].asks = Ok(self.described(&ask));
                if is_enforced {
                    self.asks.push(ask);
                } else {
                    let limiter = ask.limiter(self.limits.plan());
                    let standing = limiter.peek(&ask.key).cost(ask.cost).await;
                    self.stand(limit, counted(&standing).to_vec());
                }
                return;
            }
            LimitFinding::Holds(held) => {
                let limiter = held.limiter(self.limits.plan());
                self.holds |= limiter.with_policy(Policy::mode) == PolicyMode::Enforce;
                let standing = limiter.peek(&held.key).await;
                self.explained[limit].asks = Ok(self.described(&held));
                self.stand(limit, counted(&standing).to_vec());
                return;
            }
            LimitFinding::Nothing(why) => match why {
                WhyNot::Condition => "a condition of it does not hold".to_owned(),
                WhyNot::Free => "the request costs nothing".to_owned(),
                WhyNot::Unlimited => "the request is unlimited".to_owned(),
                WhyNot::Off => "its policy is off".to_owned(),
                WhyNot::NoKey(missing) => format!("{missing}, and it skips such requests"),
                WhyNot::TriedOut(stop) => format!("it is only tried out: {stop}"),
            },
            LimitFinding::Refuses(stop) => {
                let why = stop.to_string();
                self.stop.get_or_insert(*stop);
                why
            }
        };
        self.explained[limit].asks = Err(why);
    }

    /// The ask of a limit, or its delay of bodies, before its quotas are known.
    fn described(&self, ask: &RequestAsk) -> AskExplained {
        let plan = self.limits.plan();
        let Limit { source, settle, bandwidth, .. } = &plan.limits[ask.limit];
        AskExplained {
            policy: ask.limiter(plan).policy(),
            tier: source.tier(&ask.which).map(str::to_owned),
            key: ask.key.clone(),
            cost: if bandwidth.is_some() { 0 } else { ask.cost },
            settle: settle.clone().filter(|_| bandwidth.is_none()),
            bandwidth: *bandwidth,
            quotas: Vec::new(),
        }
    }

    fn stand(&mut self, limit: usize, quotas: Vec<QuotaStatus>) {
        if let Ok(asked) = &mut self.explained[limit].asks {
            asked.quotas = quotas;
        }
    }

    /// Peeks at the quotas, and derives the outcome.
    async fn peek(&mut self, request: RequestView<'_>) -> WouldBe {
        let plan = self.limits.plan();
        if let Err(error) = self.asks.check(plan) {
            self.stop.get_or_insert(Stop::Mistake(error));
        }
        if self.asks.is_empty() {
            return match self.stop.take() {
                Some(stop) => self.refused(stop, request),
                None if self.holds => WouldBe::Allowed,
                None => WouldBe::Unlimited,
            };
        }
        let decision = self.asks.decide(plan, Some(Mode::Peek)).await;
        let asked: Vec<usize> = self.asks.iter().map(|asked| asked.limit).collect();
        for (ask, limit) in asked.into_iter().enumerate() {
            let own = counted(&decision).iter().filter(|status| status.policy_index() == ask);
            self.stand(limit, own.copied().collect());
        }
        if let Some(stop) = self.stop.take() {
            return self.refused(stop, request);
        }
        match decision {
            Err(error) => self.refused(Stop::mistake(&error), request),
            Ok(decision) if !decision.is_counted() => match decision.is_allowed() {
                true => WouldBe::Uncounted,
                false => self.refused(Stop::Plain(RefusalReason::Outage), request),
            },
            Ok(looked) => match foreseen(&self.asks, plan, &looked) {
                decision if !decision.is_allowed() => {
                    let grows = self.grows(&decision);
                    let mut outcome =
                        self.refused(Stop::Decided(self.asks.label(self.limits.made(), decision)), request);
                    if let WouldBe::Refused { why, .. } = &mut outcome
                        && grows
                    {
                        why.push_str(
                            ", where refused requests count, so that the wait grows with each of them",
                        );
                    }
                    outcome
                }
                decision if decision.delay().is_zero() => WouldBe::Allowed,
                decision => WouldBe::Delayed(decision.delay()),
            },
        }
    }

    /// Whether a policy without room counts refused requests.
    fn grows(&self, decision: &Decision) -> bool {
        let refusing = decision.quotas().iter().filter(|status| !status.passed());
        let mut asked = refusing.filter_map(|status| self.asks.iter().nth(status.policy_index()));
        asked.any(|asked| asked.limiter(self.limits.plan()).with_policy(Policy::counts_rejected))
    }

    fn refused(&self, stop: Stop, request: RequestView<'_>) -> WouldBe {
        let why = stop.to_string();
        let limit = match &stop {
            Stop::Decided(decided) => self.asks.deciding_limit(decided),
            _ => None,
        };
        let refused = Refused::new(self.limits, limit, stop);
        let refusal = refused.refusal(request);
        let retry_after = refusal.retry_after_seconds().map(Duration::from_secs);
        WouldBe::Refused { status: refusal.status(), retry_after, why }
    }

    fn unasked(mut self, outcome: WouldBe, why: &str) -> Explanation {
        for limit in &mut self.explained {
            limit.asks = Err(why.to_owned());
        }
        Explanation { outcome, limits: self.explained }
    }
}

/// The statuses of the quotas; empty if the store did not answer, because there are no numbers to show then.
fn counted(answer: &Result<Decision, StoreError>) -> &[QuotaStatus] {
    match answer {
        Ok(decision) if decision.is_counted() => decision.quotas(),
        _ => &[],
    }
}
