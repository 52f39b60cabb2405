//! The load that every scenario is under: 200 requests a second on 50 keys, whatever becomes of those before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use sfv::{BareItem, List, ListEntry, Parser};
use sluicegate::key::HeaderKey;
use sluicegate::limiter::check_all;
use sluicegate::rate_limit::Decided;
use sluicegate::respond::HeaderFields;
use sluicegate::{Limit, RateLimitLayer};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Decision, Key, OnOutage, Policy, RateLimiter, Store, StoreError};
use tokio::time::{MissedTickBehavior, interval};
use tower::{Layer, ServiceExt, service_fn};

use crate::oracle::{Algorithm, Law};

pub(crate) const KEYS: usize = 50;

/// Units that one key of the ledger may ever spend.
pub(crate) const LEDGER: u64 = 10_000;

/// The policies: which of them a request is for is part of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gcra,
    Window,
    Counter,
    /// So wide that it refuses nobody, and so slow that it forgets nothing: what was charged can be read off it.
    Ledger,
    /// Lets everything through in an outage.
    Allow,
    /// Lets nothing through in an outage.
    Deny,
    /// A `RateLimitLayer` in front of a service.
    Http,
    /// `Gcra` and `Window` in one decision.
    Pair,
}

/// Two hundred requests a second go round this.
const ROUND: [Kind; 10] = {
    use Kind::{Allow, Counter, Deny, Gcra, Http, Ledger, Pair, Window};
    [Gcra, Ledger, Http, Window, Counter, Pair, Ledger, Allow, Http, Deny]
};

impl Kind {
    /// All that have a law of their own.
    pub(crate) const LAWFUL: [Self; 6] =
        [Self::Gcra, Self::Window, Self::Counter, Self::Allow, Self::Deny, Self::Http];

    pub(crate) fn law(self) -> Law {
        let period = Duration::from_secs(2);
        let (algorithm, limit) = match self {
            Self::Gcra | Self::Allow | Self::Http => (Algorithm::Gcra, 2),
            Self::Window | Self::Counter | Self::Deny => (Algorithm::Window, 3),
            Self::Ledger | Self::Pair => unreachable!("it has no law of its own"),
        };
        Law { algorithm, limit, period }
    }

    /// Whether a request of this kind spends from that policy.
    pub(crate) fn spends_from(self, policy: Self) -> bool {
        self == policy || self == Self::Pair && matches!(policy, Self::Gcra | Self::Window)
    }

    pub(crate) fn policy(self) -> PolicyBuilder {
        match self {
            Self::Gcra => Policy::gcra("bucket", "2/2s"),
            Self::Window => Policy::fixed_window("window", "3/2s"),
            Self::Counter => Policy::sliding_counter("counter", "3/2s"),
            Self::Ledger => Policy::gcra("ledger", format!("{LEDGER}/30d").as_str()),
            Self::Allow => Policy::gcra("allow", "2/2s").on_outage(OnOutage::Allow),
            Self::Deny => Policy::fixed_window("deny", "3/2s").on_outage(OnOutage::Deny),
            Self::Http => Policy::gcra("http", "2/2s"),
            Self::Pair => unreachable!("it has no policy of its own"),
        }
    }
}

/// The name of a key: what must never be in a log.
pub(crate) fn key(index: usize) -> String {
    format!("customer-{index}@secret.example")
}

/// What became of one request.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) kind: Kind,
    pub(crate) key: usize,
    pub(crate) allowed: bool,
    /// Who decided it; an error if nobody did.
    pub(crate) basis: Result<DecidedBy, String>,
}

impl Record {
    pub(crate) fn is(&self, basis: DecidedBy) -> bool {
        self.basis == Ok(basis)
    }

    pub(crate) fn end(&self) -> Instant {
        self.at + self.took
    }
}

/// The limiters, and what became of all requests so far.
pub(crate) struct Load {
    gcra: RateLimiter,
    window: RateLimiter,
    counter: RateLimiter,
    ledger: RateLimiter,
    allow: RateLimiter,
    deny: RateLimiter,
    layer: RateLimitLayer,
    records: Mutex<Vec<Record>>,
    /// What was wrong with the header fields of responses.
    pub(crate) misled: Mutex<Vec<String>>,
    /// Requests that have no answer yet, by their turn.
    under_way: Mutex<BTreeMap<usize, (Kind, Instant)>>,
    ended: AtomicBool,
}

impl Load {
    pub(crate) fn on(store: &Arc<dyn Store>) -> Arc<Self> {
        let on = |kind: Kind| kind.policy().on(Arc::clone(store)).expect("the policy is possible");
        let http = Limit::new(on(Kind::Http)).key(HeaderKey::new("x-api-key").expect("a good name"));
        Arc::new(Self {
            gcra: on(Kind::Gcra),
            window: on(Kind::Window),
            counter: on(Kind::Counter),
            ledger: on(Kind::Ledger),
            allow: on(Kind::Allow),
            deny: on(Kind::Deny),
            layer: RateLimitLayer::builder(http).headers(HeaderFields::All).build().unwrap(),
            records: Mutex::default(),
            misled: Mutex::default(),
            under_way: Mutex::default(),
            ended: AtomicBool::new(false),
        })
    }

