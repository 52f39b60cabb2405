//! The frames and sizes of bodies that are passed on.

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

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
