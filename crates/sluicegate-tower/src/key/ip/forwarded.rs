//! An element of `Forwarded` (RFC 7239, section 4).
//!
//! The parser is strict: an element that violates the RFC names no client, because two readers could
//! read it differently.

use std::net::IpAddr;

use super::address;

/// The address that an element is for; `None` if it has none, hides it, or violates the RFC.
pub(super) fn read(element: &[u8]) -> Option<IpAddr> {
    let mut rest = element.trim_ascii();
    let mut node = None;
    loop {
        let (pair, after) = pair(rest)?;
        if let Some((name, value)) = pair
            && name.eq_ignore_ascii_case(b"for")
            && node.replace(value).is_some()
        {
            // With two of them, different readers may see different clients.
            return None;
        }
        match after.split_first() {
            None => break,
            Some((b';', after)) => rest = after.trim_ascii_start(),
            Some(_) => return None,
        }
    }
    let node = node?;
    // An IPv6 address is always in brackets here, and no address needs a backslash.
    let bare_ipv6 = !node.starts_with(b"[") && node.iter().filter(|&&byte| byte == b':').count() > 1;
    if bare_ipv6 { None } else { address::read(node) }
}

/// A name and its value.
type ForwardedPair<'a> = (&'a [u8], &'a [u8]);

/// The pair at the beginning, if any, and the text after it.
fn pair(text: &[u8]) -> Option<(Option<ForwardedPair<'_>>, &[u8])> {
    let (name, after) = token(text);
    if name.is_empty() {
        return Some((None, after));
    }
    let after = after.strip_prefix(b"=")?;
    let (value, after) = match after.strip_prefix(b"\"") {
        Some(inside) => quoted(inside)?,
        None => token(after),
    };
    (!value.is_empty()).then_some((Some((name, value)), after.trim_ascii_start()))
}

/// The longest token (RFC 9110, section 5.6.2) at the beginning, and the text after it.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    text.split_at(text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len()))
}

/// The inside of a quoted string, still escaped, and the rest after the closing quote.
fn quoted(inside: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut escaped = false;
    let end = inside.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((&inside[..end], &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_for_the_address_it_names() {
        for (element, address) in [
            ("for=192.0.2.43", "192.0.2.43"),
            (" FOR=192.0.2.43 ; proto=https ", "192.0.2.43"),
            (r#"proto=https;for="192.0.2.43:4711""#, "192.0.2.43"),
            (r#"for="[2001:db8::17]:4711";by=_x"#, "2001:db8::17"),
            (r#"by="a,b;for=9.9.9.9;\"";for="[2001:db8::17]""#, "2001:db8::17"),
            (";;for=192.0.2.43;;", "192.0.2.43"),
            (r#"for="[::ffff:192.0.2.43]""#, "192.0.2.43"),
        ] {
            assert_eq!(read(element.as_bytes()), address.parse().ok(), "{element}");
        }
    }

    #[test]
    fn an_element_that_is_not_as_the_rfc_says_is_for_nobody() {
        for element in [
            "",
            ";;;",
            "for",
            "for=",
            "for==",
            "for==192.0.2.43",
            r#"for="""#,
            r#"for="192.0.2.43"#,
            r#"for=192.0.2.43""#,
            r#"for="192.0.2.43"x"#,
            r#"for="192.0.2\.43""#,
            r#"for="192.0.2.43\""#,
            "for=192.0.2.43:80",
            "for=[2001:db8::17]",
            r#"for="2001:db8::17""#,
            "for=unknown",
            "for=_hidden",
            "proto=https",
            "192.0.2.43",
            "for=192.0.2.43;for=192.0.2.43",
            "for=192.0.2.43;b c",
            "for=192.0.2.43;by=\"",
            "for =192.0.2.43",
            "for=1.1.1.1, for=192.0.2.43",
        ] {
            assert_eq!(read(element.as_bytes()), None, "{element}");
        }
    }
}
