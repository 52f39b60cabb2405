//! Reads list headers from the right, up to a bound: `X-Forwarded-For` and its like, and `Forwarded` (RFC 7239). The walk ends at the
//! first address that is no trusted proxy.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{HeaderValue, ValueIter};
use sluicegate_core::store::ForwardedFault as Fault;

use super::address;
use super::client::ClientIp;
use super::networks::Networks;
use super::peer::PeerIp;
use crate::key::RequestView;

/// The most elements that are read; no chain of proxies is longer.
const MAX_ELEMENTS: usize = 32;

/// Room for 32 elements with ports, brackets and parameters, with a margin.
const MAX_BYTES: usize = 2 * 1024;

/// The elements of all lines of a header, the last one first.
///
/// The order is from the right: a proxy appends its elements after the client's elements, so text of a client cannot
/// change the reading of the proxies' elements.
///
/// At most 32 elements and 2 KiB are read, so that a header of megabytes costs no more than
/// a header of one line.
#[derive(Debug)]
pub(super) struct FromTheRight<'a> {
    lines: ValueIter<'a, HeaderValue>,
    /// The unread rest of a line.
    line: Option<&'a [u8]>,
    last_comma: fn(&[u8]) -> Option<usize>,
    elements: usize,
    bytes: usize,
}

/// The header goes on to the left beyond the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl<'a> FromTheRight<'a> {
    /// Elements without quoted strings: each comma separates.
    pub(super) fn plain(lines: ValueIter<'a, HeaderValue>) -> Self {
        Self::new(lines, |line| line.iter().rposition(|&byte| byte == b','))
    }

    /// Elements with quoted strings, which may hold commas.
    pub(super) fn quoted(lines: ValueIter<'a, HeaderValue>) -> Self {
        Self::new(lines, last_comma_outside_quotes)
    }

    fn new(lines: ValueIter<'a, HeaderValue>, last_comma: fn(&[u8]) -> Option<usize>) -> Self {
        Self { lines, line: None, last_comma, elements: MAX_ELEMENTS, bytes: MAX_BYTES }
    }
}

impl<'a> Iterator for FromTheRight<'a> {
    type Item = Result<&'a [u8], TooLong>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next_back()?.as_bytes(),
        };
        let beyond = line.len().saturating_sub(self.bytes);
        let comma = (self.last_comma)(&line[beyond..]).map(|comma| beyond + comma);
        let begin = comma.map_or(0, |comma| comma + 1);
        if self.elements == 0 || (comma.is_none() && beyond > 0) {
            return Some(Err(TooLong));
        }
        self.elements -= 1;
        self.bytes = self.bytes.saturating_sub(line.len() - begin + 1);
        self.line = comma.map(|comma| &line[..comma]);
        Some(Ok(&line[begin..]))
    }
}

/// From the right, the first quote closes, and the next one that has no backslash before it opens: an opening quote
/// comes after a `=`. Malformed quoted strings are rejected later, by the element parser.
fn last_comma_outside_quotes(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    line.iter().enumerate().rev().find_map(|(at, byte)| match byte {
        b'"' if !quoted || !line[..at].ends_with(b"\\") => {
            quoted = !quoted;
            None
        }
        b',' if !quoted => Some(at),
        _ => None,
    })
}

impl ClientIp {
    /// Whether a request's client is in one of these networks; false if its address is unknown.
    ///
    /// An address is unknown if no peer is known, and if the header of a trusted proxy has a
    /// [fault](crate::key::ForwardedFaults): it is missing, unreadable, too long, or repeated. The proxy's address is then the
    /// key, but it is on no list: [`outside`](Self::outside) is false for it, too.
    ///
    /// ```
    /// use sluicegate_tower::ClientIp;
    /// use sluicegate_tower::key::Networks;
    ///
    /// let client_ip = ClientIp::behind(["10.0.0.0/8"])?;
    /// let from_the_office = client_ip.within(Networks::new(["203.0.113.0/24"])?);
    /// # let request = http::Request::new(());
    /// assert!(!from_the_office((&request).into()));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn within(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = self.clone();
        move |request| this.certain(request).is_some_and(|ip| networks.contains(ip))
    }

    /// Whether a request's client is in none of these networks; false if its address is unknown, as for
    /// [`within`](Self::within).
    ///
    /// To refuse or limit requests of unknown origin as well, write `!within(request)`:
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::{ClientIp, RateLimitLayer};
    /// use sluicegate_tower::key::Networks;
    ///
    /// let office = ClientIp::behind(["10.0.0.0/8"])?.within(Networks::new(["203.0.113.0/24"])?);
    /// let layer = RateLimitLayer::builder(Policy::gcra("admin", "10/s").on(&MemoryStore::new())?)
    ///     .deny(move |request| !office(request))
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn outside(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = self.clone();
        move |request| this.certain(request).is_some_and(|ip| !networks.contains(ip))
    }

    /// The client's address; `None` if it is unknown and replaced by a proxy's address.
    fn certain(&self, request: RequestView<'_>) -> Option<IpAddr> {
        let WalkEnd { ip, fault } = self.find(request);
        ip.filter(|_| fault.is_none()).map(|ip| self.grouping.address(ip))
    }
}

