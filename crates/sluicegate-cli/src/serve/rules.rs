//! Opening the rules and their store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use sluicegate_core::{MemoryStore, Store};
use sluicegate_observed::Observed;
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_rules::{Rules, RulesFile, Variables};

use crate::replay::chain;

/// The rules file, and the store of its counts.
#[derive(Args)]
pub(crate) struct RulesSource {
    /// The rules file. A change of it takes effect within a second.
    #[arg(long, value_name = "RULES", env = "SLUICEGATE_RULES")]
    rules: PathBuf,
    /// The Redis that all instances share, if the rules file names no store:
    /// redis://127.0.0.1:6379 [env: REDIS_URL] [default: the memory of this
    /// process].
    #[arg(long, value_name = "URL", hide_env = true)]
    store: Option<String>,
}

impl RulesSource {
    /// The rules in force, and their observed store.
    pub(super) fn open(&self) -> Result<(Rules, Observed), String> {
        let file = RulesFile::read(&self.rules, &Variables::environment());
        let file = file.map_err(|error| error.to_string())?;
        for warning in file.warnings() {
            tracing::warn!("{warning}");
        }
        let variables = Variables::environment();
        let builder = Rules::builder().open_all_policies();
        let store = match (file.store_kind(), &self.store) {
            (Some(_), Some(_)) => {
                let path = self.rules.display();
                return Err(format!(
                    "error: {path} names a store, and --store names another: remove one of them"
                ));
            }
            (Some(kind), None) => {
                let mut around = Err(String::new());
                let rules = builder.from_file_within(&self.rules, variables, |store| -> Arc<dyn Store> {
                    around = observed(kind, Arc::clone(&store));
                    around.as_ref().map_or(store, Into::into)
                });
                return Ok((rules.map_err(|error| error.to_string())?, around?));
            }
            (None, Some(url)) => Some(url.clone()),
            // The lowest precedence: a rules file may use the variable itself.
            (None, None) => std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty()),
        };
        let observed = match store {
            None => observed("memory", MemoryStore::new())?,
            Some(url) => {
                let redis = RedisStore::connect(&url).map(Resilient::new);
                observed("redis", redis.map_err(|error| format!("error: {}", chain(&error)))?)?
            }
        };
        let rules = builder.open(&observed, &self.rules, variables);
        Ok((rules.map_err(|error| error.to_string())?, observed))
    }

    pub(super) fn path(&self) -> &Path {
        &self.rules
    }
}

fn observed(kind: &'static str, store: impl Into<Arc<dyn Store>>) -> Result<Observed, String> {
    Observed::named(kind, store).map_err(|error| format!("error: {}", chain(&error)))
}
