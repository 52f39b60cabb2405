//! Text that clients and operators write: bounded, decoded, checked.
//!
//! Cutting text off could make two texts one key. So overlong text is not cut off, but
//! shares one bucket with all other overlong text.

use std::borrow::Cow;

use http::header::HeaderName;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, Key};

/// The longest value with a bucket of its own: all longer values share one.
pub(super) const MAX_LENGTH: usize = 8 * 1024;

/// Makes a key of text from a client. It is never cut off, because then two texts could collide.
pub(crate) fn bounded(value: &[u8]) -> Key {
    if value.len() > MAX_LENGTH { Key::shared().and("oversize") } else { value.into() }
}

/// The value of a hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The name of a header, checked.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    let problem = "cannot be the name of a header: use letters, digits and '-', like \"x-api-key\"";
    name.parse().map_err(|_| config_error(format!("{} {problem}", shown(name))))
}

/// A setting that a layer cannot have.
pub(crate) fn config_error(problem: impl Into<Cow<'static, str>>) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Layer, problem)
}

/// The error for an invalid text in a configuration.
pub(crate) fn unreadable(text: &str, problem: &str) -> ConfigError {
    let problem = format!("{} {problem}", shown(text));
    ConfigError::new(ConfigErrorKind::Unreadable, problem).at(0..text.len())
}

/// The beginning of a text in quotes.
pub(crate) fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(64).collect::<String>())
}

/// Decodes the `%` escapes of a text, except escapes of bytes to be kept. A `%` that begins no escape becomes `lone`.
pub(crate) fn decode_except(text: &str, into: &mut Vec<u8>, lone: &[u8], kept: impl Fn(u8) -> bool) {
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let escaped = match after {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match escaped {
            None if *first == b'%' => into.extend(lone),
            None => into.push(*first),
            Some(byte) => {
                match kept(byte) {
                    true => into.extend([b'%', after[0].to_ascii_uppercase(), after[1].to_ascii_uppercase()]),
                    false => into.push(byte),
                }
                rest = &after[2..];
            }
        }
    }
}
