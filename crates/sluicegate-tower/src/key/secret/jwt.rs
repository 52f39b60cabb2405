//! Verified JSON Web Tokens: [`BearerJwt`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, panic, thread};

use jsonwebtoken::{Algorithm, DecodingKey, Validation, crypto};
use serde_json::{Map, Value};
use sluicegate_core::{ConfigError, Key};

use super::digest::Digest;
use super::opaque;
use super::verifier::TokenVerifier;
use crate::key::text::{MAX_LENGTH, config_error};
use crate::key::{Extraction, KeyExtractor, KeyForm, KeyKind, MissingKey, RequestView};

/// The longest token that is decoded.
const MAX_TOKEN: usize = 16 * 1024;

/// The shortest key that RFC 7518 (section 3.2) allows for HS256.
const MIN_SECRET: usize = 32;

const MAX_LEEWAY: Duration = Duration::from_secs(3_600);

/// One bucket per subject of a bearer token that is a JSON Web Token, if the token is verified.
///
/// Verifies the signature, the algorithm (taken from the key, never from the token), a mandatory expiry, the time before which the
/// token is not valid, and the issuer and audience that are set here. A token with an audience is valid only if that audience is
/// set. An invalid token counts as missing, so that an `.or(..)` can take its place: an unverified claim is never a key. Subjects of
/// different issuers are different, and only a digest of them is kept.
///
/// Verifying takes microseconds with HS256 and up to a millisecond with the others, also for invalid tokens. So put a limit by
/// address in front, in a layer of its own, and let the limit with this key reject requests without a key: their units stay
/// spent in the outer layer. A refusal for lack of units gives the units back, so it would not limit verification.
///
/// Clones verify the token of a request once, for all claims that they read in it.
///
/// For keys that change, combine several extractors: `BearerJwt::rs256(new)?.or(BearerJwt::rs256(old)?)`.
///
/// # Crypto backend
/// `jsonwebtoken` needs the application to choose exactly one: enable `rust_crypto` or `aws_lc_rs` of `jsonwebtoken`
/// 11 in your own manifest, or install a `CryptoProvider` before the first `BearerJwt` is made.
///
/// ```
/// use sluicegate_tower::{KeyExtractor, PeerIp};
/// use sluicegate_tower::key::{ApiKey, BearerJwt};
///
/// // The user, or else the API key, or else the address.
/// let key = BearerJwt::hs256(b"a secret of 32 bytes, or of more")?
///     .issuer("https://login.example.com")
///     .audience("shop")
///     .or(ApiKey::header("x-api-key")?)
///     .or(PeerIp::new());
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct BearerJwt {
    verifier: Arc<TokenVerifier>,
    claim: Box<str>,
    digest: Digest,
}

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims(Arc<Map<String, Value>>);

impl BearerJwt {
    /// Tokens signed with HMAC-SHA-256.
    ///
    /// # Errors
    /// For a secret of less than 32 bytes, and without a crypto backend.
    pub fn hs256(secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < MIN_SECRET {
            return Err(config_error(format!(
                "a secret of {} bytes for HS256: use at least {MIN_SECRET}, from a random source",
                secret.len()
            )));
        }
        Self::new(Algorithm::HS256, DecodingKey::from_secret(secret))
    }

    /// Tokens signed with RSASSA-PKCS1-v1_5 and SHA-256, by the owner of this public key.
    ///
    /// # Errors
    /// When `public_key` is not an RSA key in PEM, and without a crypto backend.
    pub fn rs256(public_key: &[u8]) -> Result<Self, ConfigError> {
        Self::new(Algorithm::RS256, pem(DecodingKey::from_rsa_pem(public_key), "an RSA")?)
    }

    /// Tokens signed with ECDSA on P-256 and SHA-256, by the owner of this public key.
    ///
    /// # Errors
    /// When `public_key` is not an elliptic curve key in PEM, and without a crypto backend.
    pub fn es256(public_key: &[u8]) -> Result<Self, ConfigError> {
        Self::new(Algorithm::ES256, pem(DecodingKey::from_ec_pem(public_key), "an elliptic curve")?)
    }

    fn new(algorithm: Algorithm, key: DecodingKey) -> Result<Self, ConfigError> {
        try_backend(algorithm, &key)?;
        let mut validation = Validation::new(algorithm);
        validation.validate_nbf = true;
        let verifier = Arc::new(TokenVerifier { key, validation });
        Ok(Self { verifier, claim: "sub".into(), digest: Digest::of("jwt", "sub") })
    }

    fn validation(&mut self) -> &mut Validation {
        &mut Arc::make_mut(&mut self.verifier).validation
    }

