//! The settings of a replay: [`ReplaySettings`].

use ipnet::IpNet;

use crate::read::Format;
use crate::read::ReadRange;
use crate::share::Share;

/// The way to take requests of one second where the log has whole seconds.
///
/// A log with whole seconds does not say which way is nearer to the truth. Requests of many clients come spread; a page and its images come
/// together. A limit with a burst of a few units sees the difference, one with a large burst does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithinSecond {
    /// Requests come one after the other, evenly over their second.
    ///
    /// Of `n` requests of a second, in the order of the log, the one at place `i` comes `i/n` of a second later. Requests with finer times
    /// keep them.
    #[default]
    Spread,
    /// Requests come at once.
    ///
    /// They come in the order of the log, at the beginning of their second.
    Together,
}

impl WithinSecond {
    /// `spread` or `together`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Together => "together",
        }
    }

    /// The other way.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Spread => Self::Together,
            Self::Together => Self::Spread,
        }
    }
}

/// The settings of a replay.
///
/// They are checked one by one as they are set; a replay lends them to each of its runs.
#[derive(Clone, Debug)]
pub(crate) struct ReplaySettings {
    pub(crate) format: Option<Format>,
    pub(crate) span: ReadRange,
    /// The names of the rules that are replayed; an empty list stands for all.
    pub(crate) only: Vec<String>,
    pub(crate) threads: usize,
    pub(crate) within_second: WithinSecond,
    pub(crate) top: usize,
    pub(crate) compares: bool,
    pub(crate) suggests: Option<Share>,
    /// The least share of unusual requests or keys that a suggestion rejects.
    pub(crate) least: Option<Share>,
    /// Whether a suggestion is learned only from requests that are not unusual.
    pub(crate) is_rest_only: bool,
    /// Spans that suggestions are not learned from, each from its beginning to before its end.
    pub(crate) without: Vec<(u64, u64)>,
    /// Networks that suggestions are not learned from.
    pub(crate) without_networks: Vec<IpNet>,
    pub(crate) has_groups: bool,
}

impl ReplaySettings {
    /// Whether a moment is in a span that is left out by hand.
    pub(crate) fn leaves_out(&self, at_us: u64) -> bool {
        self.without.iter().any(|(from, to)| (*from..*to).contains(&at_us))
    }
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self {
            format: None,
            span: ReadRange::default(),
            only: Vec::new(),
            threads: 1,
            within_second: WithinSecond::default(),
            top: 10,
            compares: false,
            suggests: None,
            least: None,
            is_rest_only: false,
            without: Vec::new(),
            without_networks: Vec::new(),
            has_groups: false,
        }
    }
}
