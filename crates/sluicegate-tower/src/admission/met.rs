//! A request's asks, before anything is decided: [`Met`].

use std::task::{Context, Poll, Waker};

use http::response;
use sluicegate_core::{Key, RateLimiter};

use crate::admission::admitted::Admitted;
use crate::admission::marks::Marked;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::guard::Place;
use crate::key::{MissingKey, RequestView};
use crate::limits::door::DoorVerdict;
use crate::limits::walk::{LimitFinding, RequestAsk, Walk, WalkStep, WhyNot};
use crate::respond::decided::Decided;
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;

/// The ask of one of the [`Limits`] for a request; see [`Limits::meet`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Met<'a> {
    /// The index of the limit in [`Limits::limiters`].
    pub limit: usize,
    /// Its ask, or the reason why it has none.
    pub asks: Result<MetAsk<'a>, NoAsk<'a>>,
}

/// The ask of a limit.
#[derive(Debug)]
#[non_exhaustive]
pub struct MetAsk<'a> {
    /// The limiter of the policy.
    pub limiter: &'a RateLimiter,
    /// The key of the bucket.
    pub key: &'a Key,
    /// The units that the request spends.
    pub cost: u64,
    /// Whether a refusal counts for the request, or the policy is only tried out.
    pub is_enforced: bool,
}

/// The reason why a limit that applies to a request asks nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoAsk<'a> {
    /// The request has no key, for this reason. A limit that lets such requests share a bucket asks for
    /// [`Key::shared`] instead.
    NoKey(&'a MissingKey),
    /// The limit refuses the request, however much is left.
    Refuses,
}

/// Whether a request reaches the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meeting {
    /// It skips them, because it is exempt.
    Exempt,
    /// It is refused before them.
    Blocked,
    /// The callback got each limit that applies.
    Limits,
    /// A condition, a key or a tier has to be waited for, so the callback did not get all limits.
    Unknown,
}

impl Limits {
    /// Calls `each` with every limit that applies to a request, without a decision: for programs that decide at other times or on other
    /// stores than a service, such as a replay of a log.
    ///
    /// It skips limits that are off, cost nothing, or have a condition that does not hold.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::key::HeaderKey;
    /// use sluicegate_tower::limits::{Limits, Meeting};
    ///
    /// let per_key = Policy::gcra("per-key", "5/min").on(&MemoryStore::new())?;
    /// let limits = Limits::new(Limit::new(per_key).key(HeaderKey::new("x-api-key")?).cost(2)?);
    ///
    /// let request = Request::get("/").header("x-api-key", "k1").body(())?;
    /// let mut units = 0;
    /// let meeting = limits.meet(&request, |met| units += met.asks.map_or(0, |asks| asks.cost));
    /// assert_eq!((meeting, units), (Meeting::Limits, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn meet<'a>(&self, request: impl Into<RequestView<'a>>, mut each: impl FnMut(Met<'_>)) -> Meeting {
        let request = request.into();
        match self.settings().door.as_ref().map_or(DoorVerdict::ToTheLimits, |door| door.entry(request)) {
            DoorVerdict::ToTheLimits => {}
            DoorVerdict::PastTheLimits => return Meeting::Exempt,
            DoorVerdict::Refused(_) => return Meeting::Blocked,
            DoorVerdict::Asking(_) => return Meeting::Unknown,
        }
        let (mut walk, mut place) = (Walk::default(), Place::default());
        loop {
            let found = match walk.next(self.plan(), request) {
                WalkStep::Waits(mut lookup) => {
                    // Most lookups are ready when first polled.
                    let mut cx = Context::from_waker(Waker::noop());
                    match lookup.poll(&mut cx, (self.plan(), request), self.waits(), &mut place) {
                        Poll::Ready(next) => next,
                        Poll::Pending => return Meeting::Unknown,
                    }
                }
                next => next,
            };
            match found {
                WalkStep::Found(limit, finding) => self.tell(limit, &finding, &mut each),
                WalkStep::Waits(_) => return Meeting::Unknown,
                WalkStep::End => return Meeting::Limits,
            }
        }
    }

    /// Answers a request whose limits the program has decided itself, after [`meet`](Self::meet): with the header fields and the body that
    /// these limits write. `limit` is the index of the [limit](Met::limit) that decided, if it is one of these.
    ///
    /// # Errors
    /// The refusal, if the decision is one.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    /// use sluicegate_tower::key::HeaderKey;
    /// use sluicegate_tower::limits::Limits;
    /// use sluicegate_tower::rate_limit::Decided;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let per_key = Policy::gcra("per-key", "5/min").on(&MemoryStore::new())?;
    /// let limits = Limits::new(Limit::new(per_key.clone()).key(HeaderKey::new("x-api-key")?));
    ///
    /// let decision = per_key.check("k1").cost(3).await?;
    /// let decided = Decided::new(decision, [per_key.policy()].into());
    /// let response = limits.conclude(decided, Some(0))?.leave(Response::new("hello"));
    /// assert_eq!(response.headers()["x-ratelimit-remaining"], "2");
    /// # Ok(())
    /// # }
    /// ```
    pub fn conclude(&self, decided: Decided, limit: Option<usize>) -> Result<Admitted, Box<Refused>> {
        let stop = match (decided.is_counted(), decided.is_allowed()) {
            (false, true) => return Ok(Admitted::uncounted(self)),
            (false, false) => Stop::Plain(RefusalReason::Outage),
            (true, false) => Stop::Decided(decided),
            (true, true) if !self.made.marks => return Ok(Admitted::unmarked()),
            (true, true) => {
                let mut marked = Marked::bare(&self.made);
                marked.decided = Some(decided);
                return Ok(marked.into());
            }
        };
        Err(self.refuse(limit, stop))
    }

    fn tell(&self, limit: usize, finding: &LimitFinding, each: &mut impl FnMut(Met<'_>)) {
        let asks = match finding {
            LimitFinding::Asks { ask, is_enforced } => {
                let RequestAsk { key, cost, .. } = ask;
                let limiter = ask.limiter(self.plan());
                Ok(MetAsk { limiter, key, cost: *cost, is_enforced: *is_enforced })
            }
            LimitFinding::Nothing(WhyNot::NoKey(missing)) => Err(NoAsk::NoKey(missing)),
            LimitFinding::Refuses(stop) | LimitFinding::Nothing(WhyNot::TriedOut(stop)) => Err(no_ask(stop)),
            // Bytes are counted as bodies pass, and not for a request.
            LimitFinding::Nothing(_) | LimitFinding::Holds(_) => return,
        };
        each(Met { limit, asks });
    }

    /// The names of all limits, in order, each with the known limiters that it may ask.
    pub fn limiters(&self) -> impl Iterator<Item = (String, &[RateLimiter])> {
        self.plan().limits.iter().map(|limit| (limit.title(), limit.source.known()))
    }

    /// Whether the limit at this index may give back the units of a request.
    pub fn may_give_back(&self, limit: usize) -> bool {
        self.plan().limits.get(limit).is_some_and(|limit| limit.gives_back())
    }

    /// Whether the limit at this index gives back the units of a request with this response head.
    pub fn gives_back(&self, limit: usize, head: &response::Parts) -> bool {
        let refund_if = self.plan().limits.get(limit).and_then(|limit| limit.refund_if.as_ref());
        refund_if.is_some_and(|refund| refund(head))
    }
}

fn no_ask(stop: &Stop) -> NoAsk<'_> {
    match stop {
        Stop::MissingKey(missing, _) => NoAsk::NoKey(missing),
        _ => NoAsk::Refuses,
    }
}
