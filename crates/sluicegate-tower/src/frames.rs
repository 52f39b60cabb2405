//! Bodies and connections that are passed on: frames, sizes, and requests for an upgrade.

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, UPGRADE};
use http::{Method, Request, Version};
use http_body::{Frame, SizeHint};

/// Whether a request asks to go on with another protocol: a `CONNECT`, or a GET of HTTP/1.1 whose `Connection` names `Upgrade`. In any other
/// request the field `Upgrade` means nothing.
pub(crate) fn upgrades<B>(request: &Request<B>) -> bool {
    let mut options = request
        .headers()
        .get_all(CONNECTION)
        .iter()
        .flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    request.method() == Method::CONNECT
        || request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && request.headers().contains_key(UPGRADE)
            && options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// The frame with its data as [`Bytes`]; data of another type is copied.
pub(crate) fn as_bytes<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

/// The size of a body that has this many bytes more to give than the one inside.
pub(crate) fn longer_by(bytes: u64, inside: &SizeHint) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(inside.lower().saturating_add(bytes));
    if let Some(upper) = inside.upper() {
        hint.set_upper(upper.saturating_add(bytes));
    }
    hint
}
