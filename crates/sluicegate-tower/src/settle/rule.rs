//! The place where the cost of a request is found in its response: [`Settle`].

use std::fmt;
use std::str::FromStr;

use http::header::{HeaderMap, HeaderName};
use sluicegate_core::ConfigError;

use crate::json::{FieldPath, whole_number};
use crate::key::text::{config_error, header_name, unreadable};

/// The most fields of one source.
const MOST_FIELDS: usize = 16;

/// Finds the cost of a request in its response; see [`Limit::settle`](crate::Limit::settle).
///
/// | source | the cost is |
/// |---|---|
/// | [`header`](Self::header), [`trailer`](Self::trailer) | the number in that field |
/// | [`json`](Self::json) | a field of the body's JSON object, or the sum of several; of a list of objects, or of one on each line (NDJSON), the last one that has a field counts |
/// | [`sse`](Self::sse) | such fields in the data of server-sent events; the last event that has a field counts |
/// | [`bytes`](Self::bytes) | the length of the body |
///
/// Several sources are tried in their order, by [`or`](Self::or). If none has a number, the reservation stays spent.
///
/// ```
/// use sluicegate_tower::settle::{OnAbort, Settle};
///
/// // An answer as JSON or as a stream of events; tokens of the answer cost four times as much as those of the prompt.
/// let prices = [("usage.prompt_tokens", 1), ("usage.completion_tokens", 4)];
/// let settle = Settle::json(prices)?.or(Settle::sse(prices)?).on_abort(OnAbort::Seen);
/// # let _ = settle;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until a limit has it"]
pub struct Settle {
    pub(super) sources: Vec<CostSource>,
    pub(super) on_abort: OnAbort,
}

/// The cost of a request whose response ends early: the client hangs up, or the body fails. Written `reserved` and `seen`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnAbort {
    /// The reserved units. A client cannot save units by hanging up.
    #[default]
    Reserved,
    /// The number that the response had stated until then: the bytes passed on, or the fields seen. If none was seen,
    /// the reserved units.
    Seen,
}

/// Fields of a JSON object, each with the units that one of its number costs, or below 0 takes off; see [`Settle::json`].
///
/// Made from a field such as `"usage.total_tokens"`, whose price is 1, or from fields with their prices. Nested names are separated by
/// dots.
#[derive(Clone, Debug)]
pub struct Prices(Vec<(String, i64)>);

/// A place where a cost may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CostSource {
    Header(HeaderName),
    Trailer(HeaderName),
    Json(Vec<(FieldPath, i64)>),
    Sse(Vec<(FieldPath, i64)>),
    Bytes,
}

impl Settle {
    /// The number in a field of the response's head.
    ///
    /// # Errors
    /// When `name` cannot be the name of a field.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::from(CostSource::Header(header_name(name)?)))
    }

    /// The number in a trailer field, as in gRPC.
    ///
    /// # Errors
    /// When `name` cannot be the name of a field.
    pub fn trailer(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::from(CostSource::Trailer(header_name(name)?)))
    }

    /// The sum of these fields of the body, which is a JSON object, a list of objects (Gemini), or an object on each line (NDJSON of Ollama);
    /// for each field, the last object that has it counts, and a missing field counts 0. Numbers that are not whole, or are negative, are
    /// ignored; `42.0` is whole. A price below 0 is subtracted, as for tokens from a cache, and a sum below 0 is 0.
    ///
    /// # Errors
    /// When a field is not the path of a JSON field, when a price is 0, or when there are no fields or more than 16.
    pub fn json(fields: impl Into<Prices>) -> Result<Self, ConfigError> {
        Ok(Self::from(CostSource::Json(fields.into().check()?)))
    }

    /// As [`json`](Self::json), for a body of server-sent events whose data are JSON objects. For each field, the last event that has it
    /// counts. Data that is not an object, such as `[DONE]`, is ignored.
    ///
    /// # Errors
    /// As for [`json`](Self::json).
    pub fn sse(fields: impl Into<Prices>) -> Result<Self, ConfigError> {
        Ok(Self::from(CostSource::Sse(fields.into().check()?)))
    }

    /// The length of the response's body, in bytes.
    pub fn bytes() -> Self {
        Self::from(CostSource::Bytes)
    }

    /// Tries the sources of `other` if this one finds no number.
    pub fn or(mut self, other: Self) -> Self {
        self.sources.extend(other.sources);
        self
    }

    /// Sets the cost of a request whose response ends early. Default: [`OnAbort::Reserved`].
    pub fn on_abort(mut self, on_abort: OnAbort) -> Self {
        self.on_abort = on_abort;
        self
    }

    /// The cost, if the head of a response is enough to find it.
    pub(crate) fn cost_in(&self, head: &HeaderMap) -> Option<u64> {
        let headers = self.sources.iter().map_while(|source| match source {
            CostSource::Header(name) => Some(name),
            _ => None,
        });
        headers.filter_map(|name| number_in(head, name)).next()
    }

    /// Whether the cost may come after the head of the response.
    pub(crate) fn reads_body(&self) -> bool {
        self.sources.iter().any(|source| !matches!(source, CostSource::Header(_)))
    }

    /// Whether the cost may be in the text of the body.
    pub(crate) fn reads_fields(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, CostSource::Json(_) | CostSource::Sse(_)))
    }
}

