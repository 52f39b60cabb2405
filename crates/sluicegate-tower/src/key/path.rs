//! The path of a request in a normal form ([`RequestPath`]), its route and its method.

use http::Method;

use super::KeyKind;
#[cfg(feature = "axum")]
use super::MissingKey;
use crate::key::text::{bounded, decode_except};
use crate::key::{Extraction, KeyExtractor, RequestView};

/// One bucket per path, for services without a router that names its routes. If there is one, use `Route`.
///
/// A server may accept many spellings of one path, and each spelling that is not recognised here would have a bucket of its
/// own. So a path is put into a normal form first:
///
/// | spelling | normal form |
/// |---|---|
/// | `//login`, `/./login`, `/a/../login` | `/login`: empty and dot segments are resolved |
/// | `/%6cogin`, `/%7Eada` | `/login`, `/~ada`: unreserved characters are decoded |
/// | `/a%2fb` | `/a%2Fb`: an encoded slash stays encoded, with its digits in upper case |
/// | `/login;x=1` | `/login`: parameters of segments are cut off |
/// | `/login/` | `/login`, unless [`keep_trailing_slash`](Self::keep_trailing_slash) |
/// | `/LOGIN` | `/LOGIN`, unless [`lowercase`](Self::lowercase) |
/// | `/login?x`, `http://host/login` | `/login`: query, scheme and host are not part of it |
///
/// Clients choose paths, and so can have any number of buckets: combine it with a limit by a key that they cannot choose. A path may
/// hold a token, for example in a link that resets a password, so it counts as a [secret](crate::key::KeyKind::Secret).
///
/// ```
/// use http::Request;
/// use sluicegate_tower::KeyExtractor;
/// use sluicegate_tower::key::RequestPath;
///
/// let key = |path: &str| {
///     let request = Request::get(path).body(()).expect("a request");
///     RequestPath::new().extract((&request).into()).now().expect("it is known")
/// };
/// assert_eq!(key("/%6cogin;x=1?next=/"), key("/login"));
/// assert_ne!(key("/a%2fb"), key("/a/b"));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestPath {
    lowercase: bool,
    keep_trailing_slash: bool,
}

impl RequestPath {
    /// Paths in their normal form.
    pub const fn new() -> Self {
        Self { lowercase: false, keep_trailing_slash: false }
    }

    /// Ignores the case of ASCII letters, for servers that do so. Default: case matters.
    #[must_use]
    pub const fn lowercase(mut self) -> Self {
        self.lowercase = true;
        self
    }

    /// Distinguishes `/login/` from `/login`, for servers that do so. Default: they are equal.
    #[must_use]
    pub const fn keep_trailing_slash(mut self) -> Self {
        self.keep_trailing_slash = true;
        self
    }

    /// The path in its normal form; normalising twice changes nothing.
    fn normal(self, path: &str) -> Vec<u8> {
        let Some(path) = path.strip_prefix('/') else { return path.into() };
        let mut normal = Vec::with_capacity(path.len() + 1);
        for segment in path.split('/') {
            let begin = normal.len();
            normal.push(b'/');
            // A `%` that begins no escape must not seem to begin one after the following text is decoded.
            let segment = segment.split(';').next().unwrap_or_default();
            decode_except(segment, &mut normal, b"%25", |byte| !is_unreserved(byte));
            match &normal[begin + 1..] {
                b"" | b"." => normal.truncate(begin),
                b".." => {
                    normal.truncate(begin);
                    let parent = normal.iter().rposition(|&byte| byte == b'/');
                    normal.truncate(parent.unwrap_or(0));
                }
                _ => {}
            }
        }
        if normal.is_empty() || (self.keep_trailing_slash && path.ends_with('/')) {
            normal.push(b'/');
        }
        if self.lowercase {
            normal.make_ascii_lowercase();
        }
        normal
    }
}

impl KeyExtractor for RequestPath {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        Extraction::found(bounded(&self.normal(request.path())))
    }
}

/// Whether an escape of this byte means the same as the byte (RFC 3986, section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// One bucket per route of an axum router, such as `/users/{id}`: its name, not the path that the client wrote.
///
/// Prefer it to keys by path, because a route has only one spelling: `//login`, `/%6cogin` and `/LOGIN` match the
/// route or none. Requests without a route, which get 404, have no key.
///
/// The router sets the route, so put the limit on the router or on a route, not around the router.
///
/// ```
/// use sluicegate_tower::PeerIp;
/// use sluicegate_tower::key::Route;
///
/// // Each client has a bucket for every route.
/// let key = (Route, PeerIp::new());
/// # fn check(_: impl sluicegate_tower::KeyExtractor) {}
/// # check(key);
/// ```
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing to set")]
pub struct Route;

#[cfg(feature = "axum")]
impl KeyExtractor for Route {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match request.route() {
            Some(route) => Extraction::found(route),
            None => {
                let reason = "the request has no route: put the limit on the router, not around it";
                MissingKey::new(reason).telling("no route is known for this request").into()
            }
        }
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Name
    }
}

/// One bucket per method. `HEAD` counts as `GET`, because it costs as much; all methods that HTTP does not define
/// count as one.
///
/// Alone, all clients share its buckets; combine it: `(PeerIp::new(), RequestMethod)`.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing to set")]
pub struct RequestMethod;

impl KeyExtractor for RequestMethod {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        Extraction::found(match *request.method {
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::DELETE => "DELETE",
            Method::PATCH => "PATCH",
            Method::OPTIONS => "OPTIONS",
            Method::CONNECT => "CONNECT",
            Method::TRACE => "TRACE",
            _ => "other",
        })
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Name
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> String {
        String::from_utf8(RequestPath::new().normal(path)).unwrap()
    }

    #[test]
    fn all_spellings_of_a_path_have_one_normal_form() {
        for spelling in [
            "/login",
            "//login",
            "/./login",
            "/login/",
            "/login//",
            "/login;x=1",
            "/%6cogin",
            "/%6Cogin",
            "/%2e/login",
            "/a/../login",
            "/a/b/%2E%2e/../login/.",
            "/../login",
            "/;x/login",
            "/.;x/login;",
            "/x/..;/login",
        ] {
            assert_eq!(normal(spelling), "/login", "{spelling}");
        }
        for (path, form) in [
            ("/", "/"),
            ("//", "/"),
            ("/..", "/"),
            ("*", "*"),
            ("", ""),
            ("/%", "/%25"),
            ("/%%32e", "/%252e"),
        ] {
            assert_eq!(normal(path), form, "{path}");
        }
        assert_eq!(normal("/login%2f"), "/login%2F", "an encoded slash is no slash");
        assert_eq!(normal("/a%3b"), "/a%3B", "an encoded semicolon begins no parameter");
    }

    #[test]
    fn case_and_trailing_slash_are_for_the_server_to_say() {
        assert_eq!(normal("/LOGIN"), "/LOGIN");
        assert_eq!(RequestPath::new().lowercase().normal("/LOGIN/%C3"), b"/login/%c3");
        let strict = RequestPath::new().keep_trailing_slash();
        assert_eq!([strict.normal("/login/"), strict.normal("/login")], [&b"/login/"[..], b"/login"]);
        assert_eq!(strict.normal("/"), b"/");
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own_normal_form(path in "[/.;%a-c235eEfF]{0,24}", lowercase: bool, keep_trailing_slash: bool) {
            let form = RequestPath { lowercase, keep_trailing_slash };
            let once = form.normal(&path);
            prop_assert_eq!(&form.normal(std::str::from_utf8(&once).unwrap()), &once);
        }
    }
}
