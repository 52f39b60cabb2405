//! A suggested limit: [`Suggestion`].

use std::fmt;
use std::str::FromStr;

use sluicegate_core::Policy;

/// The lowest limit above which no limit rejects more than a share, with its policy alone.
///
/// # How to read it
/// This limit and every higher one would have rejected at most the share of the requests. That is a fact about the log,
/// not a forecast: refused clients come again, and traffic grows. Start with it in shadow mode.
///
/// If costs differ, a lower limit may also reject no more than the share: it refuses a large request, and so has room for several small
/// ones. It is not suggested, because a limit between the two rejects more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suggestion {
    /// The policy with that limit; periods stay, and so does the relation of bursts and of several quotas to the limit.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// The requested share.
    pub share: Share,
    /// Requests that it rejects; an estimate if the log was too large to be kept.
    pub rejected: u64,
    /// Keys with at least one rejected request.
    pub rejected_keys: u64,
    /// The largest distance from `rejected` to the true number in nineteen of twenty cases; 0 if it is exact.
    ///
    /// It is 1.96 standard deviations of the estimate, and at least three times what each key of a sample stands for.
    pub uncertainty: u64,
    /// The distance to the next lower limit that was tried: 1 up to a limit of 512, and less than a hundredth above that.
    ///
    /// Between the two limits where the share was crossed, every limit was tried.
    pub step: u64,
    /// Requests that it rejects together with the other suggestions.
    ///
    /// A rule that refuses a request keeps it from spending elsewhere, so this is often less than [`rejected`](Self::rejected). `None` if
    /// the log was too large to be kept as a whole.
    pub together: Option<u64>,
    /// The part of the log that is unusual or left out by hand, which it was not learned from; `None` if there is none.
    pub unusual: Option<UnusualSide>,
}

/// The requests that a suggestion was not learned from, because they are [unusual](crate::Unusual) or left out by hand.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnusualSide {
    /// All these requests.
    pub asked: Counted,
    /// Requests that the suggestion rejects.
    pub rejected: Counted,
    /// The least share of them that it has to reject, if requested.
    pub share: Option<Share>,
    /// The limit that is learned from the unusual requests too, but not from those that are left out by hand; `None` where it was not asked for.
    ///
    /// A limit that is learned from an attack admits the attack. It is shown for comparison, and because unusual traffic is not always an
    /// attack.
    pub with: Option<LimitWithUnusual>,
}

/// The limit that a log with an unusual part suggests, if that part is ordinary after all.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitWithUnusual {
    /// The policy with that limit.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// Requests that it rejects, ordinary and unusual ones.
    pub rejected: u64,
}

// Limits with their rejections of ordinary and of unusual requests: [`Frontier`].

/// Limits of a row, from the lowest to the highest, with the ordinary and the unusual requests that each rejects.
///
/// All requests are replayed under each limit, ordinary and unusual ones together: if both share a key, as they may by
/// [network](crate::KeyGroup::Network), the unusual ones take the room of the others, and the counts show that.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Frontier {
    /// All ordinary requests and keys.
    pub ordinary: Counted,
    /// All other requests: those found to be unusual, and those left out by hand.
    pub unusual: Counted,
    /// Limits, from the lowest to the highest. The highest rejects nothing.
    pub points: Vec<FrontierPoint>,
    /// The limits at which a further change begins to cost more than it gains; two or three, if the limits differ at all.
    pub knees: Vec<FrontierPoint>,
}

impl Frontier {
    /// Adds a limit in its place, unless it is there.
    pub(crate) fn add(&mut self, point: Option<FrontierPoint>) {
        let Some(point) = point else { return };
        if let Err(place) = self.points.binary_search_by_key(&point.limit, |known| known.limit) {
            self.points.insert(place, point);
        }
    }
}

/// Requests and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Requests.
    pub requests: u64,
    /// Keys with at least one of these requests.
    pub keys: u64,
}

