//! Reads fields of a form, `application/x-www-form-urlencoded`: [`read_form`].

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memchr;

use crate::json::{FieldPath, FieldValue, read_object, whole_number};

/// Whether a body is a form by its `Content-Type`.
pub(super) fn is_form(head: &HeaderMap) -> bool {
    let content_type =
        head.get(CONTENT_TYPE).and_then(|value| value.as_bytes().split(|byte| *byte == b';').next());
    content_type
        .is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded"))
}

/// The values of these fields, in their order, by their whole names. A repeated name has no text, because of two values one application
/// takes the first and another the last.
///
/// An application may read a body as JSON whatever its type, so one that may be JSON is read as such, unless it has one of the fields as a form
/// too: then it cannot be read, because the client would choose which of two values counts.
pub(super) fn read_form(text: &[u8], paths: &[FieldPath]) -> Option<Vec<Option<FieldValue>>> {
    let mut found = vec![None; paths.len()];
    for (name, value) in form_urlencoded::parse(text) {
        for (_, field) in paths.iter().zip(&mut found).filter(|(path, _)| path.is(&name)) {
            let text = field.is_none().then(|| value.to_string());
            *field = Some(FieldValue { number: text.as_deref().and_then(whole_number), text });
        }
    }
    match memchr(b'{', text) {
        None => Some(found),
        Some(_) if found.iter().all(Option::is_none) => read_object(text, paths),
        Some(_) => None,
    }
}
