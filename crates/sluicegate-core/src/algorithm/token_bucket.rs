//! Token bucket: the three ways to refill it.

use super::{Checked, FixedWindow, Gcra, Refill, Rule};
use crate::error::ConfigError;

/// A bucket of `burst` tokens that starts full; a unit of cost takes one.
///
/// [`Refill::Greedy`] adds tokens continuously and is GCRA: a bucket that lacks `n` tokens is one whose theoretical
/// arrival time lies `n * period / limit` ahead. [`Refill::Interval`] adds `limit` tokens at the end of each period,
/// counted from the moment a full bucket was first drawn from, [`Refill::AlignedInterval`] on whole multiples of
/// the period since the clock's epoch.
///
/// # Source
/// RFC 2697 section 3 (the committed bucket); the refill modes are Bucket4j's (`refillGreedy`, `refillIntervally`,
/// `refillIntervallyAligned`). Deviation: a bucket back at full is forgotten, so the interval mode counts anew from
/// the next draw instead of from the bucket's creation.
///
/// # Rounding
/// None; see GCRA.
pub(super) fn rule(quota: Checked, refill: Refill) -> Result<Rule, ConfigError> {
    Ok(match refill {
        Refill::Greedy => Rule::Gcra(Gcra::new(quota)?),
        Refill::Interval => Rule::FixedWindow(FixedWindow::new(quota, false)?),
        Refill::AlignedInterval => Rule::FixedWindow(FixedWindow::new(quota, true)?),
    })
}
