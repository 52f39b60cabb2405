//! The bandwidth limits of a request: [`BodyHolds`].

use http::Extensions;

use crate::admission::set::{BuiltLimits, Limits};
use crate::admission::shadow::Shadows;
use crate::bandwidth::{Direction, Paced, Pacer, UploadSlot};

/// Limits that delay bodies, each with its index.
#[derive(Debug)]
pub(super) struct BodyHolds {
    limits: Vec<(usize, Paced)>,
    shadows: Shadows,
}

impl BodyHolds {
    pub(super) fn of(limits: &Limits) -> Box<Self> {
        Box::new(Self { limits: Vec::new(), shadows: limits.shadows().clone() })
    }

    pub(super) fn add(&mut self, limit: usize, paced: Paced) {
        self.limits.push((limit, paced));
    }

    /// The limits that delay bodies of this direction.
    fn pacer(&self, made: &BuiltLimits, which: fn(Direction) -> bool) -> Option<Pacer> {
        let limits = self.limits.iter().filter(|(limit, _)| is_for(made, *limit, which));
        Pacer::new(limits.map(|(_, paced)| paced.clone()), self.shadows.clone())
    }

    /// Delays the body of the request with these extensions.
    pub(super) fn hold_upload(&self, made: &BuiltLimits, extensions: &Extensions) {
        let Some(pacer) = self.pacer(made, Direction::is_up) else { return };
        match extensions.get::<UploadSlot>() {
            Some(slot) => slot.put(pacer),
            None => self.report_unheld(made, Direction::is_up, "put an `UploadLayer` around the layer"),
        }
    }

    /// The limits that delay the body of the response, which is possible if `reads_body`.
    pub(super) fn of_download(&self, made: &BuiltLimits, reads_body: bool) -> Option<Pacer> {
        let pacer = self.pacer(made, Direction::is_down)?;
        if !reads_body {
            self.report_unheld(made, Direction::is_down, "make the layer by `.settling()`");
        }
        Some(pacer)
    }

    #[cold]
    fn report_unheld(&self, made: &BuiltLimits, which: fn(Direction) -> bool, how: &str) {
        if let Some((limit, _)) = self.limits.iter().find(|(limit, _)| is_for(made, *limit, which)) {
            made.report_unheld(*limit, how);
        }
    }
}

fn is_for(made: &BuiltLimits, limit: usize, which: fn(Direction) -> bool) -> bool {
    made.plan.limits[limit].bandwidth.is_some_and(which)
}
