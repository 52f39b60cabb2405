//! Actions of an operator: looking keys up, and acting on them.
//!
//! All of it asks the store, so it is so for all instances that share it. Each change is a line in the log, under the
//! target `sluicegate::audit`, with the name of the operator; a key is in it as it may be shown.

mod key;
mod look_up;
mod policy;
mod room;
mod target;

pub(crate) use self::key::{KeyAction, act_on_key};
pub(crate) use self::look_up::{LookedUp, QuotaStanding, Standing, StrikesStanding, look_up};
pub(crate) use self::policy::{Changed, all_to_shadow, change, withdraw};
pub(crate) use self::room::{RoomChanged, change_room};
