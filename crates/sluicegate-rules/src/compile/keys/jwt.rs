//! The verification of tokens: the section `jwt`.

use std::path::{Path, PathBuf};

use sluicegate_core::ConfigError;
use sluicegate_tower::key::BearerJwt;

use crate::at::At;
use crate::error::Problems;
use crate::read::MOST_BYTES;
use crate::schema::Jwt;

/// Makes extractors that verify tokens in the same way, each for a claim.
pub(super) struct Verifier {
    how: VerificationKey,
    /// The file that the key was read from.
    pub(super) file: Option<(PathBuf, Vec<u8>)>,
    audience: Option<String>,
    issuer: Option<String>,
}

enum VerificationKey {
    Hs256(String),
    PublicKey(Vec<u8>),
}

impl Verifier {
    pub(super) fn of(section: &At<Jwt>, folder: Option<&Path>, problems: &mut Problems<'_>) -> Option<Self> {
        let Jwt { hs256, public_key_file, audience, issuer } = &section.value;
        let (place, how, file) = match (hs256, public_key_file) {
            (Some(secret), None) => (secret.place, VerificationKey::Hs256(secret.value.clone()), None),
            (None, Some(file)) => {
                let path =
                    folder.map_or_else(|| file.value.clone().into(), |folder| folder.join(&file.value));
                match crate::read::bytes(&path, MOST_BYTES) {
                    Ok(key) => (file.place, VerificationKey::PublicKey(key.clone()), Some((path, key))),
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
        for empty in [audience, issuer].into_iter().flatten().filter(|text| text.value.is_empty()) {
            problems.error(empty.place, "it is empty, so nothing would be checked: leave the word out, or write what tokens must name");
        }
        let text = |text: &Option<At<String>>| text.as_ref().map(|text| text.value.clone());
        let verifier = Self { how, file, audience: text(audience), issuer: text(issuer) };
        match verifier.claim("sub") {
            Ok(_) => Some(verifier),
            Err(error) => {
                problems.error(place, error.problem());
                None
            }
        }
    }

    /// An extractor of the key in this claim.
    pub(super) fn claim(&self, claim: &str) -> Result<BearerJwt, ConfigError> {
        let mut jwt = match &self.how {
            VerificationKey::Hs256(secret) => BearerJwt::hs256(secret.as_bytes())?,
            VerificationKey::PublicKey(pem) => BearerJwt::rs256(pem).or_else(|_| BearerJwt::es256(pem))?,
        };
        if let Some(audience) = &self.audience {
            jwt = jwt.audience(audience);
        }
        if let Some(issuer) = &self.issuer {
            jwt = jwt.issuer(issuer);
        }
        Ok(jwt.claim(claim))
    }
}
