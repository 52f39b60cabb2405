//! Values of parameters that are one of a few words.

use std::time::Duration;

use sluicegate_core::{OnOutage, Quota};
use syn::{Error, Lit, LitStr, Result};

use crate::words::{nearest, quoted};

/// What happens to a request without a key.
#[derive(Clone, Copy)]
pub(crate) enum MissingKey {
    Share,
    Skip,
    Reject(u16),
}

/// A request holds its connection and its memory while it waits, and no client waits for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// `"deny"`, or how long to wait.
pub(crate) fn wait(text: &LitStr) -> Result<Option<Duration>> {
    let value = text.value();
    if value == "deny" {
        return Ok(None);
    }
    let time = value.strip_prefix("wait").map(str::trim);
    let time = time.filter(|time| time.starts_with(|c: char| c.is_ascii_digit()) && !time.contains("burst"));
    // A wait is written as the period of a quota is.
    match time.and_then(|time| format!("1/{time}").parse::<Quota>().ok()) {
        Some(quota) if quota.period() > LONGEST_WAIT => Err(Error::new(
            text.span(),
            format!(
                "{value:?} keeps a request waiting for more than an hour: use at most \"wait 1h\", or \"deny\""
            ),
        )),
        Some(quota) => Ok(Some(quota.period())),
        None => Err(Error::new(
            text.span(),
            format!(
                "{value:?} does not say what happens to a request that exceeds the limit: use \"deny\", or \"wait\" with a time (us, ms, s, min, h, d), such as \"wait 5s\" or \"wait 500ms\""
            ),
        )),
    }
}

/// A word for an outage.
pub(crate) fn on_outage(text: &LitStr) -> Result<OnOutage> {
    match &*text.value() {
        "local" => Ok(OnOutage::Local),
        "allow" => Ok(OnOutage::Allow),
        "deny" => Ok(OnOutage::Deny),
        other => Err(Error::new(
            text.span(),
            choice(other, "what happens while the store cannot be reached", &["local", "allow", "deny"], ""),
        )),
    }
}

/// A word or a status for a request without a key.
pub(crate) fn on_missing_key(value: &Lit) -> Result<MissingKey> {
    const STATUS: &str = ", or a status from 400 to 599, such as 401";
    let what = "what happens to a request without a key";
    let words = ["share", "skip"];
    match value {
        Lit::Str(text) => match &*text.value() {
            "share" => Ok(MissingKey::Share),
            "skip" => Ok(MissingKey::Skip),
            other => Err(Error::new(text.span(), choice(other, what, &words, STATUS))),
        },
        Lit::Int(status) => match status.base10_parse() {
            Ok(code) if (400..600).contains(&code) => Ok(MissingKey::Reject(code)),
            _ => Err(Error::new(
                status.span(),
                format!(
                    "{status} is not a status to refuse a request with: use 400 to 599, such as 401; \"share\" or \"skip\""
                ),
            )),
        },
        other => {
            Err(Error::new(other.span(), format!("this does not say {what}: use {}{STATUS}", quoted(&words))))
        }
    }
}

fn choice(wrong: &str, what: &str, words: &[&str], more: &str) -> String {
    let meant = nearest(wrong, words).map(|word| format!("did you mean {word:?}? ")).unwrap_or_default();
    format!("{wrong:?} does not say {what}: {meant}use {}{more}", quoted(words))
}
