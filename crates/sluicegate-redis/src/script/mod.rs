//! The script: what goes in, and what comes out.

mod command;
mod probe;
mod reply;

pub(crate) use self::command::command;
pub(crate) use self::probe::probe;
pub(crate) use self::reply::Reply;
