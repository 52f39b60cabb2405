//! News of the rules, and its listeners: [`NewsListeners`].
//!
//! Listeners are called on the thread of the reload, one after the other. They are called after the new rules are in force.

use std::sync::{Arc, Mutex, MutexGuard};

use sluicegate_core::support::lock;

use crate::changes::Changes;
use crate::error::RulesError;

/// News for a listener: the changes that took effect; `None` if the file again equals the one in force; or its mistakes.
pub(crate) type News<'a> = Result<Option<&'a Changes>, &'a RulesError>;

type NewsListener = Arc<dyn Fn(News<'_>) + Send + Sync>;

/// All listeners.
#[derive(Default)]
pub(crate) struct NewsListeners {
    all: Mutex<Vec<NewsListener>>,
    /// Keeps news in the order of the changes.
    turn: Mutex<()>,
}

impl NewsListeners {
    /// Adds a listener permanently.
    pub(crate) fn add(&self, listener: impl Fn(News<'_>) + Send + Sync + 'static) {
        lock(&self.all).push(Arc::new(listener));
    }

    /// Taken before the next change can begin, and held until listeners know of this one.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Calls all listeners, without holding the lock: a listener may add another one.
    pub(crate) fn hear(&self, news: News<'_>) {
        let all = lock(&self.all).clone();
        all.iter().for_each(|listener| listener(news));
    }
}
