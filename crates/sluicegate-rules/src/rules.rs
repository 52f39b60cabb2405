//! Rules that are in force: [`Rules`].

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_core::limiter::{Inherit, Overrides};
use sluicegate_core::{Policy, RateLimiter, Store};
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::limits::{Limits, LimitsHandle};

use crate::changes::Changes;
use crate::error::RulesError;
use crate::explain::Explainer;
use crate::file::RulesFile;
#[cfg(feature = "metrics")]
use crate::metrics::Meter;
use crate::reload::Listeners;
use crate::source::{Read, Source};
use crate::variables::Variables;

/// The rules that a service has in force on a store. Clones are the same rules.
///
/// ```
/// use sluicegate_core::MemoryStore;
/// use sluicegate_rules::{Rules, RulesFile, Variables};
///
/// let text = "
/// version: 1
/// policies:
///   login: { quota: 5/min, on_outage: deny }
/// rules:
///   - { name: login, only_if: { path: /login, method: POST }, limit: login, key: client }
/// ";
/// let file = |text| RulesFile::parse("rules.yaml", text, &Variables::none());
/// let rules = Rules::new(&MemoryStore::new(), file(text)?)?;
/// let layer = rules.layer();
///
/// // Later, while the layer serves: what was spent counts.
/// let changes = rules.replace(file(&text.replace("5/min", "10/min"))?)?;
/// assert_eq!(changes.to_string(), "changed login 5/min -> 10/min, what was spent counts");
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Rules(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    limits: LimitsHandle,
    pub(crate) source: Option<Source>,
    /// The policies of the file that is in force, and its text. Locked while it changes: one change at a time.
    pub(crate) in_force: Mutex<InForce>,
    pub(crate) listeners: Listeners,
    #[cfg(feature = "metrics")]
    pub(crate) meter: Meter,
}

pub(crate) struct InForce {
    policies: Vec<Policy>,
    /// The policies of code that those of the file have replaced, by name.
    code: HashMap<String, Policy>,
    pub(crate) explainer: Arc<Explainer>,
    pub(crate) read: Option<Read>,
    /// What was wrong with the file when it was read last.
    pub(crate) error: Option<RulesError>,
}

impl Rules {
    /// Puts a file in force on a store: all of its policies, or none. A policy of the file replaces one of its name in code, an
    /// attribute's too, and what was spent counts; when it leaves the file, that of code is in force again, where code had opened
    /// it before.
    ///
    /// # Errors
    /// When the store cannot keep a policy exactly.
    pub fn new(store: impl Into<Arc<dyn Store>>, file: RulesFile) -> Result<Self, RulesError> {
        Self::of(store.into(), &file, None, None)
    }

    /// Reads a file and puts it in force; [`reload`](Self::reload) reads it again.
    ///
    /// # Errors
    /// When the file cannot be read, with all that is wrong with it, and when the store cannot keep a policy exactly.
    pub fn open(
        store: impl Into<Arc<dyn Store>>,
        path: impl Into<PathBuf>,
        variables: Variables,
    ) -> Result<Self, RulesError> {
        let source = Source { path: path.into(), variables };
        let (text, file) = source.read(None)?.ok_or_else(|| source.error("it has no text"))?;
        Self::of(store.into(), &file, Some(text), Some(source))
    }

    fn of(
        store: Arc<dyn Store>,
        file: &RulesFile,
        text: Option<String>,
        source: Option<Source>,
    ) -> Result<Self, RulesError> {
        let mut in_force = InForce {
            policies: Vec::new(),
            code: HashMap::new(),
            explainer: Arc::new(Explainer::of(&file.compiled)),
            read: None,
            error: None,
        };
        let limits = in_force.put(&store, file)?;
        in_force.read = text.map(|text| Read { text, files: file.compiled.files.clone() });
        Ok(Self(Arc::new(Inner {
            limits: LimitsHandle::new(limits),
            source,
            in_force: Mutex::new(in_force),
            listeners: Listeners::default(),
            #[cfg(feature = "metrics")]
            meter: Meter::loaded_at(store.now_us()),
            store,
        })))
    }

    /// Puts another file in the place of the one that is in force, in one step. What was spent counts; a request keeps the
    /// limits that it began with. Says what has changed.
    ///
    /// # Errors
    /// When the store cannot keep one of its policies; nothing has changed then.
    pub fn replace(&self, file: RulesFile) -> Result<Changes, RulesError> {
        let changes = self.put(&mut self.0.in_force.lock().unwrap_or_else(PoisonError::into_inner), &file)?;
        self.tell(Some(Ok(Some(&changes))));
        Ok(changes)
    }

    pub(crate) fn put(&self, in_force: &mut InForce, file: &RulesFile) -> Result<Changes, RulesError> {
        let before = in_force.policies.clone();
        // Requests that have begun are decided by the policies that their limits are pinned to.
        self.0.limits.swap(in_force.put(&self.0.store, file)?);
        in_force.error = None;
        let changes = Changes::between(&before, &in_force.policies);
        Ok(changes.under(&Overrides::of(Arc::clone(&self.0.store))))
    }

    /// The limits as they are now.
    pub fn limits(&self) -> Limits {
        self.0.limits.current()
    }

    /// A layer with these rules, which follows each change.
    pub fn layer(&self) -> RateLimitLayer {
        self.0.limits.clone().into()
    }
}

impl InForce {
    /// Opens or replaces all policies, and makes the limits of them; or leaves all as it was. What leaves the file is again as
    /// code has it.
    fn put(&mut self, store: &Arc<dyn Store>, file: &RulesFile) -> Result<Limits, RulesError> {
        let policies = &file.compiled.policies;
        let names =
            |all: &[Policy]| all.iter().map(|policy| policy.name().to_owned()).collect::<HashSet<_>>();
        let (before, after) = (names(&self.policies), names(policies));
        let news = policies.iter().filter(|policy| !before.contains(policy.name()));
        let open = news.filter_map(|policy| store.limiters().get(policy.name()));
        let code: Vec<Policy> = open.map(|limiter| Policy::clone(&limiter.own_policy())).collect();
        let gone = self.policies.iter().filter(|old| !after.contains(old.name()));
        let back: Vec<Policy> = gone.filter_map(|gone| self.code.get(gone.name()).cloned()).collect();
        let all: Vec<Policy> = policies.iter().chain(&back).cloned().collect();
        let limits = RateLimiter::replace_all_with(Arc::clone(store), all, Inherit::Spent, |limiters| {
            file.compiled.limits(store, &limiters[..policies.len()])
        });
        let limits = limits.map_err(|error| RulesError::of_file(&file.name, &error.to_string()))?;
        for policy in back {
            self.code.remove(policy.name());
        }
        self.code.extend(code.into_iter().map(|policy| (policy.name().to_owned(), policy)));
        self.policies.clone_from(policies);
        self.explainer = Arc::new(Explainer::of(&file.compiled));
        Ok(limits)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}
