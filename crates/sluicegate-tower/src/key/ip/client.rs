//! The client's address behind named proxies: [`ClientIp`], and the faults of what they forwarded.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use http::header::{FORWARDED, HeaderName};
use sluicegate_core::ConfigError;
use sluicegate_core::store::{Event, ForwardedFault, Listener, Listeners};

use super::address::Grouping;
use super::elements::{FromTheRight, Proxies, WalkEnd, single, walk};
use super::networks::{IntoNetworks, Networks};
use super::peer::{Looks, X_FORWARDED_FOR, no_peer, peer};
use super::{address, elements};
use crate::key::text::{config_error, header_name};
use crate::key::{Extraction, KeyExtractor, KeyForm, KeyKind, MissingKey, RequestView};

/// One bucket per client address, behind named proxies.
///
/// Each proxy appends the address that connected to it to `X-Forwarded-For`, after any text of the client. So
/// the list is read from the right, all its lines together, over the addresses of named proxies, to the first other
/// address. Elements to the left of it may be made up by the client, and are never read. A request whose peer is not
/// a named proxy counts for the peer, whatever its headers say.
///
/// Exactly one header is read, because a client can send headers that the proxies do not overwrite: set
/// [`forwarded`](Self::forwarded) or [`header`](Self::header) if yours do not use `X-Forwarded-For`.
///
/// An element that is not an address ends the walk at the last trusted proxy: its clients then share that
/// proxy's bucket, and [`faults`](Self::faults) counts the fault. At most 32 elements and 2 KiB are read. A peer that is not a
/// named proxy but sends the header is logged once, if it is among the first 1,000 such requests.
///
/// IPv6 clients own whole networks, so their addresses count by prefix, /64 unless set otherwise; an IPv4-mapped address
/// counts as its IPv4 address; zones and ports are dropped.
///
/// ```
/// use std::net::SocketAddr;
///
/// use http::Request;
/// use sluicegate_tower::ClientIp;
/// use sluicegate_tower::key::PeerAddr;
///
/// let client_ip = ClientIp::behind(["10.0.0.0/8", "2001:db8:1::/48"])?;
///
/// let request = |peer: SocketAddr| {
///     let request = Request::get("/").extension(PeerAddr(peer));
///     request.header("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.1.2.3").body(())
/// };
/// assert_eq!(client_ip.address(&request("10.0.0.9:443".parse()?)?), Some("198.51.100.7".parse()?));
/// // A peer that is not a proxy is the client, whatever it sends.
/// assert_eq!(client_ip.address(&request("203.0.113.5:50000".parse()?)?), Some("203.0.113.5".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Two widths at once
/// The owner of a /48 has 65,536 networks of /64. A second, wider limit bounds all of them together:
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::{ClientIp, Limit, RateLimitLayer};
///
/// let store = MemoryStore::new();
/// let client_ip = ClientIp::behind(["10.0.0.0/8"])?;
/// let narrow = Limit::new(Policy::gcra("address", "10/s").on(&store)?).key(client_ip.clone());
/// let wide = Limit::new(Policy::gcra("site", "100/s").on(&store)?).key(client_ip.ipv6_prefix(48)?);
/// let layer = RateLimitLayer::builder(narrow).and(wide).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClientIp {
    proxies: Proxies,
    header: HeaderName,
    syntax: Syntax,
    on_malformed: OnMalformed,
    pub(super) grouping: Grouping,
    faults: Arc<Faults>,
}

/// The syntax of the header.
#[derive(Clone, Copy, Debug)]
enum Syntax {
    Addresses,
    Rfc7239,
    Single,
}

/// The treatment of a request with an unreadable forwarded header from a trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMalformed {
    /// The request counts for the last trusted proxy.
    UseHop,
    /// The request is refused with 400.
    Reject,
}

impl ClientIp {
    /// Clients behind proxies in these networks, as `X-Forwarded-For` names them.
    ///
    /// Give one network or several, as text or anything that prints as a network or an address. Name only the
    /// proxies: a peer in one of these networks is trusted to name its client.
    ///
    /// # Errors
    /// For a value that is not a network, for an empty list, and for a network of all addresses, which would let each
    /// client choose its address: see [`insecure_behind_anyone`](Self::insecure_behind_anyone).
    pub fn behind<const IS_LIST: bool>(proxies: impl IntoNetworks<IS_LIST>) -> Result<Self, ConfigError> {
        let networks = Networks::new(proxies)?;
        if networks.is_empty() {
            return Err(config_error("no proxies are named: use PeerIp where there are none"));
        }
        if let Some(everything) = networks.everything() {
            return Err(config_error(format!(
                "{everything} would let every client choose its address: name the networks of the proxies, or use \
                 ClientIp::insecure_behind_anyone()"
            )));
        }
        Ok(Self::told_by(Proxies::Named(Arc::new(networks))))
    }