impl PeerIp {
    /// Whether a request comes from one of these networks; false if its peer is unknown.
    pub fn within(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = *self;
        move |request| this.address(request).is_some_and(|ip| networks.contains(ip))
    }

    /// Whether a request comes from none of these networks; false if its peer is unknown.
    pub fn outside(
        &self,
        networks: Networks,
    ) -> impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static + use<> {
        let this = *self;
        move |request| this.address(request).is_some_and(|ip| !networks.contains(ip))
    }
}

/// The address that an element is for; `None` if it has none, hides it, or violates the RFC.
pub(super) fn read(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element.trim_ascii();
    let mut node = None;
    loop {
        let (pair, after) = pair(rest)?;
        if let Some((name, value)) = pair
            && name.eq_ignore_ascii_case(b"for")
            && node.replace(value).is_some()
        {
            // With two of them, different readers may see different clients.
            return None;
        }
        match after.split_first() {
            None => break,
            Some((b';', after)) => rest = after.trim_ascii_start(),
            Some(_) => return None,
        }
    }
    let node = node?;
    // An IPv6 address is always in brackets here, and no address needs a backslash.
    let bare_ipv6 = !node.starts_with(b"[") && node.iter().filter(|&&byte| byte == b':').count() > 1;
    if bare_ipv6 { None } else { address::read(node) }
}

/// A name and its value.
type ForwardedPair<'a> = (&'a [u8], &'a [u8]);

/// The pair at the beginning, if any, and the text after it.
fn pair(text: &[u8]) -> Option<(Option<ForwardedPair<'_>>, &[u8])> {
    let (name, after) = token(text);
    if name.is_empty() {
        return Some((None, after));
    }
    let after = after.strip_prefix(b"=")?;
    let (value, after) = match after.strip_prefix(b"\"") {
        Some(inside) => quoted(inside)?,
        None => token(after),
    };
    (!value.is_empty()).then_some((Some((name, value)), after.trim_ascii_start()))
}

/// The longest token (RFC 9110, section 5.6.2) at the beginning, and the text after it.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    text.split_at(text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len()))
}

/// The inside of a quoted string, still escaped, and the rest after the closing quote.
fn quoted(inside: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut escaped = false;
    let end = inside.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((&inside[..end], &inside[end + 1..]))
}

/// The trusted proxies.
#[derive(Clone, Debug)]
pub(super) enum Proxies {
    Named(Arc<Networks>),
    Hops(usize),
    Anyone,
}

impl Proxies {
    /// Whether the peer's header is trusted.
    #[inline]
    pub(super) fn trust(&self, peer: Option<IpAddr>) -> bool {
        match self {
            Self::Named(networks) => peer.is_some_and(|ip| networks.contains(ip)),
            Self::Hops(_) | Self::Anyone => true,
        }
    }

    /// Whether the element at this index from the right is a proxy, so that the element before it is trusted.
    fn include(&self, place: usize, ip: IpAddr) -> bool {
        match self {
            Self::Named(networks) => networks.contains(ip),
            &Self::Hops(hops) => place + 1 < hops,
            Self::Anyone => true,
        }
    }
}

/// The end of a walk: the client, or with a fault the last trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalkEnd {
    pub(super) ip: Option<IpAddr>,
    pub(super) fault: Option<Fault>,
}

impl WalkEnd {
    pub(super) fn at(ip: Option<IpAddr>) -> Self {
        Self { ip, fault: None }
    }

    fn stopped(ip: Option<IpAddr>, fault: Fault) -> Self {
        Self { ip, fault: Some(fault) }
    }
}

/// Walks over the proxies to the first other address: the client.
pub(super) fn walk(
    peer: Option<IpAddr>,
    proxies: &Proxies,
    elements: FromTheRight<'_>,
    read: fn(&[u8]) -> Option<IpAddr>,
) -> WalkEnd {
    let mut hop = peer;
    let mut place = 0;
    for element in elements {
        let Ok(element) = element else { return WalkEnd::stopped(hop, Fault::TooLong) };
        // Never skipped: no trusted proxy wrote the elements to the left of it.
        let Some(ip) = read(element) else { return WalkEnd::stopped(hop, Fault::Unreadable) };
        if !proxies.include(place, ip) {
            return WalkEnd::at(Some(ip));
        }
        hop = Some(ip);
        place += 1;
    }
    match proxies {
        Proxies::Hops(_) => WalkEnd::stopped(peer, Fault::Missing),
        _ if place == 0 => WalkEnd::stopped(peer, Fault::Missing),
        // All elements are proxies: the leftmost is the client.
        _ => WalkEnd::at(hop),
    }
}