    /// Asks every five milliseconds, in time or as soon as it can, until [`end`](Self::end).
    pub(crate) async fn run(self: Arc<Self>) {
        let mut ticks = interval(Duration::from_millis(5));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for turn in 0_usize.. {
            ticks.tick().await;
            // Relaxed, here and below: a mark orders nothing else.
            if self.ended.load(Ordering::Relaxed) {
                return;
            }
            let kind = ROUND[turn % ROUND.len()];
            // Half of the requests come from five busy keys, which are refused half of the time; in no order, but the same.
            let mixed = (turn as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
            let mixed = usize::try_from(mixed % 1_000).unwrap();
            let key = if mixed < 500 { mixed % 5 } else { mixed % KEYS };
            let load = Arc::clone(&self);
            load.under_way.lock().unwrap().insert(turn, (kind, Instant::now()));
            tokio::spawn(async move {
                load.ask(kind, key).await;
                load.under_way.lock().unwrap().remove(&turn);
            });
        }
    }

    /// No more requests; says how many are under way.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The requests without an answer: what each asks, and for how long it has waited.
    pub(crate) fn under_way(&self) -> Vec<(Kind, Duration)> {
        let under_way = self.under_way.lock().unwrap();
        under_way.values().map(|(kind, began)| (*kind, began.elapsed())).collect()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap().clone()
    }

    /// How many requests were answered, and those that began since then.
    pub(crate) fn since(&self, then: Instant) -> Vec<Record> {
        self.records.lock().unwrap().iter().filter(|record| record.at >= then).cloned().collect()
    }

    async fn ask(&self, kind: Kind, index: usize) {
        let at = Instant::now();
        let name = key(index);
        let (allowed, basis) = match kind {
            Kind::Http => self.ask_over_http(name).await,
            Kind::Gcra => decided(self.gcra.check(name).await),
            Kind::Window => decided(self.window.check(name).await),
            Kind::Counter => decided(self.counter.check(name).await),
            Kind::Ledger => decided(self.ledger.check(name).await),
            Kind::Allow => decided(self.allow.check(name).await),
            Kind::Deny => decided(self.deny.check(name).await),
            Kind::Pair => {
                let name = Key::from(name);
                decided(check_all([self.gcra.check(&name), self.window.check(&name)]).await)
            }
        };
        let took = at.elapsed();
        self.records.lock().unwrap().push(Record { at, took, kind, key: index, allowed, basis });
    }

    async fn ask_over_http(&self, name: String) -> (bool, Result<DecidedBy, String>) {
        let handler = service_fn(|_: Request<()>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let mut request = Request::get("/").header("x-api-key", name).body(()).unwrap();
        Decided::ask_for(request.extensions_mut());
        let response = self.layer.clone().layer(handler).oneshot(request).await.unwrap();
        if let Err(problem) = check_fields(&response) {
            self.misled.lock().unwrap().push(problem);
        }
        let basis = response.extensions().get::<Decided>().map(|decided| decided.decided_by());
        (response.status().is_success(), basis.ok_or_else(|| response.status().to_string()))
    }
}

fn decided(answer: Result<Decision, StoreError>) -> (bool, Result<DecidedBy, String>) {
    match answer {
        Ok(decision) => (decision.is_allowed(), Ok(decision.decided_by())),
        Err(error) => (false, Err(error.to_string())),
    }
}

/// A refusal says when to come back, and never earlier than its `RateLimit` field does; all fields can be parsed.
fn check_fields<B>(response: &Response<B>) -> Result<(), String> {
    let field = |name: &str| {
        let text = response.headers().get(name).ok_or_else(|| format!("there is no {name}"))?;
        Ok::<_, String>(text.to_str().map_err(|error| error.to_string())?.to_owned())
    };
    let list = |name: &str| {
        let text = field(name)?;
        Parser::new(&text).parse::<List>().map_err(|error| format!("{name}: {text}: {error}"))
    };
    if list("ratelimit-policy")?.is_empty() {
        return Err("no policy is named".to_owned());
    }
    let mut latest = 0;
    for entry in list("ratelimit")? {
        let ListEntry::Item(item) = entry else { return Err("a list in a list".to_owned()) };
        let number = |name: &str| match item.params.get(name) {
            Some(BareItem::Integer(number)) => Some(i64::from(*number)),
            _ => None,
        };
        number("r").ok_or("no units are named")?;
        latest = latest.max(number("t").unwrap_or(0));
    }
    match response.status() {
        StatusCode::OK => Ok(()),
        StatusCode::TOO_MANY_REQUESTS => {
            let text = field("retry-after")?;
            let wait: i64 = text.parse().map_err(|_| format!("Retry-After: {text}"))?;
            if wait >= 1 && wait >= latest {
                return Ok(());
            }
            Err(format!("Retry-After: {wait}, and t={latest}"))
        }
        other => Err(format!("{other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(fields: &[(&str, &str)]) -> Response<()> {
        let mut response = Response::builder().status(429);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap()
    }

    #[test]
    fn misleading_fields_are_found() {
        let policy = ("ratelimit-policy", "\"a\";q=2;w=2");
        let good = [policy, ("ratelimit", "\"a\";r=0;t=2"), ("retry-after", "2")];
        check_fields(&refusal(&good)).unwrap();
        for bad in [
            ("retry-after", "1"),
            ("retry-after", "0"),
            ("retry-after", "soon"),
            ("ratelimit", "a;r=0;t=2;"),
            ("ratelimit", "\"a\";t=2"),
        ] {
            let fields = good.map(|field| if field.0 == bad.0 { bad } else { field });
            check_fields(&refusal(&fields)).unwrap_err();
        }
        check_fields(&refusal(&good[1..])).unwrap_err();
    }
}
