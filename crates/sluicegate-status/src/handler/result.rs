//! The result of a form on the page that its browser is redirected to: [`FormResult`].
//!
//! A form that has done something is answered with a redirect, so that loading the page again sends nothing again. No instance remembers
//! the result: the address of the page holds it, sealed, so that neither a history nor a log shows what was typed. A looked-up key is
//! looked up again there, each time that the page is loaded.

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::action::Input;
use crate::document::Theme;
use crate::secret::Secret;

/// The time for which a page shows the result.
const LASTS_SECONDS: u64 = 3_600;

/// The longest word that is put into an address: proxies accept 8 KiB for the whole address.
const LONGEST: usize = 4_096;

/// The name of the word in the query.
const NAME: &str = "result=";

/// The result of a form.
#[derive(Deserialize, Serialize)]
pub(super) struct FormResult {
    /// The operator who has sent the form; no other operator sees the result.
    operator: String,
    until_seconds: u64,
    /// A sentence about what was done.
    pub(super) done: Option<String>,
    /// The key or the request that is looked up.
    pub(super) sought: Option<Input>,
}

impl FormResult {
    /// The result of a form that was sent now.
    pub(super) fn new(
        (operator, now_seconds): (&str, u64),
        done: Option<String>,
        sought: Option<Input>,
    ) -> Self {
        Self { operator: operator.to_owned(), until_seconds: now_seconds + LASTS_SECONDS, done, sought }
    }

    /// The address of the page that shows it, from the address that the form was sent to. If the result is too long for an address, its
    /// sentence goes without the key; `None` for a look-up that is too long.
    pub(super) fn address(mut self, secret: &Secret, uri: &Uri) -> Option<String> {
        let mut word = self.sealed(secret)?;
        if word.len() > LONGEST && self.done.is_some() {
            self.sought = None;
            word = self.sealed(secret)?;
        }
        let theme = Theme::of(uri).word().map_or_else(String::new, |theme| format!("theme={theme}&"));
        (word.len() <= LONGEST).then(|| format!("?{theme}{NAME}{word}"))
    }

    /// The result in this address, for this operator and at this time.
    pub(super) fn at(uri: &Uri, secret: &Secret, (operator, now_seconds): (&str, u64)) -> Option<Self> {
        let word = uri.query()?.split('&').find_map(|part| part.strip_prefix(NAME))?;
        let outcome: Self = serde_json::from_slice(&secret.unseal_result(word)?).ok()?;
        (outcome.operator == operator && now_seconds < outcome.until_seconds).then_some(outcome)
    }

    fn sealed(&self, secret: &Secret) -> Option<String> {
        serde_json::to_vec(self).ok().map(|text| secret.seal_result(text))
    }
}
