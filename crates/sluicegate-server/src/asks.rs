//! The checks that one API call makes, decided together: [`LimiterAsks`].
//!
//! A call names policies, or describes a request for the rules. Either way it becomes a list of limiters with keys and costs.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use sluicegate_core::limiter::{Receipt, Turn, check_all, policies};
use sluicegate_core::store::{DecisionFuture, Mode};
use sluicegate_core::{Decision, Key, RateLimiter, StoreError};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{Limits, Meeting};
use sluicegate_tower::rate_limit::Decided;

/// Checks that are decided in one call of the store: all spend, or none does.
#[derive(Debug, Default)]
pub(crate) struct LimiterAsks {
    asks: Vec<LimiterAsk>,
    /// Checks of policies in shadow mode, which never refuse.
    shadow: Vec<LimiterAsk>,
}

/// One limiter with its key and cost.
#[derive(Debug)]
pub(crate) struct LimiterAsk {
    pub(crate) limiter: RateLimiter,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    /// The index of its limit, if the rules ask.
    pub(crate) limit: Option<usize>,
}

impl LimiterAsks {
    /// The checks that the rules make for a described request: none if they exempt it or if no limit applies.
    ///
    /// # Errors
    /// When the rules refuse it without a limit, or when a limit has to be looked up: then [`Limits::decide`] answers.
    pub(crate) fn of(limits: &Limits, request: RequestView<'_>) -> Result<Self, Refuses> {
        let (mut asks, mut refuses) = (Self::default(), false);
        let meeting = limits.meet(request, |met| match met.asks {
            Ok(ask) => {
                let (limiter, key) = (ask.limiter.clone(), ask.key.clone());
                let asked = LimiterAsk { limiter, key, cost: ask.cost, limit: Some(met.limit) };
                if ask.is_enforced { asks.asks.push(asked) } else { asks.shadow.push(asked) }
            }
            Err(_) => refuses = true,
        });
        match meeting {
            Meeting::Exempt => Ok(Self::default()),
            Meeting::Limits if !refuses => Ok(asks),
            _ => Err(Refuses),
        }
    }

    /// The checks that the rules make for each of these requests.
    ///
    /// # Errors
    /// The request of which [`of`](Self::of) is an error.
    pub(crate) fn of_all<'r>(limits: &Limits, requests: &'r [Request<()>]) -> Result<Self, &'r Request<()>> {
        let mut all = Self::default();
        for request in requests {
            let Self { asks, shadow } = Self::of(limits, request.into()).map_err(|_| request)?;
            all.asks.extend(asks);
            all.shadow.extend(shadow);
        }
        Ok(all)
    }

    pub(crate) fn push(&mut self, asked: LimiterAsk) {
        self.asks.push(asked);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &LimiterAsk> {
        self.asks.iter()
    }

    /// Asks the store now, in one call.
    pub(crate) fn decide(&self, mode: Mode) -> DecisionFuture {
        check_all(self.asks.iter().map(|asked| asked.limiter.check(&asked.key).cost(asked.cost).mode(mode)))
    }

    /// Reserves a turn that comes within `longest`, and waits for it.
    ///
    /// # Cancel safety
    /// A turn that has not come is given back.
    pub(crate) async fn reserve(&self, longest: Duration) -> Result<Decision, StoreError> {
        let decision = self.decide(Mode::Reserve { longest }).await?;
        if !decision.is_counted() {
            return Ok(decision);
        }
        let owned = self.asks.iter().map(|asked| (asked.limiter.clone(), asked.key.clone(), asked.cost));
        Ok(Turn::new(decision, owned).await)
    }

    /// Checks the policies in shadow mode, after the others have allowed the request. Their answers are only counted.
    pub(crate) fn check_shadows(&self) {
        for LimiterAsk { limiter, key, cost, .. } in &self.shadow {
            if let Err(later) = limiter.check(key).cost(*cost).now() {
                tokio::spawn(later);
            }
        }
    }

    /// The decision, labelled with its policies.
    pub(crate) fn label(&self, decision: Decision) -> Decided {
        Decided::new(decision, policies(self.asks.iter().map(|asked| &asked.limiter)))
    }

    /// The index of the limit that decided, if the rules asked.
    pub(crate) fn deciding_limit(&self, decision: &Decision) -> Option<usize> {
        self.asks.get(decision.deciding().policy_index())?.limit
    }

    /// The receipts of the units that were spent, each with its limiter and key.
    pub(crate) fn receipts(&self, decision: &mut Decision) -> Vec<(&LimiterAsk, Receipt)> {
        let each = self.asks.iter().enumerate();
        each.filter_map(|(place, asked)| Some((asked, decision.take_receipt(place)?))).collect()
    }
}

/// The rules refuse a request without a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refuses;

// Authentication by a shared secret: [`Access`].

/// The secrets; a caller has to show one of them. Without secrets every caller is let in.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// Their hashes, which compare in constant time.
    secrets: Vec<blake3::Hash>,
}

impl Access {
    pub(crate) fn add(&mut self, secret: &str) {
        self.secrets.push(blake3::hash(secret.as_bytes()));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Whether a request with these fields is let in: by `Authorization: Bearer` with a secret.
    pub(crate) fn lets(&self, headers: &HeaderMap) -> bool {
        self.is_open() || credentials(headers, "bearer").is_some_and(|secret| self.knows(secret))
    }

    /// The user name of `Authorization: Basic`, if the password is a secret.
    pub(crate) fn operator(&self, headers: &HeaderMap) -> Option<String> {
        let decoded = STANDARD.decode(credentials(headers, "basic")?).ok()?;
        let (name, password) = str::from_utf8(&decoded).ok()?.split_once(':')?;
        (!name.is_empty() && self.knows(password)).then(|| name.to_owned())
    }

    fn knows(&self, secret: &str) -> bool {
        let hash = blake3::hash(secret.as_bytes());
        self.secrets.contains(&hash)
    }
}

/// The credentials of this scheme (in lower case), if there is exactly one `Authorization` field.
fn credentials<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (field, None) = (fields.next()?.to_str().ok()?, fields.next()) else { return None };
    let (given, credentials) = field.split_once(' ')?;
    given.eq_ignore_ascii_case(scheme).then(|| credentials.trim())
}

/// Without the secrets.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("secrets", &self.secrets.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn fields(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_one_bearer_field_with_a_secret_is_let_in() {
        let mut access = Access::default();
        assert!(access.lets(&fields(&[])));
        access.add("one");
        access.add("two");
        for (given, lets) in [
            (&["Bearer one"][..], true),
            (&["bearer  two"], true),
            (&["Bearer three"], false),
            (&["Bearer "], false),
            (&["one"], false),
            (&["Basic b25l"], false),
            (&["Bearer one", "Bearer one"], false),
            (&[], false),
        ] {
            assert_eq!(access.lets(&fields(given)), lets, "{given:?}");
        }
    }

    #[test]
    fn an_operator_has_a_secret_as_the_password() {
        let mut access = Access::default();
        let ada = fields(&["Basic YWRhOm9uZQ=="]);
        assert_eq!(access.operator(&ada), None, "without a secret there are no operators");
        access.add("one");
        assert_eq!(access.operator(&ada).as_deref(), Some("ada"));
        for wrong in ["Basic YWRhOnR3bw==", "Basic OnR3bw==", "Basic ???", "Bearer one"] {
            assert_eq!(access.operator(&fields(&[wrong])), None, "{wrong}");
        }
    }
}