impl FromStr for OnAbort {
    type Err = ConfigError;

    /// Reads `reserved` or `seen`.
    ///
    /// # Errors
    /// [`Unreadable`](sluicegate_core::error::ConfigErrorKind::Unreadable) for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "reserved" => Ok(Self::Reserved),
            "seen" => Ok(Self::Seen),
            _ => {
                let problem =
                    "does not say what a response costs that ends early: use \"reserved\" or \"seen\"";
                Err(unreadable(text, problem))
            }
        }
    }
}

impl fmt::Display for OnAbort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserved => "reserved",
            Self::Seen => "seen",
        })
    }
}

/// `prompt_tokens + 4 * completion_tokens in the body, or else the trailer x-tokens`
impl fmt::Display for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, source) in self.sources.iter().enumerate() {
            let or_else = if place == 0 { "" } else { ", or else " };
            write!(f, "{or_else}{source}")?;
        }
        if self.on_abort == OnAbort::Seen {
            f.write_str("; what was seen of it, if it ends early")
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |fields: &[(FieldPath, i64)]| {
            let priced = |(path, price): &(FieldPath, i64)| match price {
                1 => path.to_string(),
                price => format!("{price} * {path}"),
            };
            fields.iter().map(priced).collect::<Vec<_>>().join(" + ").replace("+ -", "- ")
        };
        match self {
            Self::Header(name) => write!(f, "the header {name}"),
            Self::Trailer(name) => write!(f, "the trailer {name}"),
            Self::Json(fields) => write!(f, "{} in the body", sum(fields)),
            Self::Sse(fields) => write!(f, "{} in the events", sum(fields)),
            Self::Bytes => f.write_str("the length of the body"),
        }
    }
}

impl From<CostSource> for Settle {
    fn from(source: CostSource) -> Self {
        Self { sources: vec![source], on_abort: OnAbort::default() }
    }
}

impl Prices {
    fn check(self) -> Result<Vec<(FieldPath, i64)>, ConfigError> {
        let problem = match self.0.len() {
            0 => Some(
                "no field is named: name one that tells the cost, such as \"usage.total_tokens\"".to_owned(),
            ),
            1..=MOST_FIELDS => self.0.iter().find(|(_, price)| *price == 0).map(|(field, _)| {
                format!("the price of field {field:?} is 0: leave out a field that costs nothing")
            }),
            fields => Some(format!("{fields} fields tell the cost: at most {MOST_FIELDS} fit")),
        };
        match problem {
            Some(problem) => Err(config_error(problem)),
            None => self.0.iter().map(|(field, price)| Ok((FieldPath::parse(field)?, *price))).collect(),
        }
    }
}

impl From<&str> for Prices {
    fn from(field: &str) -> Self {
        Self(vec![(field.to_owned(), 1)])
    }
}

impl<S: Into<String>, const N: usize> From<[(S, i64); N]> for Prices {
    fn from(fields: [(S, i64); N]) -> Self {
        fields.into_iter().collect()
    }
}

impl<S: Into<String>> From<Vec<(S, i64)>> for Prices {
    fn from(fields: Vec<(S, i64)>) -> Self {
        fields.into_iter().collect()
    }
}

impl<S: Into<String>> FromIterator<(S, i64)> for Prices {
    fn from_iter<I: IntoIterator<Item = (S, i64)>>(fields: I) -> Self {
        Self(fields.into_iter().map(|(field, price)| (field.into(), price)).collect())
    }
}

/// The whole number in a field.
pub(super) fn number_in(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    whole_number(std::str::from_utf8(headers.get(name)?.as_bytes().trim_ascii()).ok()?)
}
