//! The outcome as one page, and as a picture: no script, no other file, no network.
//!
//! Both are drawn by the same code, as SVG made of whole numbers: no script, no font and no image is loaded, and the same outcome is the
//! same text each time, so that a picture in a repository changes only with its figures.

mod json;
mod page;
mod picture;
mod table;
