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
//! # When not to use it
//! For limits that only a programmer changes: in code they are checked when it is compiled.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod at;
mod changes;
mod compile;
mod error;
mod file;
mod read;
mod rules;
mod schema;
mod variables;
mod watch;

pub use self::changes::Changes;
pub use self::error::{Problem, RulesError};
pub use self::file::RulesFile;
pub use self::rules::Rules;
pub use self::schema::json_schema;
pub use self::variables::Variables;
