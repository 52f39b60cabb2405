//! Text that clients and operators write: bounded, decoded, checked.
//!
//! Cutting text off could make two texts one key. So text that is too long is not cut off, but
//! shares one bucket with all other text that is too long.

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
    name.parse().map_err(|_| {
        let shown: String = name.chars().take(64).collect();
        ConfigError::new(
            ConfigErrorKind::Layer,
            format!(
                "{shown:?} cannot be the name of a header: use letters, digits and '-', like \"x-api-key\""
            ),
        )
    })
}
