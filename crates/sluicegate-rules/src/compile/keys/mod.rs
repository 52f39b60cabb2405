//! The keys of requests, as a file names them.

mod api_keys;
mod client;
mod word;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluicegate_core::ConfigError;
use sluicegate_tower::key::{ApiKey, BearerJwt, Cookie, HeaderKey, Networks, RequestMethod, RequestPath};
use sluicegate_tower::request_fields::FieldKey;

pub(super) use self::api_keys::ApiKeys;
use self::api_keys::Verifier;
pub(super) use self::client::{ClientAddress, networks_of};
pub(crate) use self::word::GivenKeys;
pub(super) use self::word::{KeyWords, QueryParameters, host_of};
use self::word::{PartKey, Word};
use super::descriptor::DescriptorKey;
use crate::at::At;
use crate::error::Problems;
use crate::schema::File;
use crate::shown::short;

/// The sections that define keys.
pub(super) struct Keys {
    /// `None` if the section is wrong, which it reports; so is the peer's.
    client: Option<ClientAddress>,
    peer: Option<ClientAddress>,
    /// The proxies that the file names.
    proxies: Option<Networks>,
    /// Verifies tokens, without the claim; `Some(None)` if the section is wrong, which it reports.
    jwt: Option<Option<Verifier>>,
    /// The listed keys; `Some(None)` if the section is wrong, which it reports.
    api_keys: Option<Option<ApiKeys>>,
    named: Vec<(At<String>, Vec<At<String>>)>,
    /// The names of keys that the program finds itself.
    pub given: Vec<String>,
}

impl Keys {
    /// Reads the sections of a file. The program finds the keys that are `given`, and those of which the file says so.
    pub(super) fn of(
        file: &File,
        folder: Option<&Path>,
        given: &[String],
        problems: &mut Problems<'_>,
    ) -> Self {
        let [client, peer] = client::addresses(file.clients.as_ref(), problems);
        let proxies = file.clients.as_ref().and_then(|clients| clients.value.proxies.as_ref());
        let proxies = proxies
            .and_then(|proxies| Networks::new(proxies.all().iter().map(|network| &network.value)).ok());
        let jwt = file.jwt.as_ref().map(|jwt| Verifier::of(jwt, folder, problems));
        let named = file.keys.0.iter().map(|(name, list)| (name.clone(), list.all()));
        let (of_program, named): (Vec<_>, Vec<_>) =
            named.partition(|(_, list)| matches!(&list[..], [one] if one.value == OF_PROGRAM));
        let of_program = of_program.into_iter().map(|(name, _)| name.value);
        let given = of_program.chain(given.iter().cloned()).collect();
        let api_keys = file.api_keys.as_ref().map(|keys| ApiKeys::of(keys, folder, problems));
        let keys = Self { client, peer, proxies, jwt, api_keys, named, given };
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

    /// The key of these words, of which the first that a request has counts; `None` if one is wrong, which is reported, and without words.
    pub(super) fn key(&self, words: &[At<String>], problems: &mut Problems<'_>) -> Option<KeyWords> {
        let names: Vec<_> = self.named.iter().map(|(name, _)| &*name.value).collect();
        let words = words.iter().flat_map(|word| self.resolved(word));
        let words: Option<Vec<Word>> = words.map(|word| self.one(&word, &names, problems)).collect();
        words.filter(|words| !words.is_empty()).map(|words| KeyWords(words.into()))
    }

    /// A word, or the words of the list that it names.
    pub(super) fn resolved(&self, word: &At<String>) -> Vec<At<String>> {
        let list = self.named.iter().find(|(name, _)| name.value == word.value);
        list.map_or_else(|| vec![word.clone()], |(_, list)| list.clone())
    }

    /// The fields of the body that a word names as its key.
    pub(super) fn body_fields(word: &str) -> impl Iterator<Item = &str> {
        word.split(JOINED).filter_map(Self::body_field)
    }

    fn body_field(word: &str) -> Option<&str> {
        match call(word.trim())? {
            ("body", field) => Some(field),
            ("folded", inner) => Self::body_field(inner),
            _ => None,
        }
    }

    /// Other files that keys were read from, and their contents.
    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let of_jwt = self.jwt.iter().flatten().filter_map(|jwt| jwt.file.clone());
        of_jwt.chain(self.all_listed().map(|keys| keys.file.clone())).collect()
    }

