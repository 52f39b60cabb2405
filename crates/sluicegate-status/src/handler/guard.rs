//! Access to the page: [`Guard`].
//!
//! There are two kinds of pages: on one, all visitors have names and may act; on the other, visitors have no names
//! and may only read numbers.

use http::Version;
use http::header::{FORWARDED, VIA};
use sluicegate_tower::PeerIp;
use sluicegate_tower::key::RequestView;

/// Decides which visitors may see the page, and which of them may act on it.
pub(super) enum Guard {
    /// Only visitors for whom this returns a name; they may act.
    Who(Box<Who>),
    /// Only connections from this machine that did not come through a proxy.
    ThisMachine,
    /// Everyone; no visitor may act, and keys are digests.
    ReadOnly,
}

type Who = dyn Fn(RequestView<'_>) -> Option<String> + Send + Sync;

/// A visitor that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Viewer {
    /// May act, and is named in events.
    Operator(String),
    /// May only read numbers.
    Reader,
}

impl Viewer {
    /// The name of a visitor that may act.
    pub(super) fn operator(&self) -> Option<&str> {
        match self {
            Self::Operator(name) => Some(name),
            Self::Reader => None,
        }
    }
}

impl Guard {
    pub(super) fn visitor(&self, request: RequestView<'_>) -> Option<Viewer> {
        match self {
            Self::Who(who) => who(request).map(Viewer::Operator),
            Self::ThisMachine => {
                let is_here = PeerIp::new().address(request).is_some_and(|ip| ip.is_loopback());
                (is_here && !is_forwarded(request)).then(|| Viewer::Operator("local".to_owned()))
            }
            Self::ReadOnly => Some(Viewer::Reader),
        }
    }
}

/// Whether a proxy has probably sent it: proxies add fields, and some use HTTP/1.0, which no browser does.
fn is_forwarded(request: RequestView<'_>) -> bool {
    const FIELDS: [&str; 10] = [
        "cf-connecting-ip",
        "client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "true-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-real-ip",
    ];
    request.version == Version::HTTP_10
        || request.headers.keys().any(|name| {
            name == FORWARDED
                || name == VIA
                || name.as_str().starts_with("x-forwarded-")
                || FIELDS.contains(&name.as_str())
        })
}
