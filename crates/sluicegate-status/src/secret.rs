//! The secret that the instances of a service share: [`Secret`], which signs forms and seals keys.
//!
//! # Tokens
//! `until.signature`, both in hexadecimal digits: the second at which the token ends, and a keyed hash of it and of the operator's name. No
//! token is remembered, so any instance with the secret accepts it, and it can be sent more than once: it proves that a form came from a
//! page that this operator has loaded in the last hour.
//!
//! # Sealed keys
//! A button of the page acts on a key that the page may not show. Its form carries the key as a word that only the secret opens, with the
//! policy that it belongs to, so that it cannot be moved to another one. A key always has the same word (SIV: a stream cipher whose start
//! is a hash of the text), because that needs no nonce that instances would have to agree on. So words reveal only whether two of them stand for
//! one key.
//!
//! The results of forms are sealed in the same way. Each use has a key of its own, derived from the secret: a token reveals nothing about a
//! sealed key.

use std::fmt::Write;

use http::Version;
use http::header::{FORWARDED, HOST, HeaderMap, ORIGIN, VIA};
use http::uri::{Authority, Uri};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::key::KeyKind;
use sluicegate_core::{ConfigError, Key};
use sluicegate_tower::PeerIp;
use sluicegate_tower::key::RequestView;

/// The time for which a form can be sent after its page was loaded.
const FORM_LASTS_SECONDS: u64 = 3_600;
const SHORTEST: usize = 32;
const IV: usize = 16;

/// Signs forms, so that no foreign page can send one, and seals keys, so that a page can name a key without showing it.
pub(crate) struct Secret {
    forms: [u8; 32],
    keys: TextSeal,
    /// Seals the results of forms.
    pub(crate) results: TextSeal,
}

/// Hides texts: SIV, a stream that begins with a hash of the hidden text.
pub(crate) struct TextSeal {
    ivs: [u8; 32],
    streams: [u8; 32],
}

impl Secret {
    /// Keys for each use, none of which reveals another.
    pub(crate) fn new(secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < SHORTEST {
            let problem = format!(
                "a secret of {} bytes can be guessed: use at least {SHORTEST}, at random, the same for all instances",
                secret.len()
            );
            return Err(ConfigError::new(ConfigErrorKind::Layer, problem));
        }
        Ok(Self {
            forms: blake3::derive_key("sluicegate-status 2026-11-22 tokens of forms", secret),
            keys: TextSeal {
                ivs: blake3::derive_key("sluicegate-status 2026-11-22 sealed keys, synthetic iv", secret),
                streams: blake3::derive_key("sluicegate-status 2026-11-22 sealed keys, stream", secret),
            },
            results: TextSeal {
                ivs: blake3::derive_key(
                    "sluicegate-status 2026-11-24 results of forms, synthetic iv",
                    secret,
                ),
                streams: blake3::derive_key("sluicegate-status 2026-11-24 results of forms, stream", secret),
            },
        })
    }

    /// A token for the forms of a page that is loaded now by this operator.
    pub(crate) fn token(&self, now_seconds: u64, operator: &str) -> String {
        let until = now_seconds.saturating_add(FORM_LASTS_SECONDS);
        format!("{until:x}.{}", self.signature(until, operator).to_hex())
    }

    /// Whether a token was made for this operator, and is still valid.
    pub(crate) fn admits(&self, now_seconds: u64, operator: &str, token: &str) -> bool {
        let Some((until, signature)) = token.split_once('.') else { return false };
        let Ok(until) = u64::from_str_radix(until, 16) else { return false };
        let Ok(signature) = blake3::Hash::from_hex(signature) else { return false };
        // A token from the future was made by an unknown clock. Hashes are compared in constant time.
        let lasts = now_seconds < until && until - now_seconds <= 2 * FORM_LASTS_SECONDS;
        lasts && signature == self.signature(until, operator)
    }

