//! A word of a file that names a key, and the parts of a request that are keys.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use http::{HeaderName, header};
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{BearerJwt, Extraction, HeaderKey, RequestView};
use sluicegate_tower::request_fields::{FieldKey, RejectUnreadable};

use super::api_keys::ApiKeys;
use crate::compile::descriptor::DescriptorKey;

/// A compiled word.
#[derive(Clone)]
pub(in crate::compile) enum Word {
    Everybody,
    /// A key that operators may read: the address of the client or of the peer, or a part of the request.
    Plain(Arc<dyn KeyExtractor>),
    /// Several keys, which are one together.
    Each(Vec<Self>),
    Header(HeaderName, HeaderKey),
    /// An unverified API key, or a cookie.
    Secret(Arc<dyn KeyExtractor>),
    /// A header field or an API key that a proxy in front has verified.
    VerifiedBefore(Box<Self>),
    /// A listed API key.
    Listed(ApiKeys),
    /// A claim of a verified token.
    Claim(Arc<BearerJwt>, String),
    /// A field of the JSON body.
    Field(FieldKey),
    /// A descriptor of Envoy's protocol, or an entry of it.
    Descriptor(DescriptorKey),
    /// A key that the program finds itself, by its name.
    OfProgram(String),
}

/// The words of a key, of which the first that a request has counts; at least one.
#[derive(Clone)]
pub(in crate::compile) struct KeyWords(pub(super) Arc<[Word]>);

impl KeyWords {
    /// The words where the program finds these keys.
    pub(in crate::compile) fn given(&self, keys: &GivenKeys) -> Self {
        Self(self.0.iter().map(|word| word.given(keys)).collect())
    }

    /// The words in a rule about descriptors with these entries.
    pub(in crate::compile) fn of_entries(&self, keys: &Arc<[String]>) -> Self {
        Self(self.0.iter().map(|word| word.of_entries(keys)).collect())
    }

    /// The words, before which requests are refused whose bodies cannot be read, if they are to be.
    pub(in crate::compile) fn rejecting_unreadable(&self) -> Self {
        Self([Word::Plain(Arc::new(RejectUnreadable))].into_iter().chain(self.0.iter().cloned()).collect())
    }

    /// The extractor that finds the key in requests.
    pub(in crate::compile) fn extractor(&self) -> Arc<dyn KeyExtractor> {
        let extractors = self.0.iter().map(Word::extractor);
        let all = extractors.reduce(|before, next| Arc::new(before.or(next)));
        all.expect("a key has at least one word")
    }

    /// The operators' name of a request's key, if the request has one.
    pub(in crate::compile) fn name(&self, request: RequestView<'_>) -> Option<String> {
        self.0.iter().find_map(|word| word.name(request))
    }
}

impl Word {
    /// The word where the program finds these keys.
    fn given(&self, keys: &GivenKeys) -> Self {
        match self {
            Self::OfProgram(name) => {
                keys.get(name).map_or_else(|| self.clone(), |key| Self::Plain(Arc::clone(key)))
            }
            Self::Each(words) => Self::Each(words.iter().map(|word| word.given(keys)).collect()),
            word => word.clone(),
        }
    }

    fn of_entries(&self, keys: &Arc<[String]>) -> Self {
        match self {
            Self::Descriptor(DescriptorKey::Whole(_)) => {
                Self::Descriptor(DescriptorKey::Whole(Some(Arc::clone(keys))))
            }
            Self::Each(words) => Self::Each(words.iter().map(|word| word.of_entries(keys)).collect()),
            word => word.clone(),
        }
    }

    /// The extractor that finds the key in requests.
    fn extractor(&self) -> Arc<dyn KeyExtractor> {
        match self {
            Self::Everybody => Arc::new(Key::from("everybody")),
            Self::Plain(plain) => Arc::clone(plain),
            Self::Each(words) => {
                let mut extractors = words.iter().map(Self::extractor);
                let first = extractors.next().unwrap_or_else(|| Arc::new(Key::from("everybody")));
                extractors.fold(first, |one, next| Arc::new((one, next)))
            }
            Self::Header(_, header) => Arc::new(header.clone()),
            Self::Secret(secret) => Arc::clone(secret),
            Self::VerifiedBefore(word) => Arc::new(word.extractor().verified_before()),
            Self::Listed(listed) => Arc::new(listed.clone()),
            Self::Claim(claim, _) => Arc::clone(claim) as _,
            Self::Field(key) => Arc::new(key.clone()),
            Self::Descriptor(key) => Arc::new(key.clone()),
            Self::OfProgram(name) => Arc::new(UnknownKey(name.clone())),
        }
    }

