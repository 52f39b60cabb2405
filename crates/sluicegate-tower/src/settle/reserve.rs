//! The units that a request spends before its cost is known: [`Reserve`].

use http::header::HeaderName;
use sluicegate_core::ConfigError;

use crate::key::RequestView;
use crate::key::text::header_name;
use crate::settle::rule::number_in;

/// The units that a request spends at first, as it says itself; see [`Limit::reserve`](crate::Limit::reserve).
///
/// ```
/// use sluicegate_tower::settle::Reserve;
///
/// // A request that says nothing reserves 4,096 units, and none more than 32,768.
/// let reserve = Reserve::header("x-max-tokens", 4096)?.at_most(32_768);
/// # let _ = reserve;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until a limit has it"]
pub struct Reserve {
    header: HeaderName,
    missing: u64,
    at_least: u64,
    at_most: Option<u64>,
}

impl Reserve {
    /// The number in a field of the request, or `missing` where there is no such field.
    ///
    /// # Errors
    /// When `name` cannot be the name of a field.
    pub fn header(name: &str, missing: u64) -> Result<Self, ConfigError> {
        Ok(Self { header: header_name(name)?, missing, at_least: 1, at_most: None })
    }

    /// Sets the fewest units that a request reserves, whatever it says. Default: 1; with 0 the limit does not apply to a request that
    /// says 0.
    pub fn at_least(mut self, units: u64) -> Self {
        self.at_least = units;
        self
    }

    /// Sets the most units that a request reserves, whatever it says, and those of a request that says something else than a number.
    /// Default: no bound; a request is then refused with 403 if it asks for more than the limit ever lets pass at once.
    pub fn at_most(mut self, units: u64) -> Self {
        self.at_most = Some(units);
        self
    }

    /// The units of a request.
    pub(crate) fn of(&self, request: RequestView<'_>) -> u64 {
        let said = match request.headers.contains_key(&self.header) {
            true => number_in(request.headers, &self.header).or(self.at_most).unwrap_or(self.missing),
            false => self.missing,
        };
        said.min(self.at_most.unwrap_or(u64::MAX)).max(self.at_least)
    }
}