    fn signature(&self, until: u64, operator: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.forms, &[&until.to_le_bytes(), operator.as_bytes()].concat())
    }

    /// Seals the key of a policy as a word that only holders of the secret can read. A key always has the same word.
    pub(crate) fn seal(&self, policy: &str, key: &Key) -> String {
        let kind = match key.kind() {
            KeyKind::Name => b'n',
            KeyKind::Address => b'a',
            _ => b's',
        };
        self.keys.seal([policy.as_bytes(), &[0, kind], key.as_bytes()].concat())
    }

    /// The policy and the key that a word stands for, if it was sealed with this secret.
    pub(crate) fn unseal(&self, word: &str) -> Option<(String, Key)> {
        let text = self.keys.unseal(word)?;
        let mut parts = text.splitn(2, |byte| *byte == 0);
        let (policy, (kind, key)) = (parts.next()?, parts.next()?.split_first()?);
        let kind = match kind {
            b'n' => KeyKind::Name,
            b'a' => KeyKind::Address,
            _ => KeyKind::Secret,
        };
        Some((String::from_utf8(policy.to_vec()).ok()?, Key::encoded(kind, key)))
    }
}

impl TextSeal {
    /// Seals a text as hexadecimal digits, a word that only holders of the secret can read.
    pub(crate) fn seal(&self, mut text: Vec<u8>) -> String {
        let iv = blake3::keyed_hash(&self.ivs, &text);
        let iv = &iv.as_bytes()[..IV];
        self.stream(iv, &mut text);
        iv.iter().chain(&text).fold(String::new(), |mut word, byte| {
            // Writing to a string does not fail.
            _ = write!(word, "{byte:02x}");
            word
        })
    }

    pub(crate) fn unseal(&self, word: &str) -> Option<Vec<u8>> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let pairs = word.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        });
        let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
        let (iv, sealed) = bytes.split_at_checked(IV)?;
        let mut text = sealed.to_vec();
        self.stream(iv, &mut text);
        (blake3::keyed_hash(&self.ivs, &text).as_bytes()[..IV] == *iv).then_some(text)
    }

    fn stream(&self, iv: &[u8], text: &mut [u8]) {
        let mut stream = vec![0; text.len()];
        blake3::Hasher::new_keyed(&self.streams).update(iv).finalize_xof().fill(&mut stream);
        text.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }
}

// The hosts that the page answers for, and the origins that its forms come from.
//
// Both protect against foreign sites in an operator's browser: a cookie or an address lets the operator in, whichever site sends the request.
//
// - The *host* keeps out a foreign name that is made to resolve to this server (DNS rebinding): the browser would take the page for one of
//   that name's origin, and its scripts could read everything.
// - The *origin* keeps out forms that a foreign page sends here. `Sec-Fetch-Site` shows it best, because scripts cannot write it and it
//   distinguishes hosts under one domain. Browsers leave it out without TLS; then `Origin` is compared.
//
// A field that occurs twice is rejected, because it is unknown which one a proxy has read.

/// The hosts that requests may name. A page of another name that resolves to this server can read nothing.
#[derive(Default)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// Adds a host, with or without a port; the port does not count.
    pub(super) fn add(&mut self, host: &str) -> Result<(), ConfigError> {
        let authority: Authority =
            host.parse().ok().filter(|authority: &Authority| !authority.as_str().contains('@')).ok_or_else(
                || mistake(format!("{host:?} is not a host: write \"ops.example.org\" or \"127.0.0.1\"")),
            )?;
        self.0.push(authority.host().to_ascii_lowercase());
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request names one of them, and no other. An empty list admits all hosts.
    pub(super) fn admit(&self, request: RequestView<'_>) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut lines = request.headers.get_all(HOST).iter();
        let named = match (lines.next(), lines.next()) {
            (Some(line), None) => line.to_str().ok().and_then(|line| line.parse().ok()),
            (None, _) => request.uri.authority().cloned(),
            (Some(_), Some(_)) => None,
        };
        named
            .is_some_and(|named: Authority| self.0.iter().any(|host| named.host().eq_ignore_ascii_case(host)))
    }
}

/// An origin as browsers send it.
#[derive(PartialEq, Eq)]
pub(super) struct Origin(String);

