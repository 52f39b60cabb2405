//! Names of policies and quotas.

use crate::error::{ConfigError, ConfigErrorKind};

const MOST: usize = 64;

/// Checks a name that goes into header fields, Redis keys and metric labels: policies, quotas, stores. No name needs escaping there.
///
/// # Errors
/// [`ConfigErrorKind::Name`] with the character or the length that is wrong; `what` says in the message which name it is.
pub fn check_name(what: &str, name: &str) -> Result<(), ConfigError> {
    let problem = match name.chars().enumerate().find(|&(index, c)| !fits(index, c)) {
        Some((0, c @ ('.' | '_' | '-'))) => format!("it begins with {c:?}"),
        Some((_, c)) => format!("{c:?} would have to be escaped in headers, metrics or Redis keys"),
        None if name.is_empty() => "it is empty".to_owned(),
        None if name.len() > MOST => format!("it has {} characters", name.len()),
        None => return Ok(()),
    };
    let shown: String = name.chars().take(80).collect();
    Err(ConfigError::new(
        ConfigErrorKind::Name,
        format!(
            "{shown:?} cannot be a {what}, because {problem}: use 1 to {MOST} of a-z, A-Z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        ),
    ))
}

fn fits(index: usize, c: char) -> bool {
    c.is_ascii_alphanumeric() || index > 0 && matches!(c, '.' | '_' | '-')
}