/// A limit, and its rejections on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontierPoint {
    /// The limit of the first quota.
    pub limit: u64,
    /// The ordinary requests that it rejects, and their keys.
    pub ordinary: Counted,
    /// The unusual requests that it rejects, and their keys.
    pub unusual: Counted,
}

impl Counted {
    /// Whether it is at most this share of `all`, by keys or by requests as the share says.
    pub(crate) fn is_within(self, share: Share, all: Self) -> bool {
        match share.is_of_keys() {
            true => share.covers(self.keys, all.keys),
            false => share.covers(self.requests, all.requests),
        }
    }

    /// Whether it is at least this share of `all`.
    pub(crate) fn reaches(self, share: Share, all: Self) -> bool {
        match share.is_of_keys() {
            true => share.is_reached(self.keys, all.keys),
            false => share.is_reached(self.requests, all.requests),
        }
    }

    /// Its requests as a part of `all`, in billionths.
    pub(crate) fn part(self, all: Self) -> u64 {
        let part = u128::from(self.requests) * 1_000_000_000 / u128::from(all.requests.max(1));
        u64::try_from(part).unwrap_or(1_000_000_000)
    }
}

// A share of requests or keys: [`Share`].

/// A share of requests, written `0.1%` or `0.001`, or of keys, written `1%/keys`.
///
/// ```
/// use sluicegate_replay::Share;
///
/// let share: Share = "0.1%".parse()?;
/// assert!(share.covers(1, 1_000) && !share.covers(2, 1_000));
/// assert!("1%/keys".parse::<Share>()?.is_of_keys());
/// # Ok::<(), String>(())
/// ```
///
/// It is kept in billionths, and compared with counts by whole numbers: 0.1 % of a thousand requests is one, and never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The share in parts of a billion.
    billionths: u64,
    of_keys: bool,
}

const WHOLE: u64 = 1_000_000_000;

impl Share {
    /// Whether it is a share of keys, not of requests.
    pub fn is_of_keys(self) -> bool {
        self.of_keys
    }

    /// Whether `part` of `all` is at most this share.
    ///
    /// No number is rounded: products of both sides are compared.
    pub fn covers(self, part: u64, all: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) <= u128::from(self.billionths) * u128::from(all)
    }
}

impl Share {
    /// Whether `part` of `all` is at least this share.
    fn is_reached(self, part: u64, all: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) >= u128::from(self.billionths) * u128::from(all)
    }
}

impl FromStr for Share {
    type Err = String;

    /// # Errors
    /// When it is any other text, or more than the whole.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a share: write 0.1%, 0.001, or 1%/keys");
        let (number, of_keys) = text.strip_suffix("/keys").map_or((text, false), |number| (number, true));
        let (number, scale) = number.strip_suffix('%').map_or((number, 9), |number| (number.trim_end(), 7));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
            return Err(wrong());
        }
        if fraction.len() > scale {
            return Err(format!(
                "{text:?} is finer than a share can be: use at most nine digits behind the point"
            ));
        }
        let digits = format!("{whole}{fraction:0<scale$}");
        let billionths = digits.parse().ok().filter(|billionths| *billionths <= WHOLE);
        Ok(Self {
            billionths: billionths.ok_or_else(|| format!("{text:?} is more than the whole"))?,
            of_keys,
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.billionths / 10_000_000, self.billionths % 10_000_000);
        write!(f, "{whole}")?;
        if fraction > 0 {
            write!(f, ".{}", format!("{fraction:07}").trim_end_matches('0'))?;
        }
        f.write_str(if self.of_keys { "%/keys" } else { "%" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_prints_as_it_reads() {
        for (text, printed) in [
            ("0.1%", "0.1%"),
            ("0.001", "0.1%"),
            ("100%", "100%"),
            ("1", "100%"),
            (".5%/keys", "0.5%/keys"),
            ("0", "0%"),
        ] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), printed, "{text}");
        }
        for text in
            ["", "%", "101%", "-1%", "1e-3", "1%/users", "1.1", "0.00000000001", "99999999999999999999"]
        {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