impl Origin {
    /// Reads `https://ops.example.org`.
    pub(super) fn read(text: &str) -> Result<(Self, Authority), ConfigError> {
        let uri: Option<Uri> = text.parse().ok();
        let whole = uri.and_then(|uri| {
            let parts = uri.into_parts();
            let scheme = parts.scheme.filter(|scheme| matches!(scheme.as_str(), "http" | "https"))?;
            let path = parts.path_and_query.map_or(String::new(), |path| path.as_str().to_owned());
            let authority = parts.authority.filter(|authority| !authority.as_str().contains('@'))?;
            (path.is_empty() || path == "/").then_some((scheme, authority))
        });
        let (scheme, authority) = whole.ok_or_else(|| {
            mistake(format!("{text:?} is not an origin: write \"https://ops.example.org\", without a path"))
        })?;
        let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
        Ok((Self(origin), authority))
    }

    fn is(&self, text: &str) -> bool {
        self.0.eq_ignore_ascii_case(text)
    }
}

/// Whether the page itself sent a form: the browser says so, or names its origin. A client that sends neither is not a browser that can be
/// trusted to keep foreign pages out.
pub(super) fn is_own(headers: &HeaderMap, origins: &[Origin]) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) => site == "same-origin",
        (Some(_), Some(_)) => false,
        (None, _) => {
            let mut lines = headers.get_all(ORIGIN).iter();
            let named = lines.next().and_then(|line| line.to_str().ok());
            lines.next().is_none() && named.is_some_and(|named| origins.iter().any(|origin| origin.is(named)))
        }
    }
}

fn mistake(problem: String) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Layer, problem)
}

// Access to the page: [`Guard`].
//
// There are two kinds of pages: on one, all visitors have names and may act; on the other, visitors have no names
// and may only read numbers.

/// Decides which visitors may see the page, and which of them may act on it.
pub(super) enum Guard {
    /// Only visitors for whom this returns a name; they may act.
    Who(Box<Who>),
    /// Only connections from this machine that did not come through a proxy.
    ThisMachine,
    /// Everyone; no visitor may act, and keys are digests.
    ReadOnly,
}

type Who = dyn Fn(RequestView<'_>) -> Option<String> + Send + Sync;

/// A visitor that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Viewer {
    /// May act, and is named in events.
    Operator(String),
    /// May only read numbers.
    Reader,
}

impl Viewer {
    /// The name of a visitor that may act.
    pub(super) fn operator(&self) -> Option<&str> {
        match self {
            Self::Operator(name) => Some(name),
            Self::Reader => None,
        }
    }
}

impl Guard {
    pub(super) fn visitor(&self, request: RequestView<'_>) -> Option<Viewer> {
        match self {
            Self::Who(who) => who(request).map(Viewer::Operator),
            Self::ThisMachine => {
                let is_here = PeerIp::new().address(request).is_some_and(|ip| ip.is_loopback());
                (is_here && !is_forwarded(request)).then(|| Viewer::Operator("local".to_owned()))
            }
            Self::ReadOnly => Some(Viewer::Reader),
        }
    }
}

