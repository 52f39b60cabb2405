//! A key as it is listed: [`Offender`], [`Asker`].

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::key::{Key, KeyKind, KeyRef};
use sluicegate_core::store::QuotaStatus;

use super::SAMPLED;
use super::cut::CutKey;
use super::in_turn::Frequent;

/// The note that stands for the whole burst.
const WHOLE: u64 = 1_000;

/// A key that was refused often. All keys with more than one in 64 of their policy's refusals in the last 5 to 10 minutes
/// are listed, and some with fewer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Offender {
    /// The key as it may be shown to operators: in clear, or as its digest.
    pub key: String,
    /// How it is shown.
    pub kind: OffenderKind,
    /// The digest of the key, whether it is shown or not: valid within this process only, and the same as in its logs.
    pub digest: String,
    /// Names the key in [`Observed::listed_key`](super::super::Observed::listed_key) for as long as it is listed; it reveals nothing
    /// about the key.
    pub reference: String,
    /// The number of refusals, at most [`error`](Self::error) too high.
    pub rejected: u64,
    /// The most by which [`rejected`](Self::rejected) may be too high.
    pub error: u64,
    /// The share of all refusals, 0 to 1.
    pub share: f64,
    /// The wait until the key may pass again, from its last refusal; up to one second too long, and zero if the wait is over
    /// or no wait helps.
    pub retry_after: Duration,
    /// The end of the suspension, if the key is suspended, from its last refusal.
    pub suspended_until: Option<SystemTime>,
}

/// A key that asked often, refused or not, found by looking at one ask in 64.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Asker {
    /// As [`Offender::key`].
    pub key: String,
    /// How it is shown.
    pub kind: OffenderKind,
    /// As [`Offender::digest`].
    pub digest: String,
    /// As [`Offender::reference`].
    pub reference: String,
    /// The approximate number of its asks in the last 5 to 10 minutes.
    pub asked: u64,
    /// The most by which [`asked`](Self::asked) may be too high: by keys that share its place, and by chance.
    pub error: u64,
    /// The share of its burst that was left at the last look: 0 to 1, rounded down.
    pub remaining: f64,
}

/// A key as it may be shown to operators: `203.0.113.9`, or `digest 3fb21c90` of what may be a secret. A long key lacks its
/// end.
///
/// ```
/// use std::net::Ipv4Addr;
/// use sluicegate_core::Key;
/// use sluicegate_observed::ShownKey;
///
/// assert_eq!(ShownKey::of(&Key::from(Ipv4Addr::LOCALHOST)).to_string(), "127.0.0.1");
/// assert!(ShownKey::of(&Key::from("sk_live_51H")).to_string().starts_with("digest "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShownKey {
    /// As [`Offender::key`].
    pub key: String,
    /// How it is shown.
    pub kind: OffenderKind,
    /// As [`Offender::digest`].
    pub digest: String,
}

impl ShownKey {
    /// The shown form of a key.
    pub fn of(key: &Key) -> Self {
        Self::of_ref(key.as_ref())
    }

    pub(crate) fn of_ref(key: KeyRef<'_>) -> Self {
        let (key, kind, digest, _) = shown(key.digest(), &CutKey::of(key));
        Self { key, kind, digest }
    }
}

impl fmt::Display for ShownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OffenderKind::Digest => write!(f, "digest {}", self.key),
            _ => f.write_str(&self.key),
        }
    }
}

/// How a key is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OffenderKind {
    /// An address, in clear.
    Address,
    /// A name, in clear.
    Name,
    /// A digest of what may be a secret, or of a key that is a digest itself.
    Digest,
}

impl OffenderKind {
    /// The name of the kind: `address`, `name` or `digest`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Name => "name",
            Self::Digest => "digest",
        }
    }
}

/// The note of an ask: the share of the burst that is left, rounded down.
pub(super) fn left(status: &QuotaStatus) -> u64 {
    let left = u128::from(status.remaining()) * u128::from(WHOLE) / u128::from(status.capacity().max(1));
    u64::try_from(left).unwrap_or(WHOLE)
}

/// The note of a refusal.
#[derive(Clone, Copy)]
pub(super) struct RefusalNote {
    pub(super) until_us: u64,
    pub(super) is_suspended: bool,
}

impl RefusalNote {
    /// The note as one number; the time stays far below the bit that is lost.
    pub(super) fn note(self) -> u64 {
        self.until_us.min(u64::MAX >> 1) << 1 | u64::from(self.is_suspended)
    }

    fn read(note: u64) -> Self {
        Self { until_us: note >> 1, is_suspended: note & 1 == 1 }
    }
}

impl Offender {
    /// Whether more than half of the count is certain. In a flood of keys that come a few
    /// times each, no key stands out; a key with more than one in 32 of the refusals always does.
    pub fn stands_out(&self) -> bool {
        self.rejected > self.error.saturating_mul(2)
    }

    pub(super) fn new(of: &Frequent, total: u64, now_us: u64) -> Self {
        let (key, kind, digest, reference) = shown(of.digest, &of.key);
        let RefusalNote { until_us, is_suspended } = RefusalNote::read(of.note);
        let until = UNIX_EPOCH.checked_add(Duration::from_micros(until_us));
        Self {
            key,
            kind,
            digest,
            reference,
            rejected: of.count,
            error: of.error,
            share: ratio(of.count, total),
            retry_after: Duration::from_micros(until_us.saturating_sub(now_us)),
            suspended_until: until.filter(|_| is_suspended && until_us > now_us),
        }
    }
}

impl Asker {
    /// As [`Offender::stands_out`].
    pub fn stands_out(&self) -> bool {
        self.asked > self.error.saturating_mul(2)
    }

    pub(super) fn new(of: &Frequent) -> Self {
        let (key, kind, digest, reference) = shown(of.digest, &of.key);
        let asked = of.count.saturating_mul(SAMPLED);
        // The standard deviation of a random count is its square root.
        let error = (of.error + of.count.isqrt()).saturating_mul(SAMPLED);
        Self { key, kind, digest, reference, asked, error, remaining: ratio(of.note, WHOLE) }
    }
}

/// The key as it may be shown, the kind of that form, its digest, and its reference.
pub(crate) fn shown(digest: u64, key: &CutKey) -> (String, OffenderKind, String, String) {
    // The digest as `Debug` shows it.
    let (short, reference) = (format!("{:08x}", digest >> 32), format!("{digest:016x}"));
    match (key.plain(), key.kind()) {
        (Some(plain), KeyKind::Address) => (plain, OffenderKind::Address, short, reference),
        (Some(plain), _) => (plain, OffenderKind::Name, short, reference),
        (None, _) => (short.clone(), OffenderKind::Digest, short, reference),
    }
}

/// The key that a reference stands for.
pub(crate) fn digest(reference: &str) -> Option<u64> {
    u64::from_str_radix(reference, 16).ok().filter(|_| reference.len() == 16)
}

#[expect(clippy::cast_precision_loss, reason = "to be shown with two digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
