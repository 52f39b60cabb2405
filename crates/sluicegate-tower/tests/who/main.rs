//! Who is asking: every input that could make one client count as another, or as many. One binary, a module per idea.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod address;
mod advisories;
mod configuration;
mod credentials;
#[cfg(feature = "jwt")]
mod jwt;
mod networks;
mod properties;
mod route;
mod support;
mod warnings;
