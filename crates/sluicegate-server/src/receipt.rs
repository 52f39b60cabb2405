//! Receipts as signed tokens that expire and can be used once: [`ReceiptTokens`].
//!
//! A token holds everything that a settlement needs, so that every instance with the same secret can settle it. Single use is enforced by
//! a shared store, in which a policy of the server allows each token once. Tokens that only this process can settle are listed until they
//! are used or expire: a store in memory may forget keys, and a list may not. A full list refuses new reservations.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message as _;
use sluicegate_core::key::KeyKind;
use sluicegate_core::limiter::{Receipt, change_all};
use sluicegate_core::policy::Quotas;
use sluicegate_core::store::{DecidedBy, DecisionFuture};
use sluicegate_core::support::lock;
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
    open: Mutex<OpenReceipts>,
}

/// The tokens of this process that were neither used nor have expired.
#[derive(Debug)]
struct OpenReceipts {
    /// Their ids, by the second in which they expire.
    ids: BTreeMap<u64, HashSet<TokenId>>,
    /// The number of ids, and of places for tokens that are not written yet.
    taken: usize,
    most: usize,
}

type TokenId = [u8; 16];

/// A place in the list of tokens, for one that is not written yet.
pub(crate) struct ReceiptPlace<'a>(&'a ReceiptTokens);

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
    /// The algorithms of the quotas, whose state the receipt refers to.
    #[prost(string, repeated, tag = "6")]
    algorithms: Vec<String>,
}

/// A redeemed token: the units that it still holds under each limiter.
pub(crate) struct Redeemed<'a> {
    entries: Vec<(RateLimiter, Key, Receipt)>,
    /// The place of the token for the rest.
    place: Option<ReceiptPlace<'a>>,
}

/// A token with a valid signature.
struct ReadToken {
    id: TokenId,
    end: u64,
    /// Whether only this process can settle it.
    is_mine: bool,
    entries: Vec<(RateLimiter, Key, Receipt)>,
}

/// A token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedeemError {
    /// It has no valid signature.
    Forged,
    /// It has expired, or its policy is gone.
    Expired,
    /// Its policy has another algorithm by now, which has no trace of the units.
    Changed,
    /// It was used before.
    Used,
    /// Only the instance that made it can settle it.
    Elsewhere,
    /// The store does not say whether it was used before.
    Outage,
}

impl ReceiptTokens {
    /// At most `most` tokens of this process are open at once.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        secret: &[u8],
        lifetime: Duration,
        most: usize,
    ) -> Result<Self, ConfigError> {
        // Twice the lifetime, because the clocks of two instances may differ.
        let once = Quota::new(1, lifetime.saturating_mul(2));
        let used = Policy::builder(USED, Algorithm::Gcra, once).hidden().on_outage(OnOutage::Deny).build()?;
        let used = RateLimiter::new(Arc::clone(&store), used)?;
        let key = blake3::derive_key("sluicegate-server 2 receipts", secret);
        let open = Mutex::new(OpenReceipts { ids: BTreeMap::new(), taken: 0, most });
        Ok(Self { store, key, instance: random(), lifetime, used, open })
    }

    /// A place for a token that may be written, if there is room.
    pub(crate) fn place(&self) -> Option<ReceiptPlace<'_>> {
        let mut open = self.open();
        open.expire(since_epoch().as_secs());
        open.taken = Some(open.taken + 1).filter(|taken| *taken <= open.most)?;
        Some(ReceiptPlace(self))
    }

    fn open(&self) -> MutexGuard<'_, OpenReceipts> {
        lock(&self.open)
    }

    /// A check of the store, for readiness.
    pub(crate) fn ask_store(&self) -> DecisionFuture {
        self.used.peek("").start()
    }

    /// The token for these receipts; `None` if nothing can be given back.
    pub(crate) fn write<'a>(
        &self,
        spent: impl IntoIterator<Item = (&'a LimiterAsk, Receipt)>,
        place: ReceiptPlace<'_>,
    ) -> Option<ReceiptToken> {
        let each = spent.into_iter().map(|(asked, receipt)| (&asked.limiter, &asked.key, receipt));
        self.write_each(each, Some(place))
    }

    fn write_each<'a>(
        &self,
        spent: impl IntoIterator<Item = (&'a RateLimiter, &'a Key, Receipt)>,
        place: Option<ReceiptPlace<'_>>,
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
                algorithms: algorithms(&policy),
            });
        }
        if entries.is_empty() {
            return None;
        }
        let (id, end) = (random(), since_epoch().saturating_add(self.lifetime).as_secs());
        let place = place.filter(|_| is_mine);
        let contents = TokenContents {
            instance: if is_mine { self.instance.to_vec() } else { Vec::new() },
            id: id.to_vec(),
            end,
            entries,
        };
        if let Some(place) = place {
            place.list(id, end);
        }
        let mut token = contents.encode_to_vec();
        let signature = blake3::keyed_hash(&self.key, &token);
        token.extend_from_slice(signature.as_bytes());
        Some(ReceiptToken { text: URL_SAFE_NO_PAD.encode(token), lifetime: self.lifetime })
    }

    /// Accepts a token, once.
    pub(crate) async fn redeem(&self, token: &str) -> Result<Redeemed<'_>, RedeemError> {
        let ReadToken { id, end, is_mine, entries } = self.read(token)?;
        if is_mine {
            let is_open = self.open().remove(id, end);
            let place = is_open.then(|| ReceiptPlace(self)).ok_or(RedeemError::Used)?;
            return Ok(Redeemed { entries, place: Some(place) });
        }
        let decision = self.used.check(id).await.map_err(|_| RedeemError::Outage)?;
        match (decision.is_counted(), decision.is_allowed()) {
            (false, _) => Err(RedeemError::Outage),
            (true, false) => Err(RedeemError::Used),
            (true, true) => Ok(Redeemed { entries, place: None }),
        }
    }

    /// A token with a valid signature that has not expired.
    fn read(&self, token: &str) -> Result<ReadToken, RedeemError> {
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
            let algorithms = algorithms(&limiter.policy());
            if entry.algorithms.iter().zip(&algorithms).any(|(then, now)| then != now) {
                return Err(RedeemError::Changed);
            }
            Ok((limiter, Key::encoded(kind, &entry.key), receipt))
        });
        let id = id.try_into().map_err(|_| RedeemError::Forged)?;
        Ok(ReadToken { id, end, is_mine: !instance.is_empty(), entries: redeemed.collect::<Result<_, _>>()? })
    }

    /// The limiter of the policy, unless the policy has left the rules since.
    fn limiter(&self, policy: &str, quotas: &str) -> Option<RateLimiter> {
        let limiter = self.store.limiters().get(policy)?;
        if quotas.is_empty() { Some(limiter) } else { limiter.with_quotas(quotas).ok() }
    }
}

