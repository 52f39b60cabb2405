//! Keys that are a part of a request: [`PartKey`]; and keys that the program finds itself: [`GivenKey`].

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{Extraction, KeyForm, RequestView};

use crate::compile::condition::{QueryParameters, host_of};

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

/// The extractors of the program, by their names in the file. They are known once a program puts the file in force.
pub(crate) type GivenKeys = BTreeMap<String, Arc<dyn KeyExtractor>>;

/// A key that the program finds itself, by its name.
#[derive(Clone)]
pub(in crate::compile) struct GivenKey {
    pub name: String,
    pub all: Arc<OnceLock<GivenKeys>>,
}

impl GivenKey {
    fn extractor(&self) -> Option<&Arc<dyn KeyExtractor>> {
        self.all.get()?.get(&self.name)
    }
}

impl KeyExtractor for GivenKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match self.extractor() {
            Some(extractor) => extractor.extract(request),
            None => Extraction::missing(format!("the program finds the key {}, and no tool does", self.name)),
        }
    }

    fn kind(&self) -> KeyKind {
        self.extractor().map_or(KeyKind::Secret, |extractor| extractor.kind())
    }

    fn is_invented(&self) -> bool {
        self.extractor().is_some_and(|extractor| extractor.is_invented())
    }

    fn forms(&self) -> Vec<KeyForm> {
        self.extractor().map_or_else(|| vec![KeyForm::text()], |extractor| extractor.forms())
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