    /// Whether clients can choose such a key freely, because it is not verified.
    pub(super) fn is_unverified(word: &str) -> bool {
        word.split(JOINED).any(|part| {
            matches!(call(part), Some(("header" | "api_key" | "body" | "folded" | "query" | "cookie", _)))
                || matches!(part, "path" | "host")
        })
    }

    /// A key that clients write, but that a proxy in front has verified, according to the file.
    fn verified_before(&self, word: &At<String>, inner: &str, problems: &mut Problems<'_>) -> Option<Word> {
        if !Self::is_unverified(inner) {
            let text = format!(
                "verified_before is about a key that clients write, as verified_before(header(x-user)), and {:?} is not one: leave verified_before out",
                short(inner)
            );
            problems.error(word.place, text);
            return None;
        }
        let inner = At { value: inner.to_owned(), place: word.place };
        self.one(&inner, &[], problems).map(|word| Word::VerifiedBefore(Box::new(word)))
    }

    fn one(&self, word: &At<String>, names: &[&str], problems: &mut Problems<'_>) -> Option<Word> {
        if word.value.contains(JOINED) {
            let parts =
                word.value.split(JOINED).map(|part| At { value: part.trim().to_owned(), place: word.place });
            let parts: Option<Vec<_>> = parts.map(|part| self.one(&part, names, problems)).collect();
            return parts.map(Word::Each);
        }
        if problems.hidden().iter().any(|(_, value)| word.value.contains(&**value)) {
            problems.error(
                word.place,
                "a variable is not put into a key, because clients are shown it: write it out",
            );
            return None;
        }
        let mut wrong = |error: ConfigError| problems.error(word.place, error.problem());
        match (&*word.value, call(&word.value)) {
            ("everybody", _) => Some(Word::Everybody),
            ("descriptor", _) => Some(Word::Descriptor(DescriptorKey::Whole(None))),
            (name, _) if self.given.iter().any(|given| given == name) => {
                Some(Word::OfProgram(name.to_owned()))
            }
            ("path", _) => Some(Word::Plain(Arc::new(RequestPath::new()))),
            ("method", _) => Some(Word::Plain(Arc::new(RequestMethod))),
            ("host", _) => Some(Word::Plain(Arc::new(PartKey::Host))),
            ("route", _) => Some(Word::Plain(Arc::new(PartKey::Route))),
            (_, Some(("query", name))) if !name.is_empty() => {
                Some(Word::Plain(Arc::new(PartKey::Query(name.to_owned()))))
            }
            (_, Some(("cookie", name))) => {
                let cookie = Cookie::new(name).map_err(&mut wrong).ok()?;
                Some(Word::Secret(Arc::new(cookie)))
            }
            ("peer", _) => Some(Word::Plain(self.peer.clone()?.extractor())),
            ("client", _) => Some(Word::Plain(self.client.clone()?.extractor())),
            (_, Some(("client", bits))) => {
                let bits = client::prefix(&At { value: bits.to_owned(), place: word.place }, problems)?;
                self.client.clone()?.ipv6_prefix(bits).ok().map(|client| Word::Plain(client.extractor()))
            }
            ("api_key", _) => self.listed(word, problems).cloned().map(Word::Listed),
            (_, Some(("header", name))) => {
                let key = HeaderKey::new(name).map_err(&mut wrong).ok()?;
                Some(Word::Header(name.parse().ok()?, key))
            }
            (_, Some(("body", field))) => {
                let key = FieldKey::new(field).map_err(&mut wrong).ok()?;
                Some(Word::Field(key))
            }
            (_, Some(("folded", inner))) => {
                match self.one(&At { value: inner.to_owned(), place: word.place }, &[], problems)? {
                    Word::Field(key) => Some(Word::Field(key.folded())),
                    _ => {
                        let text = format!(
                            "folded is about a field of the body, as folded(body(user)), and {:?} is not one",
                            short(inner)
                        );
                        problems.error(word.place, text);
                        None
                    }
                }
            }
            (_, Some(("descriptor", entry))) if !entry.is_empty() => {
                Some(Word::Descriptor(DescriptorKey::Entry(entry.to_owned())))
            }
            (_, Some(("api_key", name))) => {
                ApiKey::header(name).map_err(wrong).map(|secret| Word::Secret(Arc::new(secret))).ok()
            }
            (_, Some(("verified_before", inner))) => self.verified_before(word, inner, problems),
            (_, Some(("jwt", claim))) => {
                self.claim(word, claim, problems).map(|jwt| Word::Claim(jwt, claim.to_owned()))
            }
            _ => {
                let mut text = format!(
                    "{:?} is not a key: use client, client(48), peer, everybody, api_key, api_key(header), jwt(claim), header(name), query(name), cookie(name), body(field), path, host, route, method, folded(body(field)), verified_before(header(name)), descriptor, descriptor(entry), several as client + path, or a key of the program, which the section \"keys\" lists as user: program",
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

    /// The address of clients; `None` if the section is wrong, which it reports.
    pub(super) fn client(&self) -> Option<&ClientAddress> {
        self.client.as_ref()
    }

    /// The proxies that the file names.
    pub(super) fn proxies(&self) -> Option<&Networks> {
        self.proxies.as_ref()
    }

    /// The extractor of a claim of verified tokens; `None` if there is none, which is reported here or by the section.
    pub(super) fn claim(
        &self,
        word: &At<String>,
        claim: &str,
        problems: &mut Problems<'_>,
    ) -> Option<Arc<BearerJwt>> {
        let jwt = section(
            &self.jwt,
            word,
            "this needs the section \"jwt\", which says how tokens are verified",
            problems,
        )?;
        Some(Arc::new(jwt.claim(claim)))
    }

    /// The listed keys; `None` if there are none, which is reported here or by the section.
    pub(super) fn listed(&self, word: &At<String>, problems: &mut Problems<'_>) -> Option<&ApiKeys> {
        let missing = "this needs the section \"api_keys\", which lists the keys that are known";
        section(&self.api_keys, word, missing, problems)
    }

    /// The listed keys, if the section exists and is valid.
    pub(super) fn all_listed(&self) -> Option<&ApiKeys> {
        self.api_keys.as_ref()?.as_ref()
    }
}

/// The contents of a section that a word needs.
fn section<'s, T>(
    section: &'s Option<Option<T>>,
    word: &At<String>,
    missing: &str,
    problems: &mut Problems<'_>,
) -> Option<&'s T> {
    if section.is_none() {
        problems.error(word.place, missing);
    }
    section.as_ref()?.as_ref()
}

/// The value of a name under `keys` whose key the program finds itself.
const OF_PROGRAM: &str = "program";

/// Words that name a key.
const WORDS: [&str; 16] = [
    "client",
    "peer",
    "everybody",
    "api_key",
    "jwt",
    "header",
    "body",
    "folded",
    "verified_before",
    "descriptor",
    "query",
    "cookie",
    "path",
    "host",
    "route",
    "method",
];

/// Stands between the parts of one key, each of which a request must have.
pub(super) const JOINED: &str = " + ";

/// The two parts of `word(argument)`.
pub(super) fn call(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once('(')?;
    Some((word, rest.strip_suffix(')')?.trim()))
}
