//! Access to the page: its visitors, and the hosts they may come from.

mod guard;
mod origin;
mod secret;

pub(crate) use self::guard::{Guard, Visitor};
pub(crate) use self::origin::{Hosts, Origin, is_own};
pub(crate) use self::secret::Secret;