    /// The operators' name of a request's key, if the request has one.
    fn name(&self, request: RequestView<'_>) -> Option<String> {
        match self {
            Self::Everybody => Some("everybody".to_owned()),
            Self::Plain(plain) => Some(plain.extract(request).now().ok()?.ok()?.plain()),
            Self::Each(words) => {
                let names: Option<Vec<String>> = words.iter().map(|word| word.name(request)).collect();
                names.map(|names| names.join(" + "))
            }
            Self::Header(name, _) => {
                let value = request.headers.get(name)?.to_str().ok()?.trim_ascii();
                (!value.is_empty()).then(|| value.to_owned())
            }
            Self::Secret(secret) => secret.extract(request).now().ok()?.ok().map(|_| String::new()),
            Self::VerifiedBefore(word) => word.name(request),
            Self::Listed(listed) => listed.name(request),
            Self::Claim(jwt, claim) => jwt.verify(request).ok()?.text(claim).map(str::to_owned),
            Self::Field(key) => key.value(request).map(Cow::into_owned),
            Self::Descriptor(key) => key.name(request),
            Self::OfProgram(_) => None,
        }
    }
}

/// The longest value with a bucket of its own, in bytes.
const LONGEST: usize = 1_024;

/// A part of a request, as its client has written it.
#[derive(Clone)]
pub(super) enum PartKey {
    /// The value of this parameter of the query, decoded; of several different ones the first in the order of the alphabet.
    Query(String),
    /// The host without its port, in lower case.
    Host,
    /// The route of a router, such as `/users/{id}`.
    Route,
}

/// The extractors of the program, by their names in the file.
pub(crate) type GivenKeys = BTreeMap<String, Arc<dyn KeyExtractor>>;

/// A key of this name that the program finds, where no program does.
struct UnknownKey(String);

impl KeyExtractor for UnknownKey {
    fn extract(&self, _: RequestView<'_>) -> Extraction {
        Extraction::missing(format!("the program finds the key {}, and no tool does", self.0))
    }
}

impl PartKey {
    /// The part as text, if the request has it.
    fn of(&self, request: RequestView<'_>) -> Option<String> {
        match self {
            Self::Query(name) => {
                let parameters = QueryParameters::of(request.uri.query()?);
                parameters.values(name).filter(|value| !value.is_empty()).min().map(str::to_owned)
            }
            Self::Host => {
                let host = host_of(request)?;
                Some(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
            }
            Self::Route => request.route().map(str::to_owned),
        }
    }
}

impl KeyExtractor for PartKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match self.of(request) {
            // Cutting a text off could make two texts one key.
            Some(text) if text.len() > LONGEST => Extraction::found(Key::shared().and("oversize")),
            Some(text) => Extraction::found(text),
            None => Extraction::missing(match self {
                Self::Query(name) => format!("the query has no parameter {name}"),
                Self::Host => "the request names no host".to_owned(),
                Self::Route => "no route is known for this request".to_owned(),
            }),
        }
    }

    fn kind(&self) -> KeyKind {
        match self {
            Self::Query(_) => KeyKind::Secret,
            Self::Host | Self::Route => KeyKind::Name,
        }
    }
}

/// The parameters of a query, however they are encoded.
#[derive(Default)]
pub(in crate::compile) struct QueryParameters<'a> {
    pairs: HashSet<(Cow<'a, str>, Cow<'a, str>)>,
    names: HashSet<Cow<'a, str>>,
}

impl<'a> QueryParameters<'a> {
    pub(in crate::compile) fn of(query: &'a str) -> Self {
        let mut all = Self::default();
        for pair in query.split('&') {
            let (name, value) = form_urlencoded::parse(pair.as_bytes()).next().unwrap_or_default();
            all.names.insert(name.clone());
            all.pairs.insert((name, value));
        }
        all
    }

    /// The names and values, each pair once.
    pub(in crate::compile) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The values of the parameters with this name.
    pub(in crate::compile) fn values<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        let is_there = self.has_name(name);
        self.pairs().filter(move |(own, _)| is_there && *own == name).map(|(_, value)| value)
    }

    /// Whether a parameter of this name is there.
    pub(in crate::compile) fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// The host that a request names, without its port.
pub(in crate::compile) fn host_of<'a>(request: RequestView<'a>) -> Option<&'a str> {
    let authority = match request.uri.host() {
        Some(host) => return Some(host),
        None => request.headers.get(header::HOST)?.to_str().ok()?,
    };
    let end = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
    Some(&authority[..end.unwrap_or(authority.len())])
}
