//! Load that is too much for now, and is neither refused nor lost: a waiting room, lines that instances share, and deferred jobs.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

#[path = "../operate/browser.rs"]
#[expect(dead_code, reason = "what other tests need, too")]
mod browser;
mod deferred;
mod deferred_rules;
mod four;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "what other tests need, too")]
mod http;
mod killed;
mod lines;
mod room;
mod rules;
mod support;
mod upset;
