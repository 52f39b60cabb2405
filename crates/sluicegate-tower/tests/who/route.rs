//! Keys by what a request is for.

use http::{Method, Uri};
use sluicegate_core::Key;
use sluicegate_tower::{RequestMethod, RequestPath};

use crate::support::{anonymous, found};

fn path(uri: &'static str) -> Key {
    let mut parts = anonymous(&[]);
    parts.uri = Uri::from_static(uri);
    found(&RequestPath::new(), &parts).unwrap()
}

#[test]
fn b50_and_b51_a_path_is_one_bucket_however_it_is_spelled() {
    for spelling in [
        "/login",
        "//login",
        "/./login",
        "/login/",
        "/login;x=1",
        "/%6cogin",
        "/login?x",
        "http://host/login",
        "/a/../login",
    ] {
        assert_eq!(path(spelling), "/login".into(), "{spelling}");
    }
    // Another resource, or none: the server would have to decode the slash to take it for the same.
    assert_eq!(path("/login%2f"), "/login%2F".into());
    assert_eq!(path("/LOGIN"), "/LOGIN".into());
    assert_eq!(path("*"), "*".into());
}

#[test]
fn b52_head_counts_as_get_and_unknown_methods_as_one() {
    let key = |method: &[u8]| {
        let mut parts = anonymous(&[]);
        parts.method = Method::from_bytes(method).unwrap();
        found(&RequestMethod, &parts).unwrap()
    };
    assert_eq!(key(b"HEAD"), key(b"GET"));
    assert_eq!(key(b"PROPFIND"), key(b"X-17"));
    // Methods are case-sensitive, so this is another one.
    assert_eq!(key(b"get"), key(b"X-17"));
    let all = [&b"GET"[..], b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"CONNECT", b"TRACE", b"X-17"];
    let keys: std::collections::HashSet<_> = all.map(key).into();
    assert_eq!(keys.len(), all.len());
}
