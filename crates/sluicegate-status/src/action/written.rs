//! A key named by its text: [`written`].
//!
//! The extractors of the limits decide which key a text names: an address stands for its network, and the key of an API key is a digest. If
//! the text itself as a key would differ from the key of the requests, it would match no client, so it is refused.

use std::net::IpAddr;

use sluicegate_core::Key;
use sluicegate_tower::key::KeyForm;

use super::fault::ActionFault;
use super::input::KeyAs;

/// A key that an operator has written.
pub(super) struct Written {
    pub(super) key: Key,
    /// The reason why it may be no client's key. Then an unknown key is not reported as passing.
    pub(super) doubt: Option<&'static str>,
}

/// The key of a policy whose limits find keys of these forms.
pub(super) fn written(
    (policy, forms): (&str, &[KeyForm]),
    text: &str,
    (read_as, issuer): (KeyAs, Option<&str>),
) -> Result<Written, ActionFault> {
    let of =
        |word: &str| forms.iter().filter(|form| form.word() == word).find_map(|form| form.key(text, issuer));
    let plain = || of("text").unwrap_or_else(|| Key::from(text));
    let is_number = || text.parse::<i128>();
    let key = match read_as {
        KeyAs::Any if !forms.is_empty() && forms.iter().all(|form| form.word() == "all") => of("all"),
        KeyAs::Any => of("address").or_else(|| {
            let is_plain = |form: &KeyForm| !matches!(form.word(), "secret" | "subject" | "several");
            let address = || text.parse::<IpAddr>().map(Key::from);
            forms.iter().all(is_plain).then(|| address().unwrap_or_else(|_| plain()))
        }),
        KeyAs::Text => Some(plain()),
        KeyAs::Number => {
            Some(is_number().map_err(|_| ActionFault::bad("the key is not a whole number"))?.into())
        }
        KeyAs::Secret => of("secret"),
        KeyAs::Subject => of("subject"),
    };
    let doubt = match read_as {
        _ if forms.is_empty() => {
            Some("if its keys are written so: no limits that the page was given by limits(..) ask the policy")
        }
        KeyAs::Any if is_number().is_ok() => Some("if its keys are text: \"as\" says that they are numbers"),
        _ => None,
    };
    let key = key.ok_or_else(|| unwritten(policy, forms))?;
    Ok(Written { key, doubt })
}

/// Reports that the text is no key of this policy, or that it is unclear which one.
fn unwritten(policy: &str, forms: &[KeyForm]) -> ActionFault {
    let mut all: Vec<String> = Vec::new();
    for form in forms {
        let said = match form.word() {
            word @ ("secret" | "subject") => format!("{form}, as {word:?}"),
            _ => form.to_string(),
        };
        if !all.contains(&said) {
            all.push(said);
        }
    }
    ActionFault::bad(match &*all {
        [] => format!(
            "no limits that the page was given by limits(..) ask policy {policy:?}, so it is not known how its keys are made"
        ),
        all => format!(
            "the text names no key of policy {policy:?}: write {}; or look it up as a request",
            all.join(", or ")
        ),
    })
}
