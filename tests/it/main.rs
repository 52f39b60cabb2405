//! Limits over real sockets, with a real client: what only shows when a server, a router and a connection are
//! around the layer. The store's clock is turned by hand, so that nothing depends on how fast the machine is.
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
mod mistakes;
mod nginx;
mod pages;
mod proxy;
mod quickstart;
mod recipes;
mod stores;
mod support;
mod threats;
mod transport;
