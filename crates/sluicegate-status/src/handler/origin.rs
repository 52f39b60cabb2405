//! The hosts that the page answers for, and the origins that its forms come from.
//!
//! Both protect against foreign sites in an operator's browser: a cookie or an address lets the operator in, whichever site sends the request.
//!
//! - The *host* keeps out a foreign name that is made to resolve to this server (DNS rebinding): the browser would take the page for one of
//!   that name's origin, and its scripts could read everything.
//! - The *origin* keeps out forms that a foreign page sends here. `Sec-Fetch-Site` shows it best, because scripts cannot write it and it
//!   distinguishes hosts under one domain. Browsers leave it out without TLS; then `Origin` is compared.
//!
//! A field that occurs twice is rejected, because it is unknown which one a proxy has read.

use http::Version;
use http::header::{FORWARDED, HOST, HeaderMap, ORIGIN, VIA};
use http::uri::{Authority, Uri};
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_tower::PeerIp;
use sluicegate_tower::key::RequestView;

/// The hosts that requests may name. A page of another name that resolves to this server can read nothing.
#[derive(Default)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// Adds a host, with or without a port; the port does not count.
    pub(super) fn add(&mut self, host: &str) -> Result<(), ConfigError> {
        let authority: Authority =
            host.parse().ok().filter(|authority: &Authority| !authority.as_str().contains('@')).ok_or_else(
                || mistake(format!("{host:?} is not a host: write \"ops.example.org\" or \"127.0.0.1\"")),
            )?;
        self.0.push(authority.host().to_ascii_lowercase());
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request names one of them, and no other. An empty list admits all hosts.
    pub(super) fn admit(&self, request: RequestView<'_>) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut lines = request.headers.get_all(HOST).iter();
        let named = match (lines.next(), lines.next()) {
            (Some(line), None) => line.to_str().ok().and_then(|line| line.parse().ok()),
            (None, _) => request.uri.authority().cloned(),
            (Some(_), Some(_)) => None,
        };
        named
            .is_some_and(|named: Authority| self.0.iter().any(|host| named.host().eq_ignore_ascii_case(host)))
    }
}

/// An origin as browsers send it.
#[derive(PartialEq, Eq)]
pub(super) struct Origin(String);

impl Origin {
    /// Reads `https://ops.example.org`.
    pub(super) fn read(text: &str) -> Result<(Self, Authority), ConfigError> {
        let uri: Option<Uri> = text.parse().ok();
        let whole = uri.and_then(|uri| {
            let parts = uri.into_parts();
            let scheme = parts.scheme.filter(|scheme| matches!(scheme.as_str(), "http" | "https"))?;
            let path = parts.path_and_query.map_or(String::new(), |path| path.as_str().to_owned());
            let authority = parts.authority.filter(|authority| !authority.as_str().contains('@'))?;
            (path.is_empty() || path == "/").then_some((scheme, authority))
        });
        let (scheme, authority) = whole.ok_or_else(|| {
            mistake(format!("{text:?} is not an origin: write \"https://ops.example.org\", without a path"))
        })?;
        let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
        Ok((Self(origin), authority))
    }

    fn is(&self, text: &str) -> bool {
        self.0.eq_ignore_ascii_case(text)
    }
}

/// Whether the page itself sent a form: the browser says so, or names its origin. A client that sends neither is not a browser that can be
/// trusted to keep foreign pages out.
pub(super) fn is_own(headers: &HeaderMap, origins: &[Origin]) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) => site == "same-origin",
        (Some(_), Some(_)) => false,
        (None, _) => {
            let mut lines = headers.get_all(ORIGIN).iter();
            let named = lines.next().and_then(|line| line.to_str().ok());
            lines.next().is_none() && named.is_some_and(|named| origins.iter().any(|origin| origin.is(named)))
        }
    }
}

fn mistake(problem: String) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Layer, problem)
}

// Access to the page: [`Guard`].
//
// There are two kinds of pages: on one, all visitors have names and may act; on the other, visitors have no names
// and may only read numbers.

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

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_form_is_own_if_the_browser_says_so_or_names_an_origin_of_ours() {
        let (ours, _) = Origin::read("https://Ops.example.org/").unwrap();
        let ours = [ours];
        let own = |fields: &[(&'static str, &'static str)]| {
            let request =
                fields.iter().fold(Request::post("/"), |request, field| request.header(field.0, field.1));
            is_own(request.body(()).unwrap().headers(), &ours)
        };
        assert!(own(&[("sec-fetch-site", "same-origin")]));
        assert!(own(&[("origin", "https://ops.example.org")]));
        for foreign in [
            &[][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "cross-site"), ("origin", "https://ops.example.org")],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[("origin", "null")],
            &[("origin", "http://ops.example.org")],
            &[("origin", "https://ops.example.org:8443")],
            &[("origin", "https://ops.example.org.evil.example")],
            &[("origin", "https://ops.example.org"), ("origin", "https://evil.example")],
        ] {
            assert!(!own(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn only_hosts_of_the_list_are_answered_for() {
        let mut hosts = Hosts::default();
        hosts.add("ops.example.org").unwrap();
        hosts.add("[::1]:3000").unwrap();
        let admits = |uri: &'static str, fields: &[&'static str]| {
            let request =
                fields.iter().fold(Request::get(uri), |request, host| request.header("host", *host));
            hosts.admit((&request.body(()).unwrap()).into())
        };
        assert!(admits("/", &["OPS.example.org"]) && admits("/", &["ops.example.org:8443"]));
        assert!(admits("/", &["[::1]:9"]) && admits("https://ops.example.org/", &[]));
        assert!(
            !admits("/", &[])
                && !admits("/", &["evil.example"])
                && !admits("/", &["ops.example.org@evil.example"])
        );
        assert!(!admits("/", &["ops.example.org", "evil.example"]));
        assert!(!admits("https://ops.example.org/", &["evil.example"]));
        assert!(Hosts::default().admit((&Request::new(())).into()));
    }

    #[test]
    fn an_origin_or_host_that_is_none_is_named() {
        for text in [
            "ops.example.org",
            "https://ops.example.org/status",
            "ftp://ops.example.org",
            "https://a@b.example",
            "",
        ] {
            let error = Origin::read(text).err().unwrap().to_string();
            assert!(error.starts_with(&format!("{text:?} is not an origin")), "{error}");
        }
        for text in ["", "a b", "https://ops.example.org", "ada@ops.example.org"] {
            let error = Hosts::default().add(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a host")), "{error}");
        }
    }
}
