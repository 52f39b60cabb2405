//! The syntax for paths, in code ([`path_in`]) and in rules files (`path`), and its comparison with a request's path.
//!
//! It is public for rules files, which compare as [`path_in`] does; not for applications.
//!
//! An operator writes a [`PathPattern`], a request's path has [`spellings`], and a [`Fold`] sets the differences between the two
//! to ignore.

mod path_in;
mod pattern;
mod reading;
mod spelling;

pub use self::path_in::{PathReading, path_in, path_not_in};
pub use self::pattern::{PathPattern, PathSegment, split};
pub use self::reading::{Fold, Sense};
pub use self::spelling::{Spellings, has_dots, is_plain, spellings};
pub use crate::key::extraction::Purpose;
