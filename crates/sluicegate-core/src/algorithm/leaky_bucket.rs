//! Leaky bucket: GCRA in the words of queues.

use super::{Checked, Drain, Gcra, Rule};
use crate::error::ConfigError;

/// The bucket holds `burst` units and leaks `limit` per `period`.
///
/// As a meter ([`Drain::Meter`]) it refuses what does not fit. As a queue ([`Drain::Queue`]) what fits waits until
/// what came before it has leaked out, so that the output is spaced exactly `period / limit`; a full queue refuses.
/// Between the two ([`Drain::QueueAbove`]) the first units pass without delay.
///
/// # Source
/// Turner, "New directions in communications" (1986), and ITU-T I.371 annex A.1 (continuous-state leaky bucket,
/// which equals GCRA). The delays are those of nginx's `ngx_http_limit_req_module`: its `burst=b` is `burst(b + 1)`
/// here, for there the request being served is not counted; `nodelay` is `Police`, `delay=n` is `ShapeAbove(n)`.
/// Deviations: rates are exact (nginx rounds to thousandths of a request per second), and a cost of `c` goes on
/// when its first unit may.
///
/// # Rounding
/// As GCRA: none.
pub(super) fn rule(quota: Checked, drain: Drain) -> Result<Rule, ConfigError> {
    let bucket = Gcra::new(quota)?;
    Ok(Rule::Gcra(match drain {
        Drain::Meter => bucket,
        Drain::Queue => bucket.delayed_above(0),
        Drain::QueueAbove(units) => bucket.delayed_above(units),
    }))
}
