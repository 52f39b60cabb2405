//! The API keys that are known, by their digests: the section `api_keys`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderName;
use sha2::{Digest as _, Sha256};
use sluicegate_core::Key;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{ApiKey, Extraction, KeyForm, MissingKey, RequestView};

use crate::at::{At, Place};
use crate::error::Problems;
use crate::read;
use crate::schema::{ApiKeysEntry, Named};

/// The largest file of API keys that is read: some 200,000 of them.
const MOST_BYTES: usize = 16 << 20;

/// The sha256 of a key.
type Sum = [u8; 32];

/// The API keys that are known, each with its tier. Clones share them.
#[derive(Clone)]
pub(in crate::compile) struct ApiKeys {
    header: HeaderName,
    extractor: ApiKey,
    tiers: Arc<HashMap<Sum, Arc<str>>>,
    pub(super) file: (PathBuf, Vec<u8>),
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
        let tiers = tiers(&path.display().to_string(), &bytes, problems)?;
        let (header, extractor) = name?;
        Some(Self { header, extractor, tiers: Arc::new(tiers), file: (path, bytes) })
    }

    /// The tiers that keys are given.
    pub(in crate::compile) fn tiers(&self) -> impl Iterator<Item = &str> {
        self.tiers.values().map(|tier| &**tier)
    }

    /// The tier of a request's key, if it is listed.
    pub(in crate::compile) fn tier(&self, request: RequestView<'_>) -> Option<Arc<str>> {
        self.find(request).ok().map(|(_, _, tier)| tier)
    }

    /// The sha256 of a request's key, if it is listed.
    pub(in crate::compile) fn name(&self, request: RequestView<'_>) -> Option<String> {
        let (_, sum, _) = self.find(request).ok()?;
        Some(sum.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn find(&self, request: RequestView<'_>) -> Result<(Key, Sum, Arc<str>), MissingKey> {
        // The extractor says what is one key, and refuses two of them.
        let key = match self.extractor.extract(request).now() {
            Ok(key) => key?,
            Err(_) => return Err(MissingKey::new("the API key is not known at once")),
        };
        let shown = request.headers.get(&self.header).map(|value| value.as_bytes().trim_ascii());
        let sum: Sum = Sha256::digest(shown.unwrap_or_default()).into();
        match self.tiers.get(&sum) {
            Some(tier) => Ok((key, sum, Arc::clone(tier))),
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

/// Reads the file. A mistake is told by its line alone, because a key may stand where its digest should.
fn tiers(name: &str, bytes: &[u8], problems: &mut Problems<'_>) -> Option<HashMap<Sum, Arc<str>>> {
    let fail = |problems: &mut Problems<'_>, place: Option<Place>, text: &str| {
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
    let lines: Named<At<String>> = match serde_saphyr::from_str_with_options(text, options) {
        Ok(lines) => lines,
        Err(error) => {
            let text = match &error {
                serde_saphyr::Error::DuplicateMappingKey { .. } => "a key is there twice",
                _ => "this is no line of an API key",
            };
            fail(problems, error.location().map(Place::of), text);
            return None;
        }
    };
    if lines.0.is_empty() {
        fail(problems, None, "it lists no API key");
    }
    let before = problems.count();
    let mut tiers = HashMap::with_capacity(lines.0.len());
    let mut names: HashMap<String, Arc<str>> = HashMap::new();
    for (digest, tier) in lines.0 {
        let Some(sum) = sum(&digest.value) else {
            fail(problems, Some(digest.place), "this is not the sha256 of a key, of 64 hexadecimal digits");
            continue;
        };
        let shared = names.entry(tier.value).or_insert_with_key(|tier| tier.as_str().into());
        if tiers.insert(sum, Arc::clone(shared)).is_some() {
            fail(problems, Some(digest.place), "a key is there twice");
        }
    }
    (problems.count() == before).then_some(tiers)
}

/// A line of the file.
const FORM: &str =
    "a line for each key with its sha256 (printf %s \"$KEY\" | sha256sum) and its tier, as 2cf2…9824: pro";

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
