//! Limits with their rejections of ordinary and of unusual requests: [`Frontier`].

use crate::share::Share;

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
