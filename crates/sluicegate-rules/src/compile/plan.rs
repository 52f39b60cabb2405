//! Which tier a request is in, by what it says of itself: [`Plan`].
//!
//! The places of tiers are numbers, so that a condition compares no texts.

use std::sync::Arc;

use http::HeaderName;
use sluicegate_tower::key::{BearerJwt, RequestView};

use super::keys::{ApiKeys, Keys, call};
use crate::at::At;
use crate::error::Problems;
use crate::read::short;

/// How the tier of a request is read, for limits and for conditions alike. Tiers are told by their places.
pub(super) struct Plan {
    /// Its place among the tiers of the file.
    pub place: usize,
    pub name: String,
    pub tiers: Vec<String>,
    pub default_tier: usize,
    /// The first that is there counts.
    pub by: Vec<By>,
}

/// Where the tier of a request is read.
pub(super) enum By {
    Claim(Arc<BearerJwt>, String),
    ApiKey(ApiKeys),
    Header(HeaderName),
}

impl Plan {
    /// The tier that a request says, if it is one of these.
    pub(super) fn said(&self, request: RequestView<'_>) -> Option<usize> {
        let said = self.by.iter().find_map(|by| by.find(request))?;
        self.tiers.iter().position(|tier| *tier == said)
    }

    /// The tier of a request, which is the default one where it says none.
    pub(super) fn tier(&self, request: RequestView<'_>) -> usize {
        self.said(request).unwrap_or(self.default_tier)
    }
}

impl By {
    pub(super) fn of(word: &At<String>, keys: &Keys, problems: &mut Problems<'_>) -> Option<Self> {
        let found = match call(&word.value) {
            Some(("header", name)) => match name.parse() {
                Ok(name) => {
                    let text = "clients choose their tier freely by this header: let a proxy set it, or use jwt(claim) or api_key";
                    problems.warning(word.place, text);
                    Ok(Self::Header(name))
                }
                Err(_) => Err(format!("{:?} is not the name of a header field", short(name))),
            },
            Some(("jwt", claim)) => match keys.verifier().map(|jwt| jwt.map(|jwt| jwt.claim("sub"))) {
                Ok(Some(Ok(jwt))) => Ok(Self::Claim(Arc::new(jwt), claim.to_owned())),
                Ok(Some(Err(error))) => Err(error.problem().to_owned()),
                // It is told where the section stands.
                Ok(None) => return None,
                Err(missing) => Err(missing.to_owned()),
            },
            None if word.value == "api_key" => match keys.listed() {
                Ok(listed) => return listed.cloned().map(Self::ApiKey),
                Err(missing) => Err(missing.to_owned()),
            },
            _ => Err(format!(
                "{:?} does not say where a tier is read: use jwt(claim), api_key or header(name)",
                short(&word.value)
            )),
        };
        found.map_err(|text| problems.error(word.place, text)).ok()
    }

    /// The tier, if the request says one.
    fn find(&self, request: RequestView<'_>) -> Option<String> {
        match self {
            Self::ApiKey(keys) => keys.tier(request).map(|tier| tier.to_string()),
            Self::Header(name) => request.headers.get(name)?.to_str().ok().map(str::to_owned),
            Self::Claim(jwt, claim) => jwt.verify(request).ok()?.text(claim).map(str::to_owned),
        }
    }
}
