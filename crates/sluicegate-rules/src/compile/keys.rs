//! Whose bucket a request spends from, by the words of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluicegate_core::{ConfigError, Key};
use sluicegate_tower::key::{ApiKey, BearerJwt, HeaderKey};
use sluicegate_tower::{ClientIp, KeyExtractor, PeerIp};

use super::number;
use crate::at::At;
use crate::error::Problems;
use crate::read::short;
use crate::schema::{Clients, File, Jwt};

type Extractor = Arc<dyn KeyExtractor>;

/// The sections that say how keys are found.
pub(super) struct Keys {
    client: Option<ClientIp>,
    /// How tokens are verified, without the claim; nothing if the section is missing or wrong.
    jwt: Option<Verifier>,
    has_jwt: bool,
    named: Vec<(At<String>, Vec<At<String>>)>,
}

impl Keys {
    pub(super) fn of(file: &File, folder: Option<&Path>, problems: &mut Problems<'_>) -> Self {
        let client = file.clients.as_ref().and_then(|clients| client(clients, problems));
        let jwt = file.jwt.as_ref().and_then(|jwt| Verifier::of(jwt, folder, problems));
        let named = file.keys.0.iter().map(|(name, list)| (name.clone(), list.all())).collect();
        let keys = Self { client, jwt, has_jwt: file.jwt.is_some(), named };
        for (name, list) in &keys.named {
            if WORDS.contains(&&*name.value) {
                let text = format!("{:?} is a word of this file already: choose another name", name.value);
                problems.error(name.place, text);
            }
            for word in list {
                keys.one(word, &[], problems);
            }
        }
        keys
    }

    /// The first key of a list that a request has.
    pub(super) fn first_of(&self, words: &[At<String>], problems: &mut Problems<'_>) -> Option<Extractor> {
        let mut all: Option<Extractor> = None;
        for word in words {
            for word in &self.resolved(word) {
                let names: Vec<_> = self.named.iter().map(|(name, _)| &*name.value).collect();
                let next = self.one(word, &names, problems)?;
                all = Some(match all {
                    None => next,
                    Some(before) => Arc::new(before.or(next)),
                });
            }
        }
        all
    }

    /// A word, or what its list holds if it names one.
    pub(super) fn resolved(&self, word: &At<String>) -> Vec<At<String>> {
        let list = self.named.iter().find(|(name, _)| name.value == word.value);
        list.map_or_else(|| vec![word.clone()], |(_, list)| list.clone())
    }

    /// Other files that keys were read from, and what they held.
    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.jwt.iter().filter_map(|jwt| jwt.file.clone()).collect()
    }

    /// Whether clients can choose such a key freely: what they write is verified by nobody.
    pub(super) fn is_unverified(word: &str) -> bool {
        matches!(call(word), Some(("header" | "api_key", _)))
    }

    fn one(&self, word: &At<String>, names: &[&str], problems: &mut Problems<'_>) -> Option<Extractor> {
        let mut wrong = |error: ConfigError| problems.error(word.place, error.problem());
        match (&*word.value, call(&word.value)) {
            ("everybody", _) => Some(Arc::new(Key::from("everybody"))),
            ("peer", _) => Some(Arc::new(PeerIp::new())),
            ("client", _) => Some(match &self.client {
                Some(client) => Arc::new(client.clone()),
                None => Arc::new(PeerIp::new()),
            }),
            (_, Some(("header", name))) => {
                HeaderKey::new(name).map_err(wrong).map(|key| Arc::new(key) as _).ok()
            }
            (_, Some(("api_key", name))) => {
                ApiKey::header(name).map_err(wrong).map(|key| Arc::new(key) as _).ok()
            }
            (_, Some(("jwt", claim))) => match (&self.jwt, self.has_jwt) {
                (Some(jwt), _) => jwt.claim(claim).map_err(&mut wrong).map(|key| Arc::new(key) as _).ok(),
                (None, true) => None,
                (None, false) => {
                    problems.error(
                        word.place,
                        "this needs the section \"jwt\", which says how tokens are verified",
                    );
                    None
                }
            },
            _ => {
                let mut text = format!(
                    "{:?} is not a key: use client, peer, everybody, api_key(header), jwt(claim), header(name)",
                    short(&word.value)
                );
                if !names.is_empty() {
                    text.push_str(&format!(", or one of {} under \"keys\"", names.join(", ")));
                }
                problems.error(word.place, text);
                None
            }
        }
    }

    /// The extractor of the address of clients.
    pub(super) fn client(&self) -> Option<&ClientIp> {
        self.client.as_ref()
    }

    /// How tokens are verified, for tiers that a claim says.
    pub(super) fn verifier(&self) -> Option<&Verifier> {
        self.jwt.as_ref()
    }
}

