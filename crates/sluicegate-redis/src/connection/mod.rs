//! A connection that is looked after: requests use it or do without, and never wait for a server that is away.

mod probe;
mod send;
mod state;
mod supervised;
mod supervisor;

pub(crate) use self::probe::Probe;
pub(crate) use self::send::ScriptName;
pub(crate) use self::state::{State, part_of};
pub(crate) use self::supervised::Supervised;
