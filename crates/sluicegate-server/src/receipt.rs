//! Receipts as signed tokens that expire and can be used once: [`ReceiptTokens`].
//!
//! A token holds everything that a settlement needs, so that the server keeps no list of receipts, and every instance with the same
//! secret can settle it. Single use is enforced by the store: a policy of the server allows each token once.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message as _;
use sluicegate_core::key::KeyKind;
use sluicegate_core::limiter::{Receipt, change_all};
use sluicegate_core::policy::Quotas;
use sluicegate_core::store::{DecidedBy, DecisionFuture};
use sluicegate_core::{Algorithm, ConfigError, Key, OnOutage, Policy, Quota, RateLimiter, Store};

use crate::asks::LimiterAsk;

/// The policy that allows each token once.
pub(crate) const USED: &str = "sluicegate-receipts";

/// The longest token that is read, in bytes.
const LONGEST: usize = 16 * 1024;

/// Writes receipt tokens, and redeems them.
pub(crate) struct ReceiptTokens {
    store: Arc<dyn Store>,
    key: [u8; 32],
    /// Identifies this process in tokens that only it can settle.
    instance: [u8; 16],
    lifetime: Duration,
    used: RateLimiter,
}

/// A token as callers get it.
#[derive(Debug)]
pub(crate) struct ReceiptToken {
    pub(crate) text: String,
    /// The time until the token expires.
    pub(crate) lifetime: Duration,
}

/// The contents of a token, before its signature.
#[derive(Clone, PartialEq, prost::Message)]
struct TokenContents {
    /// The only process that can settle it; empty if any can.
    #[prost(bytes = "vec", tag = "1")]
    instance: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    /// The second of Unix time in which it expires.
    #[prost(uint64, tag = "3")]
    end: u64,
    #[prost(message, repeated, tag = "4")]
    entries: Vec<TokenEntry>,
}

/// The units of a key under one policy.
#[derive(Clone, PartialEq, prost::Message)]
struct TokenEntry {
    #[prost(string, tag = "1")]
    policy: String,
    /// The key's own quotas; empty if it has those of the policy.
    #[prost(string, tag = "2")]
    quotas: String,
    #[prost(uint32, tag = "3")]
    kind: u32,
    #[prost(bytes = "vec", tag = "4")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    receipt: Vec<u8>,
}

/// A redeemed token: the units that it still holds under each limiter.
#[derive(Debug)]
pub(crate) struct Redeemed(Vec<(RateLimiter, Key, Receipt)>);

/// A token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedeemError {
    /// It has no valid signature.
    Forged,
    /// It has expired, or its policy is gone.
    Expired,
    /// It was used before.
    Used,
    /// Only the instance that made it can settle it.
    Elsewhere,
    /// The store does not say whether it was used before.
    Outage,
}

impl ReceiptTokens {
    pub(crate) fn new(store: Arc<dyn Store>, secret: &[u8], lifetime: Duration) -> Result<Self, ConfigError> {
        // Twice the lifetime, because the clocks of two instances may differ.
        let once = Quota::new(1, lifetime.saturating_mul(2));
        let used = Policy::builder(USED, Algorithm::Gcra, once).hidden().on_outage(OnOutage::Deny).build()?;
        let used = RateLimiter::new(Arc::clone(&store), used)?;
        let key = blake3::derive_key("sluicegate-server 2 receipts", secret);
        Ok(Self { store, key, instance: random(), lifetime, used })
    }

    /// A check of the store, for readiness.
    pub(crate) fn ask_store(&self) -> DecisionFuture {
        self.used.peek("").start()
    }

    /// The token for these receipts; `None` if nothing can be given back.
    pub(crate) fn write<'a>(
        &self,
        spent: impl IntoIterator<Item = (&'a LimiterAsk, Receipt)>,
    ) -> Option<ReceiptToken> {
        let each = spent.into_iter().map(|(asked, receipt)| (&asked.limiter, &asked.key, receipt));
        self.write_each(each)
    }

