//! The form in which operators write a key: [`KeyForm`].

use std::fmt;
use std::sync::Arc;

use sluicegate_core::Key;

/// A form in which an operator writes a key of an [extractor](crate::KeyExtractor::forms), to look the key up without a
/// request.
///
/// ```
/// use sluicegate_core::Key;
/// use sluicegate_tower::{KeyExtractor, PeerIp};
/// use sluicegate_tower::key::{HeaderKey, KeyForm};
///
/// let forms = HeaderKey::new("x-tenant")?.or(PeerIp::new()).forms();
/// assert_eq!(forms.iter().map(KeyForm::word).collect::<Vec<_>>(), ["text", "address"]);
/// assert_eq!(forms[0].key("t1", None), Some(Key::from("t1")));
/// assert_eq!(forms[1].key("t1", None), None);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct KeyForm {
    word: &'static str,
    name: &'static str,
    read: Arc<ReadKey>,
}

type ReadKey = dyn Fn(&str, Option<&str>) -> Option<Key> + Send + Sync;

impl KeyForm {
    pub(super) fn new(
        word: &'static str,
        name: &'static str,
        read: impl Fn(&str, Option<&str>) -> Option<Key> + Send + Sync + 'static,
    ) -> Self {
        Self { word, name, read: Arc::new(read) }
    }

    /// The text itself.
    pub fn text() -> Self {
        Self::new("text", "text", |text, _| Some(text.into()))
    }

    /// A secret; its digest is the key.
    #[cfg(feature = "secrets")]
    pub(super) fn secret(name: &'static str, key_of: impl Fn(&str) -> Key + Send + Sync + 'static) -> Self {
        Self::new("secret", name, move |text, _| Some(key_of(text)))
    }

    /// Several keys together, which cannot be written as one text.
    pub fn several() -> Self {
        Self::new("several", "several parts, which only a request has together", |_, _| None)
    }

    /// The name of the form: `address`, `text`, `secret`, `subject` for the subject of a token and its issuer, `all` for the one bucket
    /// of all requests, or `several` for keys of several parts.
    pub fn word(&self) -> &'static str {
        self.word
    }

    /// The key of this text, with this issuer if the text is a subject. `None` if the text does not have this form, or the issuer is missing.
    pub fn key(&self, text: &str, issuer: Option<&str>) -> Option<Key> {
        (self.read)(text, issuer)
    }
}

/// In words: `an address`.
impl fmt::Display for KeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

sluicegate_core::debug_as!(KeyForm, form => form.word);
