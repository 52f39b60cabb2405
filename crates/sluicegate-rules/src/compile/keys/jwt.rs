//! The verification of tokens: the section `jwt`.

use std::path::{Path, PathBuf};

use sluicegate_tower::key::BearerJwt;

use crate::at::At;
use crate::compile::is_unknown;
use crate::error::Problems;
use crate::read::MOST_BYTES;
use crate::schema::Jwt;

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
                match crate::read::bytes(&path, MOST_BYTES) {
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
