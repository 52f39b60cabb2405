//! Names of policies and quotas.

use crate::error::{ConfigError, ConfigErrorKind};

/// Names go into headers, Redis keys and metric labels as they are, so they need no escaping anywhere.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), ConfigError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let good = name.len() <= 64
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-'));
    if good {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(ConfigError::new(
        ConfigErrorKind::Name,
        format!(
            "{shown:?} cannot be a {what}: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        ),
    ))
}
