//! Keys that are a part of a request: [`PartKey`].

use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{Extraction, RequestView};

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
