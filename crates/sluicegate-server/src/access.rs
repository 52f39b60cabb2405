//! Authentication by a shared secret: [`Access`].

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The secrets; a caller has to show one of them. Without secrets every caller is let in.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// Their hashes, which compare in constant time.
    secrets: Vec<blake3::Hash>,
}

impl Access {
    pub(crate) fn add(&mut self, secret: &str) {
        self.secrets.push(blake3::hash(secret.as_bytes()));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Whether a request with these fields is let in: by `Authorization: Bearer` with a secret.
    pub(crate) fn lets(&self, headers: &HeaderMap) -> bool {
        self.is_open() || credentials(headers, "bearer").is_some_and(|secret| self.knows(secret))
    }

    /// The user name of `Authorization: Basic`, if the password is a secret.
    pub(crate) fn operator(&self, headers: &HeaderMap) -> Option<String> {
        let decoded = STANDARD.decode(credentials(headers, "basic")?).ok()?;
        let (name, password) = str::from_utf8(&decoded).ok()?.split_once(':')?;
        (!name.is_empty() && self.knows(password)).then(|| name.to_owned())
    }

    fn knows(&self, secret: &str) -> bool {
        let hash = blake3::hash(secret.as_bytes());
        self.secrets.contains(&hash)
    }
}

/// The credentials of this scheme (in lower case), if there is exactly one `Authorization` field.
fn credentials<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (field, None) = (fields.next()?.to_str().ok()?, fields.next()) else { return None };
    let (given, credentials) = field.split_once(' ')?;
    given.eq_ignore_ascii_case(scheme).then(|| credentials.trim())
}

/// Without the secrets.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("secrets", &self.secrets.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn fields(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_one_bearer_field_with_a_secret_is_let_in() {
        let mut access = Access::default();
        assert!(access.lets(&fields(&[])));
        access.add("one");
        access.add("two");
        for (given, lets) in [
            (&["Bearer one"][..], true),
            (&["bearer  two"], true),
            (&["Bearer three"], false),
            (&["Bearer "], false),
            (&["one"], false),
            (&["Basic b25l"], false),
            (&["Bearer one", "Bearer one"], false),
            (&[], false),
        ] {
            assert_eq!(access.lets(&fields(given)), lets, "{given:?}");
        }
    }

    #[test]
    fn an_operator_has_a_secret_as_the_password() {
        let mut access = Access::default();
        let ada = fields(&["Basic YWRhOm9uZQ=="]);
        assert_eq!(access.operator(&ada), None, "without a secret there are no operators");
        access.add("one");
        assert_eq!(access.operator(&ada).as_deref(), Some("ada"));
        for wrong in ["Basic YWRhOnR3bw==", "Basic OnR3bw==", "Basic ???", "Bearer one"] {
            assert_eq!(access.operator(&fields(&[wrong])), None, "{wrong}");
        }
    }
}