/// The address in a header with one value that the proxy sets.
pub(super) fn single(peer: Option<IpAddr>, mut lines: ValueIter<'_, HeaderValue>) -> WalkEnd {
    match (lines.next(), lines.next()) {
        (None, _) => WalkEnd::stopped(peer, Fault::Missing),
        (Some(_), Some(_)) => WalkEnd::stopped(peer, Fault::Repeated),
        (Some(line), None) => match address::read(line.as_bytes()) {
            Some(ip) => WalkEnd::at(Some(ip)),
            None => WalkEnd::stopped(peer, Fault::Unreadable),
        },
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn elements(lines: &[&str], quoted: bool) -> Vec<Result<String, TooLong>> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x", line.parse().unwrap());
        }
        let values = headers.get_all("x").iter();
        let elements = if quoted { FromTheRight::quoted(values) } else { FromTheRight::plain(values) };
        let text = |element: &[u8]| String::from_utf8(element.to_vec()).unwrap();
        // One more than allowed, because an iterator beyond its bounds would not end.
        elements.map(|element| element.map(text)).take(MAX_ELEMENTS + 1).collect()
    }

    fn list(lines: &[&str], quoted: bool) -> Vec<String> {
        elements(lines, quoted).into_iter().map(Result::unwrap).collect()
    }

    #[test]
    fn lines_are_one_list_and_no_element_is_skipped() {
        assert_eq!(list(&["a, b", "", "c,", ",d"], false), ["d", "", "", "c", "", " b", "a"]);
        assert_eq!(list(&[], false), [""; 0]);
    }

    #[test]
    fn commas_inside_quotes_do_not_separate() {
        assert_eq!(list(&[r#"a="1,2", b="x\",y\\",c"#], true), ["c", r#" b="x\",y\\""#, r#"a="1,2""#]);
    }

    #[test]
    fn a_quote_that_a_client_left_open_does_not_reach_what_a_proxy_appended() {
        assert_eq!(list(&[r#"for="x, for=192.0.2.1"#], true)[0], " for=192.0.2.1");
        assert_eq!(list(&[r#"for="x\, for="[::1]:80""#], true)[0], r#" for="[::1]:80""#);
    }

    #[test]
    fn nobody_looks_further_than_the_bounds() {
        let many = vec!["a"; 40].join(",");
        let walked = elements(&[&many], false);
        assert_eq!(
            (walked.len(), walked[31].clone(), walked[32].clone()),
            (33, Ok("a".into()), Err(TooLong))
        );
        let lines = vec!["a"; 40];
        assert_eq!(elements(&lines, true)[32], Err(TooLong));
        let long = format!("{},b", "a".repeat(MAX_BYTES));
        assert_eq!(elements(&[&long], false)[..2], [Ok("b".into()), Err(TooLong)]);
        let fits = format!("{},b", "a".repeat(MAX_BYTES - 2));
        assert_eq!(list(&[&fits], true).len(), 2);
    }

    #[test]
    fn an_element_is_for_the_address_it_names() {
        for (element, address) in [
            ("for=192.0.2.43", "192.0.2.43"),
            (" FOR=192.0.2.43 ; proto=https ", "192.0.2.43"),
            (r#"proto=https;for="192.0.2.43:4711""#, "192.0.2.43"),
            (r#"for="[2001:db8::17]:4711";by=_x"#, "2001:db8::17"),
            (r#"by="a,b;for=9.9.9.9;\"";for="[2001:db8::17]""#, "2001:db8::17"),
            (";;for=192.0.2.43;;", "192.0.2.43"),
            (r#"for="[::ffff:192.0.2.43]""#, "192.0.2.43"),
        ] {
            assert_eq!(read(element.as_bytes()), address.parse().ok(), "{element}");
        }
    }

    #[test]
    fn an_element_that_is_not_as_the_rfc_says_is_for_nobody() {
        for element in [
            "",
            ";;;",
            "for",
            "for=",
            "for==",
            "for==192.0.2.43",
            r#"for="""#,
            r#"for="192.0.2.43"#,
            r#"for=192.0.2.43""#,
            r#"for="192.0.2.43"x"#,
            r#"for="192.0.2\.43""#,
            r#"for="192.0.2.43\""#,
            "for=192.0.2.43:80",
            "for=[2001:db8::17]",
            r#"for="2001:db8::17""#,
            "for=unknown",
            "for=_hidden",
            "proto=https",
            "192.0.2.43",
            "for=192.0.2.43;for=192.0.2.43",
            "for=192.0.2.43;b c",
            "for=192.0.2.43;by=\"",
            "for =192.0.2.43",
            "for=1.1.1.1, for=192.0.2.43",
        ] {
            assert_eq!(read(element.as_bytes()), None, "{element}");
        }
    }
}