    fn write_each<'a>(
        &self,
        spent: impl IntoIterator<Item = (&'a RateLimiter, &'a Key, Receipt)>,
    ) -> Option<ReceiptToken> {
        let (mut entries, mut is_mine) = (Vec::new(), self.store.shared().is_none());
        for (limiter, key, receipt) in spent {
            is_mine |= receipt.decided_by() != DecidedBy::Store;
            let Some(receipt) = receipt.into_bytes() else { continue };
            let policy = limiter.policy();
            entries.push(TokenEntry {
                policy: policy.name().to_owned(),
                quotas: own_quotas(&policy, limiter),
                kind: kind_number(key.kind()),
                key: key.as_bytes().to_vec(),
                receipt,
            });
        }
        if entries.is_empty() {
            return None;
        }
        let contents = TokenContents {
            instance: if is_mine { self.instance.to_vec() } else { Vec::new() },
            id: random::<16>().to_vec(),
            end: since_epoch().saturating_add(self.lifetime).as_secs(),
            entries,
        };
        let mut token = contents.encode_to_vec();
        let signature = blake3::keyed_hash(&self.key, &token);
        token.extend_from_slice(signature.as_bytes());
        Some(ReceiptToken { text: URL_SAFE_NO_PAD.encode(token), lifetime: self.lifetime })
    }

    /// Accepts a token, once.
    pub(crate) async fn redeem(&self, token: &str) -> Result<Redeemed, RedeemError> {
        let (id, redeemed) = self.read(token)?;
        let decision = self.used.check(id).await.map_err(|_| RedeemError::Outage)?;
        match (decision.is_counted(), decision.is_allowed()) {
            (false, _) => Err(RedeemError::Outage),
            (true, false) => Err(RedeemError::Used),
            (true, true) => Ok(redeemed),
        }
    }

    /// The id of a token, and its contents.
    fn read(&self, token: &str) -> Result<([u8; 16], Redeemed), RedeemError> {
        let bytes = Some(token).filter(|token| token.len() <= LONGEST);
        let bytes = bytes.and_then(|token| URL_SAFE_NO_PAD.decode(token).ok()).ok_or(RedeemError::Forged)?;
        let (signed, signature) = bytes.split_last_chunk::<32>().ok_or(RedeemError::Forged)?;
        // Hashes compare in constant time.
        if blake3::keyed_hash(&self.key, signed) != blake3::Hash::from_bytes(*signature) {
            return Err(RedeemError::Forged);
        }
        let TokenContents { instance, id, end, entries } =
            TokenContents::decode(signed).map_err(|_| RedeemError::Forged)?;
        if end <= since_epoch().as_secs() {
            return Err(RedeemError::Expired);
        }
        if !instance.is_empty() && instance != self.instance {
            return Err(RedeemError::Elsewhere);
        }
        let redeemed = entries.iter().map(|entry| {
            let kind = kind_of(entry.kind).ok_or(RedeemError::Forged)?;
            let receipt = Receipt::from_bytes(&entry.receipt).ok_or(RedeemError::Forged)?;
            let limiter = self.limiter(&entry.policy, &entry.quotas).ok_or(RedeemError::Expired)?;
            Ok((limiter, Key::encoded(kind, &entry.key), receipt))
        });
        let id = id.try_into().map_err(|_| RedeemError::Forged)?;
        Ok((id, Redeemed(redeemed.collect::<Result<_, _>>()?)))
    }

    /// The limiter of the policy, unless the policy has left the rules since.
    fn limiter(&self, policy: &str, quotas: &str) -> Option<RateLimiter> {
        let limiter = self.store.limiters().get(policy)?;
        if quotas.is_empty() { Some(limiter) } else { limiter.with_quotas(quotas).ok() }
    }
}

impl Redeemed {
    /// Charges or gives back the difference to `actual` units under each limiter.
    pub(crate) fn settle(&mut self, actual: u64) -> DecisionFuture {
        change_all(self.0.iter_mut().map(
            |(limiter, key, receipt)| match receipt.cost().checked_sub(actual) {
                Some(over) => limiter.refund(&*key, over).of(receipt),
                None => limiter.charge(&*key, actual - receipt.cost()),
            },
        ))
    }

    /// Gives units back under each limiter; all of them by default.
    pub(crate) fn refund(&mut self, units: Option<u64>) -> DecisionFuture {
        change_all(self.0.iter_mut().map(|(limiter, key, receipt)| {
            let units = units.unwrap_or_else(|| receipt.cost());
            limiter.refund(&*key, units).of(receipt)
        }))
    }

    /// The policies, in the order of the decision.
    pub(crate) fn policies(&self) -> Arc<[Arc<Policy>]> {
        self.0.iter().map(|(limiter, ..)| limiter.policy()).collect()
    }

    /// The token for the units that are left.
    pub(crate) fn rest(self, receipts: &ReceiptTokens) -> Option<ReceiptToken> {
        let left = self.0.iter().filter(|(.., receipt)| receipt.cost() > 0).count() > 0;
        let each = self.0;
        if !left {
            return None;
        }
        let (owned, left): (Vec<_>, Vec<_>) =
            each.into_iter().map(|(limiter, key, receipt)| ((limiter, key), receipt)).unzip();
        receipts.write_each(owned.iter().zip(left).map(|((limiter, key), receipt)| (limiter, key, receipt)))
    }
}

/// The key's own quotas as text; empty if it has those of the policy.
fn own_quotas(policy: &Policy, limiter: &RateLimiter) -> String {
    let base = limiter.store().limiters().get(policy.name()).map(|base| base.policy());
    let of = |policy: &Policy| policy.quotas().iter().map(|quota| quota.quota()).collect::<Vec<_>>();
    match base {
        Some(base) if of(&base) != of(policy) => Quotas::from(of(policy)).to_string(),
        _ => String::new(),
    }
}

fn kind_number(kind: KeyKind) -> u32 {
    match kind {
        KeyKind::Address => 1,
        KeyKind::Name => 2,
        _ => 0,
    }
}

fn kind_of(number: u32) -> Option<KeyKind> {
    [KeyKind::Secret, KeyKind::Address, KeyKind::Name].get(usize::try_from(number).ok()?).copied()
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Unpredictable bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}
