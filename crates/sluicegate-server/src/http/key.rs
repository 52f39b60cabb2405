//! Keys in calls: [`JsonKey`].

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::key::KeyForm;
use sluicegate_tower::limits::Limits;

use crate::http::object::Object;

/// A key.
///
/// A string is read as the rules that use the policy extract their keys: as an address, as an API key (whose digest is the key) or as
/// text. An object says which of these is meant. A list is a key of several parts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a key is a string, a number, a list of strings, or one of {\"text\": ..}, {\"address\": ..}, {\"secret\": ..} and {\"subject\": .., \"issuer\": ..}"
)]
#[schemars(rename = "Key")]
pub(super) enum JsonKey {
    /// Read as the rules extract keys.
    Text(#[schemars(length(min = 1))] String),
    /// A number.
    Number(u64),
    /// Several parts.
    Parts(#[schemars(length(min = 1))] Vec<String>),
    /// A key of a stated form.
    Form(Object<KeyForms>),
}

/// A key of a stated form: one of the members.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
#[schemars(rename = "KeyForms")]
pub(super) struct KeyForms {
    /// Text.
    text: Option<String>,
    /// An IP address.
    address: Option<String>,
    /// An API key, whose digest is the key.
    secret: Option<String>,
    /// The subject of a token; `issuer` is beside it.
    subject: Option<String>,
    /// The issuer of the token.
    issuer: Option<String>,
}

impl JsonKey {
    /// The key under this policy, as rules extract it if any of them uses the policy.
    pub(super) fn key(&self, limits: &Limits, policy: &str) -> Result<Key, String> {
        let (word, text, issuer) = match self {
            Self::Parts(parts) => return several(parts),
            Self::Number(number) => {
                return self
                    .by_rules(limits, policy, None, &number.to_string(), None)
                    .map(|key| key.unwrap_or_else(|| Key::from(*number).of_kind(KeyKind::Name)));
            }
            Self::Text(text) => (None, &**text, None),
            Self::Form(Object(form)) => {
                let (word, text) = form.only()?;
                (Some(word), text, form.issuer.as_deref())
            }
        };
        if text.is_empty() {
            return Err("\"key\" is empty: it names the bucket".to_owned());
        }
        match self.by_rules(limits, policy, word, text, issuer)? {
            Some(key) => Ok(key),
            None if word == Some("address") => address(text),
            None if matches!(word, None | Some("text")) => Ok(Key::from(text).of_kind(KeyKind::Name)),
            None => Err(format!(
                "no rule extracts keys of policy {policy:?} from a {}: write the key as a string",
                word.unwrap_or_default()
            )),
        }
    }

    /// The name of this key in a rules file, if it has one.
    pub(super) fn name(&self, key: &Key) -> String {
        match self {
            _ if key.kind() == KeyKind::Address => key.plain(),
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Form(Object(KeyForms { text, subject, .. })) => {
                text.as_ref().or(subject.as_ref()).cloned().unwrap_or_default()
            }
            Self::Parts(_) => String::new(),
        }
    }

    /// The key as rules extract it; none if no rule uses the policy.
    fn by_rules(
        &self,
        limits: &Limits,
        policy: &str,
        word: Option<&str>,
        text: &str,
        issuer: Option<&str>,
    ) -> Result<Option<Key>, String> {
        let forms = limits.key_forms(policy);
        if forms.is_empty() {
            return Ok(None);
        }
        let mut fitting = forms.iter().filter(|form| word.is_none_or(|word| form.word() == word));
        match fitting.find_map(|form| form.key(text, issuer)) {
            Some(key) => Ok(Some(key)),
            None => {
                let forms: Vec<String> = forms.iter().map(KeyForm::to_string).collect();
                Err(format!(
                    "the keys of policy {policy:?} have the form {}, and this key has another one",
                    forms.join(" or ")
                ))
            }
        }
    }
}

impl KeyForms {
    /// The single member.
    fn only(&self) -> Result<(&'static str, &str), String> {
        let said = [
            ("text", &self.text),
            ("address", &self.address),
            ("secret", &self.secret),
            ("subject", &self.subject),
        ];
        let mut said = said.into_iter().filter_map(|(word, text)| Some((word, text.as_deref()?)));
        match (said.next(), said.next()) {
            (Some(one), None) => Ok(one),
            _ => {
                Err("\"key\" has exactly one of \"text\", \"address\", \"secret\" and \"subject\"".to_owned())
            }
        }
    }
}

fn several(parts: &[String]) -> Result<Key, String> {
    let mut parts = parts.iter();
    let first = parts.next().ok_or("\"key\" is an empty list: it names the bucket")?;
    let key = parts.fold(Key::from(&**first), |key, part| key.and(&**part));
    Ok(key.of_kind(KeyKind::Name))
}

fn address(text: &str) -> Result<Key, String> {
    let ip: IpAddr = text.parse().map_err(|_| format!("\"key\" is {text:?}, which is not an address"))?;
    Ok(Key::from(ip.to_canonical()).of_kind(KeyKind::Address))
}
