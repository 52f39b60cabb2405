//! Fields that a response has already, and that ours are added to.

use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

/// A list field of the service and ours as one line. A quota that the service names is not named again.
pub(crate) fn join<'a>(theirs: impl Iterator<Item = &'a HeaderValue>, ours: &HeaderValue) -> HeaderValue {
    let theirs = one_line(theirs);
    let mut line = theirs.clone();
    // Our own names contain neither commas nor quotes.
    for item in ours.to_str().unwrap_or_default().split(", ") {
        let name = item.split(';').next().unwrap_or(item);
        if !theirs.contains(name) {
            add(&mut line, item);
        }
    }
    HeaderValue::from_str(&line).unwrap_or_else(|_| ours.clone())
}

/// Lets scripts of other origins read those of these fields that the response has, besides what they may read already.
pub(crate) fn expose(headers: &mut HeaderMap, names: &[HeaderName]) {
    let mut line = one_line(headers.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter());
    for name in names.iter().filter(|name| headers.contains_key(*name)) {
        let is_named = line.split(',').any(|named| named.trim().eq_ignore_ascii_case(name.as_str()));
        if !is_named {
            add(&mut line, name.as_str());
        }
    }
    if let Ok(line) = HeaderValue::from_str(&line)
        && !line.is_empty()
    {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, line);
    }
}

/// All lines of a list field as one; those that are not text are left out.
fn one_line<'a>(lines: impl Iterator<Item = &'a HeaderValue>) -> String {
    let mut whole = String::new();
    for line in lines.filter_map(|line| line.to_str().ok()).filter(|line| !line.trim().is_empty()) {
        add(&mut whole, line.trim());
    }
    whole
}

fn add(line: &mut String, item: &str) {
    if !line.is_empty() {
        line.push_str(", ");
    }
    line.push_str(item);
}
