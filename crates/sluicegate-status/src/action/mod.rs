//! Actions of an operator: looking up keys, and acting on them.
//!
//! Every action asks the store, so it applies to all instances that share the store. Each change is a line in the log, under the target
//! `sluicegate::audit`, with the name of the operator; a key appears in its displayable form.

mod fault;
mod give;
mod input;
mod key;
mod policy;
mod room;
mod target;
mod verb;
mod written;

pub(crate) use self::fault::ActionFault;
pub(crate) use self::input::{Face, Input};
pub(crate) use self::verb::{Done, act, look_up};
