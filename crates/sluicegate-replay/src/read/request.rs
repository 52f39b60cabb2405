//! A request as the service would have seen it, made from a line.
//!
//! Nothing is copied: method, URL and header fields point into the batch that the line was read in, and the map of header fields and the
//! extensions are reused after they are emptied. A new request for each line would take several allocations.

use std::borrow::Cow;
use std::mem;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri};
use sluicegate_tower::key::PeerAddr;

use crate::read::format::entry::LogEntry;

/// The head of a request, made anew for each line in the same place.
#[derive(Debug, Default)]
pub(super) struct Head(Request<()>);

impl Head {
    /// The request of a line, or the reason why no server would have taken it. The line stands in these bytes, which the request shares,
    /// and its entry is used up.
    ///
    /// # Errors
    /// When HTTP does not have the method or the URL. A header field with bytes that no field may have is left out: a server would have
    /// refused the request, and a log that escapes the bytes in another way says nothing about it.
    pub(super) fn of(
        &mut self,
        entry: &mut LogEntry<'_>,
        bytes: &Bytes,
    ) -> Result<&Request<()>, &'static str> {
        let shared = |text: Cow<'_, str>| match text {
            Cow::Borrowed(text) => bytes.slice_ref(text.as_bytes()),
            Cow::Owned(text) => text.into(),
        };
        *self.0.method_mut() =
            Method::from_bytes(entry.method.as_bytes()).map_err(|_| "its method is none of HTTP")?;
        let target = match &entry.query {
            Some(query) if !entry.target.contains('?') => format!("{}?{query}", entry.target).into(),
            _ => shared(mem::take(&mut entry.target)),
        };
        *self.0.uri_mut() = Uri::from_maybe_shared(target).map_err(|_| "its URL is none")?;
        let headers = self.0.headers_mut();
        headers.clear();
        for (name, value) in entry.headers.drain(..) {
            if let Ok(value) = HeaderValue::from_maybe_shared(shared(value)) {
                headers.append(name, value);
            }
        }
        let extensions = self.0.extensions_mut();
        match (entry.peer, extensions.get_mut::<PeerAddr>()) {
            (Some(ip), Some(known)) => known.0.set_ip(ip),
            (Some(ip), None) => _ = extensions.insert(PeerAddr(SocketAddr::new(ip, 0))),
            (None, _) => extensions.clear(),
        }
        Ok(&self.0)
    }
}
