//! What an operator does from the page: looking keys up, and acting on them.

mod key;
mod look_up;
mod policy;
mod target;

pub(crate) use self::key::{KeyAction, act_on_key};
pub(crate) use self::look_up::{LookedUp, QuotaStanding, Standing, StrikesStanding, look_up};
pub(crate) use self::policy::{Changed, all_to_shadow, change, withdraw};
