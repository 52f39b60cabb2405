//! Who may come to the page, and from where.

mod guard;
mod origin;
mod secret;

pub(crate) use self::guard::{Guard, Visitor};
pub(crate) use self::origin::{Hosts, Origin, is_own};
pub(crate) use self::secret::Secret;