    /// Accepts only tokens for this audience, or for one of several if it is called again. Default: only tokens without an audience.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        let validation = self.validation();
        validation.aud.get_or_insert_default().insert(audience.into());
        // Required as well, because otherwise a token without the claim would not be checked.
        validation.required_spec_claims.insert("aud".into());
        self
    }

    /// Accepts only tokens from this issuer, or from one of several if it is called again. Default: any issuer that has the key.
    #[must_use]
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        let validation = self.validation();
        validation.iss.get_or_insert_default().insert(issuer.into());
        validation.required_spec_claims.insert("iss".into());
        self
    }

    /// Sets the allowed difference of the issuer's clock, in whole seconds. Default: 60 s.
    ///
    /// # Errors
    /// For more than an hour.
    pub fn leeway(mut self, leeway: Duration) -> Result<Self, ConfigError> {
        if leeway > MAX_LEEWAY {
            return Err(config_error(format!("a leeway of {leeway:?}: use at most an hour")));
        }
        self.validation().leeway = leeway.as_secs();
        Ok(self)
    }

    /// Sets the claim used as the key, which must be text. Default: `sub`.
    #[must_use]
    pub fn claim(mut self, name: &str) -> Self {
        self.claim = name.into();
        self.digest = Digest::of("jwt", name);
        self
    }

    /// The bucket of a subject of this issuer, to peek at it or to reset it. The issuer is empty if tokens name none.
    pub fn key_of(&self, issuer: &str, subject: &str) -> Key {
        key_of(&self.digest, issuer, subject)
    }

    /// The claims of the request's token, if it is verified: for plans and roles.
    ///
    /// # Errors
    /// When there is no token, or it is not valid. Refuse a request with two different tokens with 400.
    pub fn verify<'a>(&self, request: impl Into<RequestView<'a>>) -> Result<Claims, MissingKey> {
        let token = opaque::token(request.into())?;
        if token.len() > MAX_TOKEN {
            return Err(MissingKey::new("the token is too long"));
        }
        // The library's error messages may repeat parts of the token.
        self.verifier.verify(token).ok_or_else(|| MissingKey::new("the token is not valid"))
    }
}

impl KeyExtractor for BearerJwt {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let key = self.verify(request).and_then(|claims| {
            let subject =
                claims.text(&self.claim).filter(|text| !text.is_empty() && text.len() <= MAX_LENGTH);
            let subject = subject.ok_or_else(|| MissingKey::new("the token does not say whose it is"))?;
            Ok(self.key_of(claims.text("iss").unwrap_or_default(), subject))
        });
        key.into()
    }

    fn kind(&self) -> KeyKind {
        // The digest of a verified subject names the owner of the token, and is not a secret.
        KeyKind::Name
    }

    fn forms(&self) -> Vec<KeyForm> {
        let only = self.verifier.validation.iss.as_ref().filter(|all| all.len() == 1);
        let only = only.and_then(|all| all.iter().next().cloned());
        let digest = self.digest.clone();
        let name = "the subject of a token, with its issuer";
        vec![KeyForm::new("subject", name, move |subject, issuer| {
            Some(key_of(&digest, issuer.or(only.as_deref())?, subject))
        })]
    }
}

fn key_of(digest: &Digest, issuer: &str, subject: &str) -> Key {
    // The length prefix makes different pairs encode differently.
    let length = (issuer.len() as u64).to_le_bytes();
    digest.key(&[&length, issuer.as_bytes(), subject.as_bytes()].concat())
}

impl fmt::Debug for BearerJwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerJwt")
            .field("algorithms", &self.verifier.validation.algorithms)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

impl Claims {
    pub(super) fn new(claims: Map<String, Value>) -> Self {
        Self(Arc::new(claims))
    }

    /// A claim that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// A claim that is a whole number, not negative.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    /// The texts in a claim that is a list, such as roles; empty if it is anything else.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }
}

/// Tries the key early, to return an error: without a backend, `jsonwebtoken` would panic at the first token.
fn try_backend(algorithm: Algorithm, key: &DecodingKey) -> Result<(), ConfigError> {
    // `jsonwebtoken` settles for a backend, or none, at its first use.
    static EXISTS: OnceLock<bool> = OnceLock::new();
    let verify = || crypto::verify("", b"", key, algorithm);
    if !EXISTS.get_or_init(|| succeeds_quietly(verify)) {
        return Err(config_error(
            "jsonwebtoken has no crypto backend: enable its feature \"rust_crypto\" or \"aws_lc_rs\" in your Cargo.toml, \
             not both, or install a CryptoProvider before this",
        ));
    }
    let problem = format!("{algorithm:?} cannot be verified with this key");
    verify().map(|_| ()).map_err(|error| config_error(problem).with_source(error))
}

/// Whether this does not panic. The panic is not printed, because an error tells more; panics of other threads are.
fn succeeds_quietly<T>(act: impl FnOnce() -> T) -> bool {
    let (here, hook) = (thread::current().id(), Arc::new(panic::take_hook()));
    let others = Arc::clone(&hook);
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != here {
            others(info);
        }
    }));
    let is_done = catch_unwind(AssertUnwindSafe(act)).is_ok();
    drop(panic::take_hook());
    if let Some(hook) = Arc::into_inner(hook) {
        panic::set_hook(hook);
    }
    is_done
}

fn pem(
    key: Result<DecodingKey, jsonwebtoken::errors::Error>,
    kind: &str,
) -> Result<DecodingKey, ConfigError> {
    key.map_err(|error| config_error(format!("not {kind} public key in PEM")).with_source(error))
}
