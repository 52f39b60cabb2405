//! A request as the service would have seen it, made of a line.

use std::net::SocketAddr;

use http::{HeaderValue, Method, Request, Uri};
use sluicegate_tower::key::PeerAddr;

use crate::format::entry::Entry;

/// The head of a request, made anew for each line in the same place.
#[derive(Debug, Default)]
pub(crate) struct Head(Request<()>);

impl Head {
    /// The request of a line, or why no server would have taken it.
    pub(crate) fn of(&mut self, entry: &Entry<'_>) -> Result<&Request<()>, &'static str> {
        *self.0.method_mut() =
            Method::from_bytes(entry.method.as_bytes()).map_err(|_| "its method is none of HTTP")?;
        let target = match &entry.query {
            Some(query) if !entry.target.contains('?') => Uri::try_from(format!("{}?{query}", entry.target)),
            _ => Uri::try_from(&*entry.target),
        };
        *self.0.uri_mut() = target.map_err(|_| "its URL is none")?;
        let headers = self.0.headers_mut();
        headers.clear();
        for (name, value) in &entry.headers {
            if let Ok(value) =
                HeaderValue::from_str(value).or_else(|_| HeaderValue::from_bytes(value.as_bytes()))
            {
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
