//! The known API keys, by their digests, each with a tier or quotas: the section `api_keys`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderName;
use sha2::{Digest as _, Sha256};
use sluicegate_core::{Key, Policy};
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{ApiKey, BearerJwt, Extraction, KeyForm, MissingKey, RequestView};

use crate::at::{At, Position};
use crate::compile::quotas::{KeyQuotas, own_quotas};
use crate::compile::value::is_unknown;
use crate::error::Problems;
use crate::read;
use crate::schema::{ApiKeysEntry, Jwt, KeyEntry, KeyLine, Named};

/// The largest file of API keys that is read: about 200,000 keys.
const MOST_BYTES: usize = 16 << 20;

/// The sha256 of a key.
type Sum = [u8; 32];

/// The known API keys, each with its line. Clones share them.
#[derive(Clone)]
pub(in crate::compile) struct ApiKeys {
    header: HeaderName,
    extractor: ApiKey,
    keys: Arc<HashMap<Sum, Arc<KeyGrant>>>,
    /// Each different line once, with its first place.
    lines: Arc<[(Position, Arc<KeyGrant>)]>,
    pub(super) file: (PathBuf, Vec<u8>),
}

/// The tier and the quotas that the file gives a key.
#[derive(PartialEq, Eq, Hash)]
pub(in crate::compile) struct KeyGrant {
    pub tier: Option<String>,
    pub quotas: Option<KeyQuotas>,
}

impl ApiKeys {
    pub(super) fn of(
        section: &At<ApiKeysEntry>,
        folder: Option<&Path>,
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let ApiKeysEntry { header, file } = &section.value;
        let name = header.value.parse().ok().zip(ApiKey::header(&header.value).ok());
        if name.is_none() {
            problems.error(
                header.place,
                "this is not the name of a header field: use letters, digits and '-', as x-api-key",
            );
        }
        let path = folder.map_or_else(|| file.value.clone().into(), |folder| folder.join(&file.value));
        let bytes = match read::bytes(&path, MOST_BYTES) {
            Ok(bytes) => bytes,
            Err(problem) => {
                problems.error(file.place, format!("the file of API keys: {problem}"));
                return None;
            }
        };
        let (keys, lines) = lines(&path.display().to_string(), &bytes, problems)?;
        let (header, extractor) = name?;
        Some(Self { header, extractor, keys: Arc::new(keys), lines: lines.into(), file: (path, bytes) })
    }

    /// The tiers that keys are given.
    pub(in crate::compile) fn tiers(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|(_, line)| line.tier.as_deref())
    }

    /// The quotas that keys are given.
    pub(in crate::compile) fn quotas(&self) -> impl Iterator<Item = &KeyQuotas> {
        self.lines.iter().filter_map(|(_, line)| line.quotas.as_ref())
    }

    /// Reports the quotas that this policy cannot have.
    pub(in crate::compile) fn check_quotas(&self, policy: &Policy, problems: &mut Problems<'_>) {
        for (place, line) in &*self.lines {
            if let Some(KeyQuotas::Quotas(quotas)) = &line.quotas
                && let Err(error) = policy.under(quotas)
            {
                problems.error_in(
                    &self.file.0.display().to_string(),
                    Some(*place),
                    error.problem().to_owned(),
                );
            }
        }
    }

    /// The line of a request's key, if it is listed.
    pub(in crate::compile) fn line(&self, request: RequestView<'_>) -> Option<Arc<KeyGrant>> {
        self.find(request).ok().map(|(_, _, line)| line)
    }

    /// The sha256 of a request's key, if it is listed.
    pub(in crate::compile) fn name(&self, request: RequestView<'_>) -> Option<String> {
        let (_, sum, _) = self.find(request).ok()?;
        Some(sum.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn find(&self, request: RequestView<'_>) -> Result<(Key, Sum, Arc<KeyGrant>), MissingKey> {
        // The extractor defines a key, and refuses two of them.
        let key = match self.extractor.extract(request).now() {
            Ok(key) => key?,
            Err(_) => return Err(MissingKey::new("the API key is not known at once")),
        };
        let shown = request.headers.get(&self.header).map(|value| value.as_bytes().trim_ascii());
        let sum: Sum = Sha256::digest(shown.unwrap_or_default()).into();
        match self.keys.get(&sum) {
            Some(line) => Ok((key, sum, Arc::clone(line))),
            None => Err(MissingKey::new("the API key is not known")),
        }
    }
}

impl KeyExtractor for ApiKeys {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        self.find(request).map(|(key, _, _)| key).into()
    }

    fn forms(&self) -> Vec<KeyForm> {
        self.extractor.forms()
    }
}

/// The keys, and each of their lines once.
type KeyGrants = (HashMap<Sum, Arc<KeyGrant>>, Vec<(Position, Arc<KeyGrant>)>);

