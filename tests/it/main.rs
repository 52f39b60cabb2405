//! Limits over real sockets, with a real client: what only shows when a server, a router and a connection are
//! around the layer. The store's clock is turned by hand, so that nothing depends on how fast the machine is.
//!
//! Parts of `./tests/run` that have a folder of their own are modules here: all are linked once.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod api;
mod attribute;
mod examples;
mod facade;
mod features;
mod files;
mod foreign;
mod headings;
mod invented;
mod links;
mod manifest;
mod migration;
mod nginx;
#[path = "../operate/mod.rs"]
mod operate;
#[path = "../overflow/mod.rs"]
mod overflow;
mod pages;
mod proxy;
mod recipes;
#[path = "../rules/mod.rs"]
mod rules;
#[path = "../serve/mod.rs"]
mod serve;
mod stores;
mod support;
mod threats;