    /// Clients behind `proxies` proxies with unknown addresses: the `proxies`-th element from the right.
    ///
    /// Use it only for servers that cannot be reached without the proxies, such as those behind a Unix socket, whose peer has no address.
    /// A request with fewer elements counts for the peer.
    ///
    /// # Errors
    /// For 0 proxies, and for more than 32.
    pub fn hops(proxies: usize) -> Result<Self, ConfigError> {
        if (1..=32).contains(&proxies) {
            return Ok(Self::told_by(Proxies::Hops(proxies)));
        }
        Err(config_error(format!("{proxies} proxies in front: use 1 to 32, or PeerIp where there are none")))
    }

    /// Trusts every peer, including peers over a Unix socket, and every address in the list.
    ///
    /// With [`header`](Self::header), it is for servers that can only be reached through a proxy that overwrites the header. With a
    /// list, the leftmost element counts, which clients choose: each client can then have any number of buckets.
    pub fn insecure_behind_anyone() -> Self {
        Self::told_by(Proxies::Anyone)
    }

    fn told_by(proxies: Proxies) -> Self {
        Self {
            proxies,
            header: X_FORWARDED_FOR,
            syntax: Syntax::Addresses,
            on_malformed: OnMalformed::UseHop,
            grouping: Grouping::DEFAULT,
            faults: Arc::default(),
        }
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`.
    #[must_use]
    pub fn forwarded(mut self) -> Self {
        self.header = FORWARDED;
        self.syntax = Syntax::Rfc7239;
        self
    }

    /// Reads a header with a single address instead of `X-Forwarded-For`, such as `cf-connecting-ip` or `x-real-ip`.
    ///
    /// The proxy has to overwrite values from clients. A repeated header counts as malformed.
    ///
    /// # Errors
    /// When `name` cannot be the name of a header, or is a header that holds a list.
    pub fn header(mut self, name: &str) -> Result<Self, ConfigError> {
        let name = header_name(name)?;
        if name == X_FORWARDED_FOR || name == FORWARDED {
            return Err(config_error(format!(
                "{name} holds a list: X-Forwarded-For is read by default, Forwarded after .forwarded()"
            )));
        }
        self.header = name;
        self.syntax = Syntax::Single;
        Ok(self)
    }

    /// Sets the treatment of an unreadable header of a trusted proxy. Default: [`OnMalformed::UseHop`].
    ///
    /// A missing header is never refused: the proxies' own health checks have none.
    #[must_use]
    pub fn on_malformed(mut self, action: OnMalformed) -> Self {
        self.on_malformed = action;
        self
    }

    /// Sets the number of bits of an IPv6 address that identify a client: 1 to 128. Default: 64.
    ///
    /// # Errors
    /// For a prefix of 0, which would put all clients into one bucket, or above 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, ConfigError> {
        self.grouping = self.grouping.ipv6_prefix(bits)?;
        Ok(self)
    }

    /// Counts an address in `64:ff9b::/96` as the IPv4 address inside it. Default: it counts by prefix, like all others.
    #[must_use]
    pub fn nat64(mut self) -> Self {
        self.grouping = self.grouping.nat64();
        self
    }

    /// The client's address in canonical form, whole: for handlers, logs and lists.
    ///
    /// `None` if the peer is unknown, or if the request is refused for its header. With [`OnMalformed::UseHop`] it is the
    /// proxy's address if the header does not lead to a client; [`within`](Self::within) and [`outside`](Self::outside) distinguish
    /// the two.
    pub fn address<'a>(&self, request: impl Into<RequestView<'a>>) -> Option<IpAddr> {
        let end = self.find(request.into());
        let ip = end.ip.filter(|_| self.refusal(&end).is_none());
        ip.map(|ip| self.grouping.address(ip))
    }

    /// The number of requests in which the header of a trusted proxy did not lead to a client, since this extractor was made.
    ///
    /// Clones count together, once for every extracted key. The first fault of each kind is also logged.
    pub fn faults(&self) -> ForwardedFaults {
        self.faults.snapshot()
    }

    /// Adds a listener for faults of this extractor and its clones. It gets each as an
    /// [`Event::ForwardedFault`](sluicegate_core::store::Event::ForwardedFault), because an extractor has no store.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.faults.listeners.add(listener);
    }

    #[inline]
    pub(super) fn find(&self, request: RequestView<'_>) -> WalkEnd {
        let peer = peer(request.extensions).map(SocketAddr::ip);
        if self.proxies.trust(peer) {
            return self.read(peer, request);
        }
        self.faults.strangers.at_a_stranger(request.headers, &self.header);
        WalkEnd::at(peer)
    }

    fn read(&self, peer: Option<IpAddr>, request: RequestView<'_>) -> WalkEnd {
        let lines = request.headers.get_all(&self.header).iter();
        match self.syntax {
            Syntax::Addresses => walk(peer, &self.proxies, FromTheRight::plain(lines), address::read),
            Syntax::Rfc7239 => walk(peer, &self.proxies, FromTheRight::quoted(lines), elements::read),
            Syntax::Single => single(peer, lines),
        }
    }

    /// The reason to refuse the request, if any.
    fn refusal(&self, end: &WalkEnd) -> Option<&'static str> {
        let reject = self.on_malformed == OnMalformed::Reject;
        end.fault.filter(|fault| reject && is_malformed(*fault)).map(describe)
    }
}

impl KeyExtractor for ClientIp {
    #[inline]
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let end = self.find(request);
        if let Some(fault) = end.fault {
            self.faults.count(fault, self.header.as_str());
            if let Some(reason) = self.refusal(&end) {
                return MissingKey::new(reason).rejecting(StatusCode::BAD_REQUEST).into();
            }
        }
        match (end.ip, end.fault) {
            (Some(ip), _) => Extraction::found(self.grouping.key(ip)),
            // An extractor that trusts every peer needs no peer address, and a Unix socket has none.
            (None, Some(fault)) => Extraction::missing(describe(fault)),
            (None, None) => no_peer(request).into(),
        }
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Address
    }

    fn forms(&self) -> Vec<KeyForm> {
        vec![self.grouping.form()]
    }
}

/// Whether the header is present but wrong. A missing header does not count: a health check by the proxy itself has none.
pub(super) fn is_malformed(fault: ForwardedFault) -> bool {
    fault != ForwardedFault::Missing
}

pub(super) fn describe(fault: ForwardedFault) -> &'static str {
    match fault {
        ForwardedFault::Unreadable => "the forwarded address is unreadable",
        ForwardedFault::TooLong => "the forwarded addresses are too many",
        ForwardedFault::Repeated => "the forwarded address is there twice",
        _ => "the forwarded address is missing",
    }
}

/// The number of faults of each kind.
///
/// They are counted per extractor, and logged once per kind: a flood of garbage must not become a flood of
/// lines.
#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: [AtomicU64; ForwardedFault::ALL.len()],
    pub(super) listeners: Listeners,
    /// The remaining checks of requests from peers that are not named proxies.
    pub(super) strangers: Looks,
}

/// Counts of forwarded headers from trusted proxies that did not lead to a client; see [`ClientIp::faults`].
///
/// [`ClientIp::faults`]: crate::ClientIp::faults
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwardedFaults {
    /// The header was missing, or had fewer elements than there are proxies. The proxy may not be configured to send it.
    pub missing: u64,
    /// An element was not an address: empty, `unknown`, hidden, or garbage.
    pub unreadable: u64,
    /// More than 32 elements or 2 KiB would have had to be read.
    pub too_long: u64,
    /// A header with a single value was repeated.
    pub repeated: u64,
}

impl Faults {
    pub(super) fn count(&self, fault: ForwardedFault, header: &str) {
        // Relaxed: the counters are independent.
        if self.counts[fault as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                header,
                "{}: such requests count as the proxy's own, or are refused; further ones are only counted",
                describe(fault)
            );
        }
        self.listeners.tell(&Event::ForwardedFault(fault));
    }

    pub(super) fn snapshot(&self) -> ForwardedFaults {
        let count = |fault: ForwardedFault| self.counts[fault as usize].load(Ordering::Relaxed);
        ForwardedFaults {
            missing: count(ForwardedFault::Missing),
            unreadable: count(ForwardedFault::Unreadable),
            too_long: count(ForwardedFault::TooLong),
            repeated: count(ForwardedFault::Repeated),
        }
    }
}