/// Reads the file. A mistake is reported only by its line number, because the line may hold a key instead of its digest.
fn lines(name: &str, bytes: &[u8], problems: &mut Problems<'_>) -> Option<KeyGrants> {
    let fail = |problems: &mut Problems<'_>, place: Option<Position>, text: &str| {
        problems.error_in(name, place, format!("{text}; write {FORM}"));
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        fail(problems, None, "it is not UTF-8");
        return None;
    };
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: 1_000_000, max_events: 2_000_000 },
        with_snippet: false,
    };
    let given: Named<At<KeyLine>> = match serde_saphyr::from_str_with_options(text, options) {
        Ok(given) => given,
        Err(error) => {
            let text = match &error {
                serde_saphyr::Error::DuplicateMappingKey { .. } => "a key is there twice",
                _ => "this is no line of an API key",
            };
            fail(problems, error.location().map(Position::of), text);
            return None;
        }
    };
    if given.0.is_empty() {
        fail(problems, None, "it lists no API key");
    }
    let before = problems.count();
    let mut keys = HashMap::with_capacity(given.0.len());
    let mut known: HashMap<Arc<KeyGrant>, Position> = HashMap::new();
    for (digest, said) in given.0 {
        let Some(sum) = sum(&digest.value) else {
            fail(problems, Some(digest.place), "this is not the sha256 of a key, of 64 hexadecimal digits");
            continue;
        };
        let Some(line) = line(said, name, problems) else { continue };
        let shared = known.get_key_value(&line).map(|(line, _)| Arc::clone(line));
        let shared = shared.unwrap_or_else(|| {
            let line = Arc::new(line);
            known.insert(Arc::clone(&line), digest.place);
            line
        });
        if keys.insert(sum, shared).is_some() {
            fail(problems, Some(digest.place), "a key is there twice");
        }
    }
    let lines = known.into_iter().map(|(line, place)| (place, line)).collect();
    (problems.count() == before).then_some((keys, lines))
}

/// Reads the text after the digest of a key, in the file of this name. Returns `None` if it is wrong, which is reported.
fn line(said: At<KeyLine>, name: &str, problems: &mut Problems<'_>) -> Option<KeyGrant> {
    let entry = match said.value {
        KeyLine::Text(tier) => return Some(KeyGrant { tier: Some(tier), quotas: None }),
        KeyLine::Entry(entry) => entry,
    };
    let KeyEntry { tier, quota } = *entry;
    if tier.is_none() && quota.is_none() {
        let text = format!("neither a tier nor a quota is said of this key; write {FORM}");
        problems.error_in(name, Some(said.place), text);
        return None;
    }
    let quotas = match &quota {
        None => None,
        Some(quota) => {
            let mut here = Problems::of(name, "");
            let quotas = own_quotas(quota, &mut here);
            problems.add_all(here);
            Some(quotas?)
        }
    };
    Some(KeyGrant { tier: tier.map(|tier| tier.value), quotas })
}

/// The form of a line of the file.
const FORM: &str = "a line for each key with its sha256 (printf %s \"$KEY\" | sha256sum) and its tier, as 2cf2…9824: pro, or { tier: pro, quota: 500/min }";

fn sum(text: &str) -> Option<Sum> {
    let mut sum = [0; 32];
    if text.len() != 2 * sum.len() || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in sum.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(sum)
}

/// Makes extractors that verify tokens in the same way, each for a claim.
pub(super) struct Verifier {
    jwt: BearerJwt,
    /// The file that the key was read from.
    pub(super) file: Option<(PathBuf, Vec<u8>)>,
}

impl Verifier {
    pub(super) fn of(section: &At<Jwt>, folder: Option<&Path>, problems: &mut Problems<'_>) -> Option<Self> {
        let Jwt { hs256, public_key_file, audience, issuer } = &section.value;
        let (place, jwt, file) = match (hs256, public_key_file) {
            (Some(secret), None) => (secret.place, BearerJwt::hs256(secret.value.as_bytes()), None),
            (None, Some(file)) => {
                let path =
                    folder.map_or_else(|| file.value.clone().into(), |folder| folder.join(&file.value));
                match crate::read::bytes(&path, crate::read::MOST_BYTES) {
                    Ok(key) => {
                        let jwt = BearerJwt::rs256(&key).or_else(|_| BearerJwt::es256(&key));
                        (file.place, jwt, Some((path, key)))
                    }
                    Err(problem) => {
                        problems.error(file.place, format!("the file with the public key: {problem}"));
                        return None;
                    }
                }
            }
            _ => {
                problems.error(section.place, "say either \"hs256\", with a secret, or \"public_key_file\"");
                return None;
            }
        };
        for text in [hs256, audience, issuer].into_iter().flatten() {
            is_unknown(text, "a placeholder", problems);
        }
        for empty in [audience, issuer].into_iter().flatten().filter(|text| text.value.is_empty()) {
            problems.error(empty.place, "it is empty, so nothing would be checked: leave the word out, or write what tokens must name");
        }
        let jwt = jwt.map_err(|error| problems.error(place, error.problem())).ok()?;
        let jwt = audience.iter().fold(jwt, |jwt, audience| jwt.audience(&audience.value));
        let jwt = issuer.iter().fold(jwt, |jwt, issuer| jwt.issuer(&issuer.value));
        Some(Self { jwt, file })
    }

    /// An extractor of the key in this claim.
    pub(super) fn claim(&self, claim: &str) -> BearerJwt {
        self.jwt.clone().claim(claim)
    }
}
