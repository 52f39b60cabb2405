//! Explains which permit a request needs: [`InFlightExplained`].

use std::fmt;
use std::time::Duration;

use sluicegate_core::Key;
use sluicegate_in_flight::Class;

use crate::in_flight::InFlightLimit;
use crate::key::RequestView;
use crate::key::missing::Keyed;

/// The permit that a request needs by one limit; made by [`InFlightLimit::explain`].
///
/// A request needs one permit of the same name and key, however many limits ask for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InFlightExplained {
    /// The name of the [`InFlight`](sluicegate_in_flight::InFlight).
    pub name: String,
    /// The number of permits of each key; if the limit adapts, of all keys together now.
    pub permits: u64,
    /// The importance of the request, if the limit adapts.
    pub class: Option<Class>,
    /// Whether instances [share](sluicegate_in_flight::InFlightBuilder::on) the permits.
    pub is_shared: bool,
    /// The longest wait of the request for a permit; `None` if it does not wait.
    pub longest_wait: Option<Duration>,
    /// The permit that the request needs, or the reason why it needs none or is refused without one.
    pub asks: Result<PermitExplained, String>,
}

/// The key and the free permits of a request that needs a permit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitExplained {
    /// The key. [`shown`](Key::shown) shows as much of it as operators may see.
    pub key: Key,
    /// The number of free permits of this key; if instances share them, as of the store's last answer to this instance.
    pub remaining: u64,
}

impl InFlightLimit {
    /// Explains which permit a request needs, without taking it; `None` if this limit does not apply to the request. The key is looked up
    /// as for a permit, and warnings about a missing key may be logged here.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_in_flight::InFlight;
    /// use sluicegate_tower::in_flight::InFlightLimit;
    /// use sluicegate_tower::key::HeaderKey;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let reports = InFlight::new("reports", 2)?;
    /// let limit = InFlightLimit::new(reports.clone()).key(HeaderKey::new("x-tenant")?);
    /// let request = Request::get("/report").header("x-tenant", "t1").body(())?;
    /// let explained = limit.explain(&request).await.ok_or("it applies to all requests")?;
    /// assert_eq!((explained.permits, explained.asks?.remaining), (2, 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// It changes nothing, so dropping it has no effect.
    pub async fn explain<'a>(&self, request: impl Into<RequestView<'a>>) -> Option<InFlightExplained> {
        let request = request.into();
        if !self.applies_to(request) {
            return None;
        }
        let found = self.key.extract(request).await;
        let asks = match self.when_missing.read(found, || self.in_flight.name().to_owned()) {
            Keyed::Key(key) => Ok(PermitExplained { remaining: self.in_flight.remaining(&key), key }),
            Keyed::Skipped(missing) => Err(format!("it needs none, because {missing}")),
            Keyed::Rejected(missing, status) => {
                Err(format!("it is refused with {}, because {missing}", status.as_u16()))
            }
        };
        let (name, permits) = (self.in_flight.name().to_owned(), self.in_flight.permits());
        let (class, is_shared) = (self.class_of(request), self.in_flight.sharing().is_some());
        Some(InFlightExplained { name, permits, class, is_shared, longest_wait: self.longest, asks })
    }
}

/// `takes a permit of reports for "ada"; 1 of 2 left, waits up to 10s`; if instances share them, `1 of 2 left for all instances`, and
/// if the limit adapts, `takes a permit of api as critical; 12 of 60 left`
impl fmt::Display for InFlightExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, permits, class, is_shared, longest_wait, asks } = self;
        let PermitExplained { key, remaining } = match asks {
            Ok(asks) => asks,
            Err(why) => return write!(f, "takes no permit of {name}: {why}"),
        };
        match class {
            Some(class) => write!(f, "takes a permit of {name} as {class}; {remaining} of {permits} left")?,
            None => write!(f, "takes a permit of {name} for {}; {remaining} of {permits} left", key.shown())?,
        }
        if *is_shared {
            f.write_str(" for all instances")?;
        }
        longest_wait.map_or(Ok(()), |longest| write!(f, ", waits up to {longest:?}"))
    }
}
