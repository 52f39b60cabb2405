//! Units that instances lease: spent ahead of requests, given back once, and never more than the bucket's bound.

mod bound;
mod bucket;
mod crossings;
mod plain;
mod scene;
mod windows;
