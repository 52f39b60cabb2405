//! Descriptors of Envoy's rate limit protocol: [`Descriptors`].

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Request, StatusCode};
use sluicegate_core::Quota;
use sluicegate_tower::key::{MissingKey, NoPeer, PeerAddr, RequestView};
use sluicegate_tower::limits::path::{Fold, Purpose, Spellings, spellings};
use smallvec::smallvec;

/// The entry in which Envoy sends the address of the client.
const REMOTE_ADDRESS: &str = "remote_address";

/// The descriptors of one request in Envoy's rate limit protocol, for rules that are [about descriptors](crate#descriptors-of-envoy).
///
/// A proxy describes a request by a domain and by descriptors. Each descriptor is a list of entries, as `remote_address=192.0.2.7`, and the
/// rules see it as a request of its own.
///
/// ```
/// use sluicegate_core::MemoryStore;
/// use sluicegate_rules::{Descriptor, Descriptors, Rules, RulesFile, Variables};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = RulesFile::parse("rules.yaml", r#"
/// version: 1
/// policies: { per-address: { quota: 10/s } }
/// rules:
///   - { name: address, only_if: { domain: edge, descriptor: [{ remote_address: "*" }] }, limit: per-address, key: client }
/// "#, &Variables::none())?;
/// let rules = Rules::new(&MemoryStore::new(), file)?;
///
/// let descriptors = Descriptors::new("edge", [Descriptor::new([("remote_address", "192.0.2.7")]).hits(3)]);
/// for request in descriptors.requests() {
///     let explained = rules.explain(&request).await.to_string();
///     assert!(explained.contains("asks 3 of per-address: 10/s (gcra) for 192.0.2.7"), "{explained}");
///     assert!(rules.limits().decide(&request).await.is_ok());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Descriptors(Arc<DescribedCall>);

#[derive(Debug)]
struct DescribedCall {
    domain: String,
    all: Vec<Descriptor>,
}

/// A list of entries, each with a key and a value.
#[derive(Clone)]
pub struct Descriptor {
    entries: Vec<(String, String)>,
    hits: u64,
    limit: Option<Quota>,
}

/// The descriptor that a request represents, in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct RequestDescriptor {
    of: Descriptors,
    place: usize,
}

impl Descriptor {
    /// A descriptor with these entries.
    pub fn new<K, V>(entries: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self { entries: entries.collect(), hits: 1, limit: None }
    }

    /// Sets the number of hits, by which the cost of each rule is multiplied. Default: 1.
    #[must_use]
    pub fn hits(self, hits: u64) -> Self {
        Self { hits, ..self }
    }

    /// Sets the quota that the proxy sends with the descriptor, for policies with `quota_by: descriptor`. Default: none.
    #[must_use]
    pub fn limit(self, quota: Quota) -> Self {
        Self { limit: Some(quota), ..self }
    }
}

impl Descriptors {
    /// The descriptors of one request.
    pub fn new(domain: impl Into<String>, descriptors: impl IntoIterator<Item = Descriptor>) -> Self {
        Self(Arc::new(DescribedCall { domain: domain.into(), all: descriptors.into_iter().collect() }))
    }

    /// A request for each descriptor, to be decided by [limits](crate::Rules::limits) and [explained](crate::Rules::explain). Its peer is the
    /// address in the entry `remote_address`, if there is one. An entry that is no address refuses the request where a rule reads it.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request<()>> + '_ {
        self.0.all.iter().enumerate().map(|(place, descriptor)| {
            let mut request = Request::new(());
            request.extensions_mut().insert(RequestDescriptor { of: self.clone(), place });
            match value(&descriptor.entries, REMOTE_ADDRESS).map(str::parse::<IpAddr>) {
                Some(Ok(ip)) => _ = request.extensions_mut().insert(PeerAddr(SocketAddr::new(ip, 0))),
                Some(Err(_)) => {
                    let missing = MissingKey::new("the entry remote_address of the descriptor is not an address");
                    request.extensions_mut().insert(NoPeer(missing.rejecting(StatusCode::BAD_REQUEST)));
                }
                None => {
                    let missing = MissingKey::mistake(
                        "the descriptor has no entry remote_address: let the proxy send it, or give the rule another key",
                    );
                    request.extensions_mut().insert(NoPeer(missing));
                }
            }
            request
        })
    }
}

impl RequestDescriptor {
    /// The descriptor that a request represents, if any.
    pub(crate) fn of(request: RequestView<'_>) -> Option<&Self> {
        request.extensions.get()
    }

    pub(crate) fn domain(&self) -> &str {
        &self.of.0.domain
    }

    pub(crate) fn entries(&self) -> &[(String, String)] {
        &self.descriptor().entries
    }

    /// The value of the entry with this key.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        value(self.entries(), key)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.descriptor().hits
    }

    pub(crate) fn limit(&self) -> Option<Quota> {
        self.descriptor().limit
    }

    /// All descriptors of the same request, including this one.
    pub(crate) fn siblings(&self) -> &Descriptors {
        &self.of
    }

    fn descriptor(&self) -> &Descriptor {
        &self.of.0.all[self.place]
    }
}

/// Whether the value of the entry with this key is read as a path.
pub(crate) fn is_path(key: &str) -> bool {
    key == "path"
}

/// The texts that the value of an entry may stand for: of a path, its spellings without the query, and the value itself of any other.
pub(crate) fn meanings<'a>(key: &str, value: &'a str, purpose: Purpose, fold: Fold) -> Spellings<'a> {
    match value.split(['?', '#']).next() {
        Some(path) if is_path(key) && path.starts_with('/') => {
            spellings(path, purpose).into_iter().map(|path| fold.apply(path)).collect()
        }
        _ => smallvec![Cow::Borrowed(value)],
    }
}

/// The text of a value in keys: of a path with dots, the path that they lead to.
pub(crate) fn meaning<'a>(key: &str, value: &'a str) -> Cow<'a, str> {
    meanings(key, value, Purpose::Limit, Fold::default()).pop().unwrap_or_default()
}

fn value<'a>(entries: &'a [(String, String)], key: &str) -> Option<&'a str> {
    entries.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
}

/// Leaves out the values, which may be secrets.
impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.entries.iter().map(|(key, _)| &**key).collect();
        let mut debug = f.debug_struct("Descriptor");
        debug.field("keys", &keys).field("hits", &self.hits).field("limit", &self.limit).finish()
    }
}
