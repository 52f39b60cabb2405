//! The verbs of a limiter beyond a check: handles, replacing, giving back.

mod by_turns;
mod handles;
mod looks;
mod mixed;
mod modes;
mod outages;
mod overrides;
mod quotas;
mod refunds;
mod rejected;
mod replace;
mod replaced_together;
mod several;
mod spent;
mod starting;
mod up_to;
