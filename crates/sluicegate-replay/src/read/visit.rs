//! Small marks of a request, by which unusual traffic is found: [`RequestMarks`], and the texts that they stand for: [`Marks`].
//!
//! A user agent and a path are each one of 65,535 buckets, by a hash: so a log of any number of paths takes the same memory. Two texts
//! may share a bucket. The text that a bucket is shown by is the one that came most often in it, if one makes more than half of it.
//!
//! # Source
//! The vote for a text is that of Boyer and Moore, "MJRTY: A fast majority vote algorithm" (1991).

use std::hash::BuildHasher;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use ipnet::IpNet;

/// The bucket of a request that has no such text.
pub(crate) const NO_TEXT: u16 = 0;

/// The number of a request whose client is not known.
pub(crate) const NO_CLIENT: u32 = u32::MAX;

/// The most characters that are kept of a text.
const LONGEST: usize = 120;

/// The marks of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestMarks {
    /// The address of its client, or of its peer where no rule says the client.
    pub(crate) client: Option<IpAddr>,
    /// The bucket of its user agent.
    pub(crate) agent: u16,
    /// The bucket of its path, without the query.
    pub(crate) path: u16,
}

/// The network of an address by which clients are grouped: its /24, or its /48 of IPv6.
pub(crate) fn network_of(address: IpAddr) -> IpNet {
    let bits = if address.is_ipv4() { 24 } else { 48 };
    IpNet::new(address, bits).map_or_else(|_| address.into(), |network| network.trunc())
}

/// The texts of user agents and paths, by their buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) agents: Texts,
    pub(crate) paths: Texts,
}

impl Marks {
    /// Adds the texts that another thread has met.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { agents: self.agents.and(other.agents), paths: self.paths.and(other.paths) }
    }
}

/// The texts of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(Vec<Option<Box<Candidate>>>);

/// The text that is ahead in its bucket.
#[derive(Clone, Debug)]
struct Candidate {
    hash: u64,
    votes: u32,
    text: String,
}

impl Texts {
    /// The bucket of a text, for which the text votes.
    pub(crate) fn bucket(&mut self, text: &str) -> u16 {
        if text.is_empty() || text == "-" {
            return NO_TEXT;
        }
        let hash = FixedState::default().hash_one(text.as_bytes());
        let bucket = u16::try_from(hash % u64::from(u16::MAX)).unwrap_or(0) + 1;
        let place = usize::from(bucket);
        if self.0.len() <= place {
            self.0.resize(usize::from(u16::MAX) + 1, None);
        }
        match &mut self.0[place] {
            Some(ahead) if ahead.hash == hash => ahead.votes = ahead.votes.saturating_add(1),
            Some(ahead) if ahead.votes > 0 => ahead.votes -= 1,
            slot => {
                let text = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
                *slot = Some(Box::new(Candidate { hash, votes: 1, text }));
            }
        }
        bucket
    }

    /// The text of a bucket, if one was met in it.
    pub(crate) fn text(&self, bucket: u16) -> Option<&str> {
        self.0.get(usize::from(bucket))?.as_ref().map(|ahead| &*ahead.text)
    }

    fn and(mut self, other: Self) -> Self {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), None);
        }
        for (own, other) in self.0.iter_mut().zip(other.0) {
            match (&mut *own, other) {
                (_, None) => {}
                (Some(own), Some(other)) if own.hash == other.hash => {
                    own.votes = own.votes.saturating_add(other.votes);
                }
                (Some(own), Some(other)) if own.votes >= other.votes => own.votes -= other.votes,
                (own, Some(mut other)) => {
                    other.votes -= own.as_ref().map_or(0, |own| own.votes);
                    *own = Some(other);
                }
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_shown_by_the_text_that_most_requests_of_it_have() {
        let (mut one, mut other) = (Texts::default(), Texts::default());
        let login = one.bucket("/login");
        (0..9).for_each(|_| assert_eq!(one.bucket("/login"), login));
        // Another text in the same bucket.
        let mut others = Texts::default();
        let same = (0..).map(|n| format!("/{n}")).find(|text| others.bucket(text) == login).unwrap();
        (0..4).for_each(|_| _ = other.bucket(&same));
        assert_eq!(other.text(login), Some(&*same));
        assert_eq!(other.and(one).text(login), Some("/login"));
        assert_eq!((Texts::default().bucket("-"), Texts::default().bucket("")), (NO_TEXT, NO_TEXT));
    }

    #[test]
    fn texts_of_clients_are_bounded_and_escaped() {
        let mut texts = Texts::default();
        let bucket = texts.bucket(&format!("\u{1b}[31m{}", "x".repeat(10_000)));
        let shown = texts.text(bucket).unwrap();
        assert!(shown.starts_with("\\u{1b}[31m") && shown.len() < 2 * LONGEST, "{shown}");
    }
}
