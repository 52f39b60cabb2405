//! The names of observed stores, unique in this process: [`Name`].

use std::collections::BTreeSet;
use std::sync::Mutex;

use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::policy::check_name;

use super::lock::lock;

/// A name that no other observed store of this process has, until it is dropped.
#[derive(Debug)]
pub(super) struct Name(String);

static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Name {
    pub(super) fn take(name: String) -> Result<Self, ConfigError> {
        check_name("name for an observed store", &name)?;
        let is_free = lock(&TAKEN).insert(name.clone());
        if is_free {
            return Ok(Self(name));
        }
        let problem =
            format!("another observed store of this process is named {name:?}: give each a name of its own");
        Err(ConfigError::new(ConfigErrorKind::NameTaken, problem))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        lock(&TAKEN).remove(&self.0);
    }
}
