//! Groups of keys: [`KeyGroup`].

use std::fmt;

/// A group of clients that is counted as one key, in addition to the keys of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyGroup {
    /// The /24 of the client's address, or the /48 of IPv6.
    Network,
    /// The client's address with its user agent.
    Session,
}

impl KeyGroup {
    /// `network` or `session`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Session => "session",
        }
    }
}

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
