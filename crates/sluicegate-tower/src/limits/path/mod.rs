//! The one language for paths, in code ([`path_in`]) and in rules files (`path`), and how a request's path is compared with it.
//!
//! For the rules of a file, which are compared as [`path_in`] compares; not for applications.
//!
//! A [`PathPattern`] is what an operator writes, [`spellings`] are what a client may have meant, and a [`Fold`] is what the two may
//! differ in.

mod path_in;
mod pattern;
mod reading;
mod spelling;

pub use self::path_in::{PathReading, path_in, path_not_in};
pub use self::pattern::{PathPattern, PathSegment, split};
pub use self::reading::{Fold, Sense};
pub use self::spelling::{Spellings, has_dots, percent_decoded, spellings};
pub use crate::key::extraction::Purpose;