/// Words that name a key.
const WORDS: [&str; 6] = ["client", "peer", "everybody", "api_key", "jwt", "header"];

/// The two parts of `word(argument)`.
pub(super) fn call(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once('(')?;
    Some((word, rest.strip_suffix(')')?.trim()))
}

fn client(section: &At<Clients>, problems: &mut Problems<'_>) -> Option<ClientIp> {
    let given = &section.value;
    let mut client = match (&given.proxies, &given.hops) {
        (Some(proxies), None) => {
            let networks = proxies.all();
            let before = problems.count();
            for network in &networks {
                if let Err(error) = ClientIp::behind([&network.value]) {
                    problems.error(network.place, error.problem());
                }
            }
            if problems.count() > before {
                return None;
            }
            ClientIp::behind(networks.iter().map(|network| &network.value))
        }
        (None, Some(hops)) => ClientIp::hops(
            usize::try_from(number(hops, "a number of proxies", 1..=32, problems)?).unwrap_or(32),
        ),
        _ => {
            problems.error(
                section.place,
                "say either \"proxies\", by their networks, or \"hops\", by their number",
            );
            return None;
        }
    };
    if let Some(header) = &given.header {
        client = match &*header.value.to_ascii_lowercase() {
            "forwarded" => client.map(ClientIp::forwarded),
            "x-forwarded-for" => client,
            other => client.and_then(|client| client.header(other)),
        };
    }
    if let Some(bits) = &given.ipv6_prefix {
        let bits = number(bits, "a number of bits", 1..=128, problems)?;
        client = client.and_then(|client| client.ipv6_prefix(u8::try_from(bits).unwrap_or(128)));
    }
    client.map_err(|error| problems.error(section.place, error.problem())).ok()
}

/// Makes extractors that verify tokens in the same way, each for a claim.
pub(super) struct Verifier {
    how: How,
    /// Where the key was read.
    file: Option<(PathBuf, Vec<u8>)>,
    audience: Option<String>,
    issuer: Option<String>,
}

enum How {
    Hs256(String),
    PublicKey(Vec<u8>),
}

impl Verifier {
    fn of(section: &At<Jwt>, folder: Option<&Path>, problems: &mut Problems<'_>) -> Option<Self> {
        let Jwt { hs256, public_key_file, audience, issuer } = &section.value;
        let (place, how, file) = match (hs256, public_key_file) {
            (Some(secret), None) => (secret.place, How::Hs256(secret.value.clone()), None),
            (None, Some(file)) => {
                let path =
                    folder.map_or_else(|| file.value.clone().into(), |folder| folder.join(&file.value));
                match std::fs::read(&path) {
                    Ok(key) => (file.place, How::PublicKey(key.clone()), Some((path, key))),
                    Err(error) => {
                        problems.error(
                            file.place,
                            format!("the file {} cannot be read: {error}", path.display()),
                        );
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
            How::Hs256(secret) => BearerJwt::hs256(secret.as_bytes())?,
            How::PublicKey(pem) => BearerJwt::rs256(pem).or_else(|_| BearerJwt::es256(pem))?,
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
