//! Fields that a response has already, and that ours are added to.

use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

/// A list field of the service and ours as one line. A quota that the service names is not named again.
pub(crate) fn join<'a>(theirs: impl Iterator<Item = &'a HeaderValue>, ours: &HeaderValue) -> HeaderValue {
    let theirs = one_line(theirs);
    let mut line = theirs.clone();
    // Our own names contain neither commas nor quotes.
    for item in ours.to_str().unwrap_or_default().split(", ") {
        if !theirs.contains(name(item)) {
            add(&mut line, item);
        }
    }
    HeaderValue::from_str(&line).unwrap_or_else(|_| ours.clone())
}

/// A list field with ours in it as it was, and ours as it is now: what is not ours stays in front of it.
pub(crate) fn renew<'a>(both: impl Iterator<Item = &'a HeaderValue>, ours: &HeaderValue) -> HeaderValue {
    let both = one_line(both);
    let text = ours.to_str().unwrap_or_default();
    let is_ours = |member: &str| text.split(", ").any(|item| name(item) == name(member));
    let mut line = String::new();
    for member in members(&both).filter(|member| !member.is_empty() && !is_ours(member)) {
        add(&mut line, member);
    }
    add(&mut line, text);
    HeaderValue::from_str(&line).unwrap_or_else(|_| ours.clone())
}

/// The members of a list, whose strings may contain commas.
fn members(line: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let separates = move |c: char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        c == ',' && !is_quoted
    };
    line.split(separates).map(str::trim)
}

/// What stands before the parameters. Our own names contain no semicolon, so one that does is cut off and is not ours.
fn name(member: &str) -> &str {
    member.split(';').next().unwrap_or(member).trim_end()
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
