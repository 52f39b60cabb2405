//! How instances share permits: [`Sharing`].

use std::time::Duration;

use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::policy::OnOutage;

/// The way in which the instances of a service share the permits of a limit; set by
/// [`InFlightBuilder`](crate::InFlightBuilder).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharing {
    /// The time after which the permits of a silent instance are given to others.
    pub lease: Duration,
    /// The treatment of requests while the store gives no answer.
    pub on_outage: OnOutage,
    /// The number of instances: in an outage, each has its part of the permits.
    pub replicas: u64,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), on_outage: OnOutage::Local, replicas: 1 }
    }
}

impl Sharing {
    pub(crate) fn check(&self, name: &str) -> Result<(), ConfigError> {
        const LEASES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3_600)];
        let Self { lease, on_outage, replicas } = self;
        let problem = if *lease < LEASES[0] || *lease > LEASES[1] {
            format!("cannot have a lease of {lease:?}: use 1 s to 1 h")
        } else if *replicas == 0 {
            "cannot be shared by 0 instances: use 1 or more".to_owned()
        } else if let OnOutage::Quota(quota) = on_outage {
            format!(
                "counts no requests per time, so {quota} cannot stand for it in an outage: use `Local`, `Allow` or `Deny`"
            )
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Policy, format!("{name:?} {problem}")))
    }
}