/// Whether a proxy has probably sent it: proxies add fields, and some use HTTP/1.0, which no browser does.
fn is_forwarded(request: RequestView<'_>) -> bool {
    const FIELDS: [&str; 10] = [
        "cf-connecting-ip",
        "client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "true-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-real-ip",
    ];
    request.version == Version::HTTP_10
        || request.headers.keys().any(|name| {
            name == FORWARDED
                || name == VIA
                || name.as_str().starts_with("x-forwarded-")
                || FIELDS.contains(&name.as_str())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(&[byte; 32]).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_operator_for_an_hour_on_every_instance() {
        let token = secret(1).token(1_000, "ada");
        assert!(secret(1).admits(1_000, "ada", &token) && secret(1).admits(4_599, "ada", &token));
        assert!(!secret(1).admits(4_600, "ada", &token), "an hour later");
        assert!(!secret(1).admits(1_000, "bob", &token), "somebody else's");
        assert!(!secret(2).admits(1_000, "ada", &token), "another secret's");
        for forged in ["", ".", "ffff.", &token[1..], &token.replace('.', "0."), &token.to_uppercase()[..20]]
        {
            assert!(!secret(1).admits(1_000, "ada", forged), "{forged}");
        }
    }

    #[test]
    fn a_sealed_key_is_read_by_its_secret_only_and_shows_nothing() {
        let word = secret(1).seal("login", &Key::from("sk_live_51H"));
        assert_eq!(secret(1).unseal(&word), Some(("login".to_owned(), Key::from("sk_live_51H"))));
        assert!(!word.contains("736b5f6c697665"), "the bytes of the key are not in {word}");
        assert_eq!((secret(2).unseal(&word), secret(1).results.unseal(&word)), (None, None));
        for at in 0..word.len() {
            let other = if &word[at..=at] == "0" { "1" } else { "0" };
            let forged = format!("{}{other}{}", &word[..at], &word[at + 1..]);
            assert_eq!(secret(1).unseal(&forged), None, "digit {at}");
        }
        for forged in ["", "0", "zz", &word[..30], &word[2..], "ä"] {
            assert_eq!(secret(1).unseal(forged), None, "{forged}");
        }
        let address = Key::from(std::net::Ipv4Addr::LOCALHOST);
        for key in [address, Key::from("").of_kind(KeyKind::Name), Key::from((1, "a\0b"))] {
            let (_, unsealed) = secret(1).unseal(&secret(1).seal("login", &key)).unwrap();
            assert_eq!((&unsealed, unsealed.kind()), (&key, key.kind()));
        }
    }

    #[test]
    fn a_short_secret_is_refused_and_not_shown() {
        let error = Secret::new(b"hunter2").err().unwrap().to_string();
        assert!(error.starts_with("a secret of 7 bytes") && !error.contains("hunter2"), "{error}");
    }
}

#[cfg(test)]
mod origin_tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_form_is_own_if_the_browser_says_so_or_names_an_origin_of_ours() {
        let (ours, _) = Origin::read("https://Ops.example.org/").unwrap();
        let ours = [ours];
        let own = |fields: &[(&'static str, &'static str)]| {
            let request =
                fields.iter().fold(Request::post("/"), |request, field| request.header(field.0, field.1));
            is_own(request.body(()).unwrap().headers(), &ours)
        };
        assert!(own(&[("sec-fetch-site", "same-origin")]));
        assert!(own(&[("origin", "https://ops.example.org")]));
        for foreign in [
            &[][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "cross-site"), ("origin", "https://ops.example.org")],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[("origin", "null")],
            &[("origin", "http://ops.example.org")],
            &[("origin", "https://ops.example.org:8443")],
            &[("origin", "https://ops.example.org.evil.example")],
            &[("origin", "https://ops.example.org"), ("origin", "https://evil.example")],
        ] {
            assert!(!own(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn only_hosts_of_the_list_are_answered_for() {
        let mut hosts = Hosts::default();
        hosts.add("ops.example.org").unwrap();
        hosts.add("[::1]:3000").unwrap();
        let admits = |uri: &'static str, fields: &[&'static str]| {
            let request =
                fields.iter().fold(Request::get(uri), |request, host| request.header("host", *host));
            hosts.admit((&request.body(()).unwrap()).into())
        };
        assert!(admits("/", &["OPS.example.org"]) && admits("/", &["ops.example.org:8443"]));
        assert!(admits("/", &["[::1]:9"]) && admits("https://ops.example.org/", &[]));
        assert!(
            !admits("/", &[])
                && !admits("/", &["evil.example"])
                && !admits("/", &["ops.example.org@evil.example"])
        );
        assert!(!admits("/", &["ops.example.org", "evil.example"]));
        assert!(!admits("https://ops.example.org/", &["evil.example"]));
        assert!(Hosts::default().admit((&Request::new(())).into()));
    }

    #[test]
    fn an_origin_or_host_that_is_none_is_named() {
        for text in [
            "ops.example.org",
            "https://ops.example.org/status",
            "ftp://ops.example.org",
            "https://a@b.example",
            "",
        ] {
            let error = Origin::read(text).err().unwrap().to_string();
            assert!(error.starts_with(&format!("{text:?} is not an origin")), "{error}");
        }
        for text in ["", "a b", "https://ops.example.org", "ada@ops.example.org"] {
            let error = Hosts::default().add(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a host")), "{error}");
        }
    }
}