impl OpenReceipts {
    /// Forgets the tokens that have expired by this second.
    fn expire(&mut self, now: u64) {
        while let Some(first) = self.ids.first_entry().filter(|first| *first.key() <= now) {
            self.taken -= first.remove().len();
        }
    }

    /// Removes a token, which keeps its place; returns whether it was listed.
    fn remove(&mut self, id: TokenId, end: u64) -> bool {
        let Some(ids) = self.ids.get_mut(&end) else { return false };
        ids.remove(&id)
    }
}

impl ReceiptPlace<'_> {
    /// Lists a token in this place.
    fn list(self, id: TokenId, end: u64) {
        self.0.open().ids.entry(end).or_default().insert(id);
        // The token has the place until it is used or expires.
        std::mem::forget(self);
    }
}

impl Drop for ReceiptPlace<'_> {
    fn drop(&mut self) {
        self.0.open().taken -= 1;
    }
}

impl Redeemed<'_> {
    /// Charges or gives back the difference to `actual` units under each limiter.
    pub(crate) fn settle(&mut self, actual: u64) -> DecisionFuture {
        change_all(self.entries.iter_mut().map(|(limiter, key, receipt)| {
            match receipt.cost().checked_sub(actual) {
                Some(over) => limiter.refund(&*key, over).of(receipt),
                None => limiter.charge(&*key, actual - receipt.cost()),
            }
        }))
    }

    /// Gives units back under each limiter; all of them by default.
    pub(crate) fn refund(&mut self, units: Option<u64>) -> DecisionFuture {
        change_all(self.entries.iter_mut().map(|(limiter, key, receipt)| {
            let units = units.unwrap_or_else(|| receipt.cost());
            limiter.refund(&*key, units).of(receipt)
        }))
    }

    /// The policies, in the order of the decision.
    pub(crate) fn policies(&self) -> Arc<[Arc<Policy>]> {
        self.entries.iter().map(|(limiter, ..)| limiter.policy()).collect()
    }

    /// The token for the units that are left.
    pub(crate) fn rest(self, receipts: &ReceiptTokens) -> Option<ReceiptToken> {
        if self.entries.iter().all(|(.., receipt)| receipt.cost() == 0) {
            return None;
        }
        let (owned, left): (Vec<_>, Vec<_>) =
            self.entries.into_iter().map(|(limiter, key, receipt)| ((limiter, key), receipt)).unzip();
        let each = owned.iter().zip(left).map(|((limiter, key), receipt)| (limiter, key, receipt));
        receipts.write_each(each, self.place)
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

/// The algorithms of the quotas of a policy.
fn algorithms(policy: &Policy) -> Vec<String> {
    policy.quotas().iter().map(|quota| quota.algorithm().to_string()).collect()
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
