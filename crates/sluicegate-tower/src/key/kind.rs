//! How much of a key may be shown: [`KeyKind`].

/// What the keys of an extractor are, from the least to the most secret: so much of them may logs, status pages and
/// explanations show.
///
/// ```
/// use sluicegate_tower::key::{ApiKey, HeaderKey, KeyKind, RequestMethod};
/// use sluicegate_tower::{KeyExtractor, PeerIp};
///
/// assert_eq!((RequestMethod, PeerIp::new()).kind(), KeyKind::Address);
/// assert_eq!(ApiKey::header("x-api-key")?.or(PeerIp::new()).kind(), KeyKind::Secret);
/// // A secret, unless its owner says what it is.
/// let tenant = HeaderKey::new("x-tenant")?;
/// assert_eq!(tenant.kind(), KeyKind::Secret);
/// assert_eq!(tenant.of_kind(KeyKind::Name).kind(), KeyKind::Name);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KeyKind {
    /// A name that proves nothing: a route, a method, a user. It may be shown.
    Name,
    /// An address of a client or of its network. It may be shown to those who run the service.
    Address,
    /// A secret, its digest, or text that may hold one. It is never shown.
    Secret,
}
