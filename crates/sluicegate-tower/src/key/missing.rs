//! Requests without a key: [`MissingKey`] is the reason, [`OnMissingKey`] the treatment.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use sluicegate_core::{ConfigError, Key};

use crate::key::text::unreadable;

/// The reason why a request has no key, for logs and for the body of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKey {
    reason: Cow<'static, str>,
    /// The sentence for clients, if the reason is not for them.
    told: Option<&'static str>,
    reject: Option<StatusCode>,
    /// Whether no request could have this key, because the server is set up wrongly.
    is_mistake: bool,
}

impl MissingKey {
    /// `reason` names the missing key. Clients see it unless they are [told](Self::telling) something else, so it must not repeat input
    /// from the client.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), told: None, reject: None, is_mistake: false }
    }

    /// A key that no request could have, because the server is set up wrongly. `reason` says how to fix it, for the log. Unless
    /// [`OnMissingKey`] was chosen, the request is refused with 500.
    pub fn mistake(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { is_mistake: true, ..Self::new(reason).telling("this server does not know who is asking") }
    }

    /// Sets the sentence that clients see, so that the reason, which is in the log, may name types and settings of the program.
    #[must_use]
    pub fn telling(mut self, sentence: &'static str) -> Self {
        self.told = Some(sentence);
        self
    }

    /// Refuses the request with this status, whatever the limit's treatment of a merely
    /// missing key. The second extractor of an `or` is not asked.
    #[must_use]
    pub fn rejecting(mut self, status: StatusCode) -> Self {
        self.reject = Some(status);
        self
    }

    /// The status of [`rejecting`](Self::rejecting), if it was set.
    pub fn reject(&self) -> Option<StatusCode> {
        self.reject
    }

    /// The missing key.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether the key is not merely absent: the request must be refused, or the server is set up wrongly.
    pub(super) fn is_grave(&self) -> bool {
        self.reject.is_some() || self.is_mistake
    }

    /// Whether the server is to blame, not the request.
    pub fn is_mistake(&self) -> bool {
        self.is_mistake
    }

    /// The reason as clients see it.
    pub(crate) fn told(&self) -> &str {
        self.told.unwrap_or(&self.reason)
    }
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for MissingKey {}

/// The treatment of a request without a key. Written as `share`, `skip`, or the status of the refusal, such as `401`.
///
/// | | the request | take it when |
/// |---|---|---|
/// | [`Share`](Self::Share) | counts, together with all others without a key | few requests lack a key, and these should be limited |
/// | [`Reject`](Self::Reject) | is refused | every legitimate client has a key |
/// | [`Skip`](Self::Skip) | passes this limit | another limit counts it |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one bucket. Unless it was set explicitly, a warning is logged once, and requests without a key
    /// [by mistake](MissingKey::mistake) are refused with 500.
    Share,
    /// They are refused with this status.
    Reject(StatusCode),
    /// This limit does not apply to them.
    Skip,
}

impl fmt::Display for OnMissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share => f.write_str("share"),
            Self::Skip => f.write_str("skip"),
            Self::Reject(status) => f.write_str(status.as_str()),
        }
    }
}

impl FromStr for OnMissingKey {
    type Err = ConfigError;

    /// Reads `share`, `skip`, or a status from 400 to 599.
    ///
    /// # Errors
    /// [`Unreadable`](sluicegate_core::error::ConfigErrorKind::Unreadable) for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "share" => return Ok(Self::Share),
            "skip" => return Ok(Self::Skip),
            _ => {}
        }
        let status = text.parse().ok().filter(|status: &StatusCode| status.as_u16() >= 400);
        status.filter(|status| status.as_u16() < 600).map(Self::Reject).ok_or_else(|| {
            unreadable(
                text,
                "does not say what happens to a request without a key: use \"share\", \"skip\", or a status from 400 to 599, such as \"401\"",
            )
        })
    }
}

/// The chosen treatment of a limit, if any, and whether the warning was logged. Clones log once together.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WhenMissing {
    /// The chosen treatment, if any.
    pub chosen: Option<OnMissingKey>,
    logged: Arc<AtomicBool>,
}

/// The result of a key lookup.
#[derive(Debug)]
#[non_exhaustive]
pub enum Keyed {
    /// The key.
    Key(Key),
    /// The limit does not apply, because the key is missing.
    Skipped(MissingKey),
    /// The request is refused with this status.
    Rejected(MissingKey, StatusCode),
}

impl WhenMissing {
    /// The treatment by the limit of this name.
    #[inline]
    pub fn read(&self, found: Result<Key, MissingKey>, name: impl FnOnce() -> String) -> Keyed {
        found.map_or_else(|missing| self.treat(missing, name), Keyed::Key)
    }

    /// The treatment of a request without a key.
    #[cold]
    pub(crate) fn treat(&self, missing: MissingKey, name: impl FnOnce() -> String) -> Keyed {
        match self.action(&missing, name) {
            OnMissingKey::Share => Keyed::Key(Key::shared()),
            OnMissingKey::Reject(status) => Keyed::Rejected(missing, status),
            OnMissingKey::Skip => Keyed::Skipped(missing),
        }
    }

    /// The treatment of a request without this key: the one that the extractor asks for, or else the one chosen for
    /// the limit of this name.
    fn action(&self, missing: &MissingKey, name: impl FnOnce() -> String) -> OnMissingKey {
        if let Some(status) = missing.reject() {
            return OnMissingKey::Reject(status);
        }
        // Relaxed: at worst two threads log.
        let is_first = || !self.logged.load(Ordering::Relaxed) && !self.logged.swap(true, Ordering::Relaxed);
        if let Some(chosen) = self.chosen {
            // Clients are told something else.
            if let OnMissingKey::Reject(status) = chosen
                && missing.told.is_some()
                && is_first()
            {
                tracing::warn!(limit = name(), "requests without a key are refused with {status}: {missing}");
            }
            return chosen;
        }
        let is_first = is_first();
        if missing.is_mistake() {
            if is_first {
                tracing::error!(limit = name(), "requests are refused with 500: {missing}");
            }
            return OnMissingKey::Reject(StatusCode::INTERNAL_SERVER_ERROR);
        }
        if is_first {
            tracing::warn!(
                limit = name(),
                "requests without a key share one bucket of this limit: {missing}"
            );
        }
        OnMissingKey::Share
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_core::error::ConfigErrorKind;

    use super::*;

    #[test]
    fn a_choice_prints_as_it_reads() {
        for text in ["share", "skip", "400", "401", "599"] {
            assert_eq!(text.parse::<OnMissingKey>().unwrap().to_string(), text);
        }
        for text in ["", "ignore", "200", "600", "4010", "401 ", "Share"] {
            let error = text.parse::<OnMissingKey>().unwrap_err();
            assert!(error.to_string().contains("\"share\", \"skip\", or a status"), "{error}");
            assert_eq!((error.kind(), error.span()), (ConfigErrorKind::Unreadable, Some(0..text.len())));
        }
    }
}
