//! Traffic that is unusual for the log: [`Unusual`].

use std::fmt;

/// An unusual part of a log, with its span.
///
/// It is compared with the rest of the log: the median over its time windows, and the median deviation from it. An attack that
/// fills more than half of the log counts as usual, except for [`Even`](UnusualKind::Even) clients.
///
/// It is a remark, not a verdict: the opening of a sale is as unusual as an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unusual {
    /// The kind of what is unusual.
    pub kind: UnusualKind,
    /// The finding in words and numbers, with the usual range.
    ///
    /// If [keys are hidden](crate::Replay::hide_keys), it names no network, agent or path.
    pub what: String,
    /// The beginning of the minute in which it began, in microseconds since the Unix epoch.
    pub from_us: u64,
    /// The end of the minute in which it ended.
    pub to_us: u64,
    /// The requests that make it.
    pub requests: u64,
    /// The clients that make it, by their addresses.
    pub keys: u64,
}

/// The kind of what is unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnusualKind {
    /// Many more clients come than usual, and they are new.
    NewKeys,
    /// Clients of one network, a /24 or a /48, make much more of the traffic than usual.
    Network,
    /// Clients with one user agent make much more of the traffic than usual.
    Agent,
    /// Clients that ask for one path make much more of the traffic than usual.
    Path,
    /// Many clients ask minute after minute at one rate, and make most of the traffic.
    Even,
}

impl UnusualKind {
    /// `new_keys`, `network`, `agent`, `path` or `even`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewKeys => "new_keys",
            Self::Network => "network",
            Self::Agent => "agent",
            Self::Path => "path",
            Self::Even => "even",
        }
    }
}

impl fmt::Display for UnusualKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
