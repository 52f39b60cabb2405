//! A request that a caller describes for the rules: [`DescribedRequest`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;

use http::header::HOST;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_rules::Descriptor;
use sluicegate_tower::key::{MissingKey, NoPeer, PeerAddr};

use crate::http::object::Object;

/// A request as the caller received it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Request")]
pub(super) struct DescribedRequest {
    /// The method. Default: GET.
    method: Option<String>,
    /// The path with its query, or a URL.
    path: String,
    /// The host. Default: that of the URL or of the header field `host`.
    host: Option<String>,
    /// The header fields.
    #[serde(default)]
    headers: BTreeMap<String, Values>,
    /// The address of the connection's peer, with or without its port. Without it, a rule whose key is an address answers 400.
    peer: Option<String>,
}

/// One value, or several fields of the same name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a header field is a string or a list of strings")]
#[schemars(inline)]
enum Values {
    One(String),
    Several(Vec<String>),
}

/// A descriptor, as Envoy's own server reads it at `/json`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Descriptor")]
pub(super) struct CallDescriptor {
    /// The entries, in the order of the proxy.
    #[schemars(length(min = 1))]
    entries: Vec<Object<CallEntry>>,
    /// The number of hits, by which costs are multiplied. Default: 1.
    #[schemars(range(min = 1))]
    hits_addend: Option<NonZeroU64>,
}

/// An entry of a descriptor.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Entry")]
struct CallEntry {
    /// The key of the entry.
    key: String,
    /// The value. Default: an empty one.
    #[serde(default)]
    value: String,
}

impl CallDescriptor {
    /// The descriptor as the rules see it.
    pub(super) fn descriptor(&self) -> Descriptor {
        let entries = self.entries.iter().map(|Object(CallEntry { key, value })| (&**key, &**value));
        Descriptor::new(entries).hits(self.hits_addend.map_or(1, NonZeroU64::get))
    }
}

impl DescribedRequest {
    /// The request as the rules see it.
    pub(super) fn request(&self) -> Result<Request<()>, String> {
        let mut request = Request::new(());
        if let Some(method) = &self.method {
            *request.method_mut() =
                Method::from_bytes(method.as_bytes()).map_err(|_| format!("{method:?} is not a method"))?;
        }
        *request.uri_mut() =
            self.path.parse::<Uri>().map_err(|_| format!("{:?} is not a path or a URL", self.path))?;
        for (name, values) in &self.headers {
            let parsed: HeaderName =
                name.parse().map_err(|_| format!("{name:?} is not the name of a header field"))?;
            let values = match values {
                Values::One(value) => std::slice::from_ref(value),
                Values::Several(values) => &**values,
            };
            for value in values {
                // Not shown: it may be a secret.
                let value = HeaderValue::from_bytes(value.as_bytes())
                    .map_err(|_| format!("the header field {name:?} has an invalid value"))?;
                request.headers_mut().append(parsed.clone(), value);
            }
        }
        if let Some(host) = &self.host {
            let value = host.parse().map_err(|_| format!("{host:?} is not a host"))?;
            request.headers_mut().insert(HOST, value);
        }
        match &self.peer {
            Some(peer) => _ = request.extensions_mut().insert(PeerAddr(address(peer)?)),
            None => {
                let missing = MissingKey::new("the described request has no \"peer\", which its rules read");
                request.extensions_mut().insert(NoPeer(missing.rejecting(StatusCode::BAD_REQUEST)));
            }
        }
        Ok(request)
    }
}

/// An address, with or without a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let with_port = || text.parse().ok();
    let alone = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    with_port().or_else(alone).ok_or_else(|| format!("peer {text:?} is not an address"))
}
