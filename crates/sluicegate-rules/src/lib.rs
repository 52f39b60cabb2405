//! Rate limits in a file: which requests meet which limits, in words that are the names of what they are in code.
//!
//! An operator changes the file, and the service follows without a deploy: all of a change takes effect in one step, or
//! nothing of it. What is wrong with a file is told with line and column, and changes nothing.
//!
//! ```
//! use sluicegate_core::MemoryStore;
//! use sluicegate_rules::{Rules, RulesFile, Variables};
//!
//! let file = RulesFile::parse("rules.yaml", r#"
//! version: 1
//! policies:
//!   login: { algorithm: sliding-log, quota: [5/min, 20/h], on_outage: deny }
//!   api: { quota: 100/min burst 20 }
//! exempt:
//!   - { name: open, only_if: { path: [/health, "/assets/{*file}"] } }
//! rules:
//!   - { name: login, group: endpoint, only_if: { path: /login, method: POST }, limit: login, key: client, refund_if: 2xx }
//!   - { name: rest, group: endpoint, limit: api, key: client }
//! "#, &Variables::environment())?;
//!
//! let rules = Rules::new(&MemoryStore::new(), file)?;
//! let layer = rules.layer(); // for any tower stack
//! # let _ = layer;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # While the service runs
//! [`Rules::open`] keeps where the file is. [`follow`](Rules::follow) reads it again when it changes,
//! [`reload_on_sighup`](Rules::reload_on_sighup) when the process gets that signal, and [`reload`](Rules::reload) when code says
//! so. One line in the log says what is kept, changed, added and removed. A file that is wrong changes nothing: it is logged
//! once, and a page hears of it by [`listen`](Rules::listen). With the feature `metrics`, `rate_limit_rules_reloads_total{result}`
//! counts files that were `loaded` and that were `wrong`, and `rate_limit_rules_loaded_timestamp_seconds` says since when those
//! in force are.
//!
//! # When not to use it
//! For limits that only a programmer changes: in code they are checked when it is compiled.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod at;
mod changes;
mod compile;
mod error;
mod explain;
mod file;
mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod read;
mod reload;
mod rules;
mod schema;
#[cfg(unix)]
mod sighup;
mod source;
mod variables;
mod watch;

pub use self::changes::Changes;
pub use self::error::{Problem, RulesError};
pub use self::explain::{Explained, RuleExplained, Section};
pub use self::file::RulesFile;
pub use self::layer::{RulesLayer, RulesService};
pub use self::rules::Rules;
pub use self::schema::json_schema;
pub use self::variables::Variables;
