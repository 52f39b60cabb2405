//! The units that a request spends before its cost is known: [`Reserve`].

use http::header::HeaderName;
use sluicegate_core::ConfigError;

use crate::json::FieldPath;
use crate::key::RequestView;
use crate::key::text::header_name;
use crate::request_fields::RequestFields;
use crate::settle::rule::number_in;

/// The units that a request reserves, as stated in the request; see [`Limit::reserve`](crate::Limit::reserve).
///
/// ```
/// use sluicegate_tower::settle::Reserve;
///
/// // A request without the field reserves 4,096 units, and no request more than 32,768.
/// let reserve = Reserve::header("x-max-tokens", 4096)?.at_most(32_768);
/// # let _ = reserve;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until a limit has it"]
pub struct Reserve {
    said: ReserveSource,
    missing: u64,
    at_least: u64,
    at_most: Option<u64>,
}

/// The place in the request.
#[derive(Clone, Debug)]
enum ReserveSource {
    Header(HeaderName),
    Field(String),
}

impl Reserve {
    /// The number in a field of the request, or `missing` if there is no such field.
    ///
    /// # Errors
    /// When `name` cannot be the name of a field.
    pub fn header(name: &str, missing: u64) -> Result<Self, ConfigError> {
        Ok(Self::by(ReserveSource::Header(header_name(name)?), missing))
    }

    /// The number in a field of the request's JSON, such as `max_tokens`, or `missing` if there is no such field. It needs a
    /// [`RequestFieldsLayer`](crate::request_fields::RequestFieldsLayer) around the limits that reads this field.
    ///
    /// # Errors
    /// When `field` is not the path of a JSON field.
    pub fn json(field: &str, missing: u64) -> Result<Self, ConfigError> {
        let path = FieldPath::parse(field)?;
        Ok(Self::by(ReserveSource::Field(path.to_string()), missing))
    }

    fn by(said: ReserveSource, missing: u64) -> Self {
        Self { said, missing, at_least: 1, at_most: None }
    }

    /// Sets the fewest units that a request reserves, even if it states less. Default: 1; with 0 the limit does not apply to a
    /// request that states 0.
    pub fn at_least(mut self, units: u64) -> Self {
        self.at_least = units;
        self
    }

    /// Sets the most units that a request reserves, even if it states more; a value that is not a whole number (`2000.0` and `2e3` are
    /// 2000), and a body that cannot be read, reserve these, too. Default: no bound; a
    /// request is then refused with 403 if it states more than the limit ever lets pass at once.
    pub fn at_most(mut self, units: u64) -> Self {
        self.at_most = Some(units);
        self
    }

    /// The units of a request.
    pub(crate) fn of(&self, request: RequestView<'_>) -> u64 {
        let number = match &self.said {
            ReserveSource::Header(name) => {
                let mut values = request.headers.get_all(name).iter();
                // Of two numbers, a service may read either.
                values.next().map(|_| number_in(request.headers, name).filter(|_| values.next().is_none()))
            }
            ReserveSource::Field(field) => RequestFields::of(request).and_then(|fields| {
                let is_there = !fields.is_readable() || fields.has(field);
                is_there.then(|| fields.number(field))
            }),
        };
        match number {
            Some(Some(number)) => number.min(self.at_most.unwrap_or(u64::MAX)).max(self.at_least),
            Some(None) => self.at_most.unwrap_or(self.missing),
            None => self.missing,
        }
    }
}
