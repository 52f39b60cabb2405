//! Rules that are in force: [`Rules`].

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use sluicegate_core::Store;
use sluicegate_core::limiter::Overrides;
use sluicegate_core::store::IntoStore;
use sluicegate_core::support::lock;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::in_flight::InFlightHandle;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{ChosenQuotas, Limits, LimitsHandle};
use sluicegate_tower::request_fields::RequestFieldsLayer;

use crate::builder::RulesBuilder;
use crate::changes::Changes;
use crate::compile::Leases;
use crate::error::RulesError;
use crate::explain::{Explained, Explainer};
use crate::file::RulesFile;
use crate::in_force::{FileInForce, Put, refuse_two_stores};
use crate::layer::Deferring;
use crate::layer::RulesLayer;
use crate::layer::Unread;
#[cfg(feature = "metrics")]
use crate::metrics::ReloadMeter;
use crate::reload::NewsListeners;
use crate::reload::{FileContents, FileSource};
use crate::rooms::RoomsLayer;
use crate::variables::Variables;

/// The rules of a service in force on a store. Clones share them.
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
/// // Later, while the layer serves: spent units count.
/// let changes = rules.replace(file(&text.replace("5/min", "10/min"))?)?;
/// assert_eq!(changes.to_string(), "changed login 5/min -> 10/min, what was spent counts");
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # How a change takes effect
/// A change comes by [`replace`](Self::replace), [`reload`](Self::reload), [`follow`](Self::follow) or a signal, always in these steps, and
/// one change at a time:
///
/// 1. The text is read and understood. Any mistake in it ends the change here.
/// 2. New policies are opened, and changed ones are replaced: all of them, or none. Spent units count, so that no change gives a key a
///    fresh budget.
/// 3. The limits of all rules are swapped in one step. A request keeps the limits that it began with until its response has ended:
///    waits, refunds and meters included.
/// 4. Policies that left the file are restored to the policies of code, or are forgotten as their keys come to rest.
/// 5. Listeners are called, and the log gets a line.
///
/// The section `store` waits for a restart, and [`Changes::needs_restart`] says so.
///
/// | in the file | after the change |
/// |---|---|
/// | another `quota`, `algorithm` | keys keep their spent units; a key with more spent units than the new capacity waits until they fit |
/// | another `mode` | the same states, but enforced or not |
/// | another `key` of a rule | other buckets, which are at rest; the old ones come to rest |
/// | another name of a policy | another policy, whose keys begin at rest |
/// | another `permits` | permits in use count; above the new number, none is given until enough have come back |
/// | other rules, conditions, groups | apply to requests that begin from then on |
/// | another `quota` of a waiting room | its rate changes while visitors wait, and all keep their places; a rate set by an operator stays until the file changes the rate |
/// | another `room` | applies from then on; a room that has opened stays open, and issued passes keep their length |
/// | a waiting room that left | waiting visitors are admitted at their next request |
/// | a new waiting room | requests without a pass wait from then on; a request in progress continues |
/// | a rule that left | its policy is removed if no other rule names it |
/// | another `quota` of a policy that defers | waiting jobs are run at that rate; without the policy, at once |
///
/// ```
/// use http::Request;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_rules::{Rules, RulesFile, Variables};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = |quota: &str| {
///     let text = format!("
/// version: 1
/// policies: {{ api: {{ quota: {quota} }} }}
/// rules: [{{ name: all, limit: api, key: everybody }}]
/// ");
///     RulesFile::parse("rules.yaml", &text, &Variables::none())
/// };
/// let rules = Rules::new(&MemoryStore::new(), file("3/d")?)?;
/// let request = Request::get("/").body(())?;
/// for _ in 0..3 {
///     assert!(rules.limits().decide(&request).await.is_ok());
/// }
///
/// // Five a day: three of them are spent.
/// rules.replace(file("5/d")?)?;
/// assert!(rules.limits().decide(&request).await.is_ok());
/// assert!(rules.limits().decide(&request).await.is_ok());
/// assert!(rules.limits().decide(&request).await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Rules(pub(crate) Arc<RulesState>);

pub(crate) struct RulesState {
    pub store: Arc<dyn Store>,
    deferring: Option<Deferring>,
    doors: RoomsLayer,
    limits: LimitsHandle,
    in_flight: InFlightHandle,
    fields: RequestFieldsLayer,
    unread: Arc<Unread>,
    pub source: Option<FileSource>,
    /// The leases of the store, if it is the one that the file names.
    leases: Option<Leases>,
    /// The policies of the file in force, and its text. Locked while it changes: one change at a time.
    pub in_force: Mutex<FileInForce>,
    /// Explains requests by the rules of the limits. It is locked while both change, never while other code is called.
    pub explainer: Mutex<Arc<Explainer>>,
    pub listeners: NewsListeners,
    /// Whether no thread follows the file, or its last reading has panicked.
    pub has_failed: AtomicBool,
    #[cfg(feature = "metrics")]
    pub meter: ReloadMeter,
}

impl Rules {
    /// Puts a file in force on a store: all of its policies, or none. A policy of the file replaces a policy of its name in code, also one
    /// of an attribute, and spent units count; when it leaves the file, the policy of code is in force again, if code had opened it
    /// before.
    ///
    /// # Errors
    /// When the store cannot count a policy exactly, and when the file names a [store](RulesFile::open_store) itself.
    pub fn new(store: impl IntoStore, file: RulesFile) -> Result<Self, RulesError> {
        Self::builder().put(store, file)
    }

    /// Reads a file and puts it in force on the store that it names under `store`; [`reload`](Self::reload) reads it again.
    /// Another store in the file takes effect with a restart.
    ///
    /// ```
    /// use sluicegate_rules::{Rules, Variables};
    ///
    /// # let path = std::env::temp_dir().join(format!("sluicegate-from-file-{}.yaml", std::process::id()));
    /// # std::fs::write(&path, "version: 1\nstore: { memory: 100k keys }\npolicies: { api: { quota: 100/min } }\nrules: [{ name: all, limit: api, key: client }]\n")?;
    /// let rules = Rules::from_file(&path, Variables::environment())?;
    /// rules.follow();
    /// let layer = rules.layer();
    /// # let _ = layer;
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be read or names no store, with all of its mistakes, and when the store cannot be
    /// [opened](RulesFile::open_store) or cannot count a policy exactly.
    pub fn from_file(path: impl Into<PathBuf>, variables: Variables) -> Result<Self, RulesError> {
        Self::builder().from_file(path, variables)
    }

    /// As [`from_file`](Self::from_file), with a store around the file's store, such as an `Observed` store. `around` is called once,
    /// before a policy is opened.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn from_file_within<S: IntoStore>(
        path: impl Into<PathBuf>,
        variables: Variables,
        around: impl FnOnce(Arc<dyn Store>) -> S,
    ) -> Result<Self, RulesError> {
        Self::builder().from_file_within(path, variables, around)
    }

    /// Reads a file and puts it in force on this store; [`reload`](Self::reload) reads it again.
    ///
    /// # Errors
    /// When the file cannot be read or names a store itself, with all of its mistakes, and when the store cannot count a
    /// policy exactly.
    pub fn open(
        store: impl IntoStore,
        path: impl Into<PathBuf>,
        variables: Variables,
    ) -> Result<Self, RulesError> {
        Self::builder().open(store, path, variables)
    }

    pub(crate) fn of(
        (store, leases): (Arc<dyn Store>, Option<Leases>),
        file: &RulesFile,
        (text, source): (Option<String>, Option<FileSource>),
        builder: RulesBuilder,
    ) -> Result<Self, RulesError> {
        refuse_two_stores(leases.is_some(), file)?;
        let deferral = builder.deferral.clone();
        let mut in_force = FileInForce::of(file.compiled.store.clone(), builder);
        let Put { limits, split, at_once, doors, explainer } = in_force.put(&store, file)?;
        let (limits, in_flight) = (LimitsHandle::new(limits), InFlightHandle::new([]));
        let deferring = deferral.zip(split).map(|(deferral, split)| Deferring::new(deferral, split));
        in_flight.swap_with(at_once.before(&limits));
        let unread = Arc::<Unread>::default();
        unread.follow(&file.compiled);
        in_force.read = text.map(|text| FileContents { text, files: file.compiled.files.clone() });
        Ok(Self(Arc::new(RulesState {
            deferring,
            doors: RoomsLayer::new(doors),
            limits,
            in_flight,
            fields: file.compiled.fields.clone(),
            unread,
            source,
            leases,
            in_force: Mutex::new(in_force),
            explainer: Mutex::new(Arc::new(explainer)),
            listeners: NewsListeners::default(),
            has_failed: AtomicBool::new(false),
            #[cfg(feature = "metrics")]
            meter: ReloadMeter::loaded_at(store.now_us()),
            store,
        })))
    }

    /// Replaces the file in force by another file, in one step. Spent units count; a request keeps the limits that it began
    /// with. Returns the changes. Rules that were opened from a file return to it by [`reload`](Self::reload), and when its text changes.
    ///
    /// # Errors
    /// When the store cannot support one of its policies; then nothing has changed.
    pub fn replace(&self, file: RulesFile) -> Result<Changes, RulesError> {
        let mut in_force = lock(&self.0.in_force);
        let changes = self.put(&mut in_force, &file)?;
        in_force.is_replaced = true;
        self.tell(in_force, Some(Ok(Some(&changes))));
        Ok(changes)
    }

    pub(crate) fn put(&self, in_force: &mut FileInForce, file: &RulesFile) -> Result<Changes, RulesError> {
        refuse_two_stores(self.0.leases.is_some(), file)?;
        let (before, rooms) = (in_force.policies.clone(), in_force.rooms.clone().unwrap_or_default());
        let keys_before = in_force.single_keys.clone();
        let Put { limits, split, at_once, doors, explainer } = in_force.put(&self.0.store, file)?;
        // Requests that have begun are decided by the policies that their limits are pinned to.
        {
            let mut current = lock(&self.0.explainer);
            self.0.limits.swap(limits);
            *current = Arc::new(explainer);
        }
        if let Some((deferring, split)) = self.0.deferring.as_ref().zip(split) {
            deferring.swap(split);
        }
        // A request that waits for a permit continues to the limits that it began with.
        self.0.in_flight.swap_with(at_once.before(&self.0.limits));
        self.0.doors.swap(doors);
        self.0.fields.swap(&file.compiled.fields);
        self.0.unread.follow(&file.compiled);
        in_force.error = None;
        // The open store stays in use until the next start.
        let (open, named) = (in_force.store.as_ref(), file.compiled.store.as_ref());
        let changes = Changes::between(&before, &in_force.policies, &file.compiled).of_stores(open, named);
        let changes =
            changes.of_keys(&keys_before, &in_force.single_keys).of_rooms(&rooms, &file.compiled.rooms);
        Ok(changes.under(&Overrides::of(Arc::clone(&self.0.store))))
    }

    /// The current limits, for code that decides by itself. They do not change with the rules; the next call returns the limits at that
    /// time. They do not include `in_flight` and waiting rooms: the [layer](Self::layer) gives out permits and admits visitors.
    pub fn limits(&self) -> Limits {
        self.0.limits.current()
    }

    /// The quotas of this key under `overrides` of a policy, for a program that checks policies
    /// [by name](RulesBuilder::open_all_policies), without a request.
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, RulesFile, Variables};
    /// use sluicegate_tower::limits::ChosenQuotas;
    ///
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies: { mail: { quota: 3/h, overrides: { acme: 100/h, staff: unlimited } } }
    /// rules: []
    /// ", &Variables::none())?;
    /// let rules = Rules::builder().open_all_policies().put(&MemoryStore::new(), file)?;
    /// assert!(matches!(rules.quotas_of("mail", "acme"), ChosenQuotas::Quotas(_)));
    /// assert!(matches!(rules.quotas_of("mail", "staff"), ChosenQuotas::Unlimited));
    /// assert!(matches!(rules.quotas_of("mail", "ada"), ChosenQuotas::Default));
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    pub fn quotas_of(&self, policy: &str, key: &str) -> ChosenQuotas {
        let explainer = lock(&self.0.explainer);
        explainer.with_keys.quotas(policy, key)
    }

    /// Gives back the units that `fleet: leases` of the file holds in this process, after the last request; returns the units that were not
    /// given back within this time, these lapse by themselves. Without leases it does nothing.
    ///
    /// # Cancel safety
    /// The held units are given back or lost; nothing is leased from then on.
    pub async fn give_back_leases(&self, within: Duration) -> u64 {
        match &self.0.leases {
            Some(leases) => leases.give_back(within).await,
            None => 0,
        }
    }

    /// A handle to the limits in force, for a [status page](https://docs.rs/sluicegate/latest/sluicegate/status/index.html) that looks up keys.
    pub fn limits_handle(&self) -> LimitsHandle {
        self.0.limits.clone()
    }

    /// Explains which rules apply to a request, why the others do not, and the decision, with the code that decides. It
    /// spends nothing. Keys that may be secrets are shown as digests, and the values of header fields and parameters are not shown.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, RulesFile, Variables};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies:
    ///   login: { quota: 5/min }
    ///   api: { quota: 100/min }
    /// rules:
    ///   - { name: login, only_if: { path: /login, method: POST }, limit: login, key: everybody }
    ///   - { name: api, limit: api, key: everybody }
    /// ", &Variables::none())?;
    /// let rules = Rules::new(&MemoryStore::new(), file)?;
    ///
    /// let request = Request::get("/login").body(())?;
    /// let explained = rules.explain(&request).await;
    /// assert_eq!(explained.rules[0].why_not.as_deref(), Some("method is GET, the rule wants POST"));
    /// assert_eq!(explained.rules[1].limits[0].asks.as_ref().map(|asks| asks.cost), Ok(1));
    /// println!("{explained}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The explanation uses the rules in force at the call: limits and conditions of one file, even while the rules change.
    ///
    /// # Cancel safety
    /// Dropping the future undoes nothing, because nothing is done.
    pub async fn explain<'a>(&self, request: impl Into<RequestView<'a>>) -> Explained {
        let (limits, explainer) = {
            // `in_force` is not locked: a listener of news may explain while the next change waits for it.
            let explainer = lock(&self.0.explainer);
            (self.limits(), Arc::clone(&explainer))
        };
        explainer.explain(&limits, request.into()).await
    }

    /// Adds what the rules read in this body to a request without one, before it is [explained](Self::explain) or
    /// [decided](Self::limits): for tools.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, RulesFile, Variables};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies: { upload: { quota: 1MB/min } }
    /// rules: [{ name: all, limit: upload, key: everybody, cost: { bytes: request, min: 1, max: 1_000_000 } }]
    /// ", &Variables::none())?;
    /// let rules = Rules::new(&MemoryStore::new(), file)?;
    ///
    /// let mut request = Request::post("/").body(())?;
    /// rules.read_body(&mut request, b"twelve bytes");
    /// assert!(rules.explain(&request).await.to_string().contains("asks 12 of upload"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_body(&self, request: &mut Request<()>, body: &[u8]) {
        let fields = self.0.fields.find(request.headers(), body);
        request.extensions_mut().insert(fields);
    }

    /// The store of the rules, for other uses of it: policies of code, overrides, a status page.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Warns in the log of rules that need the response or the connection of a request, now and after each change: a server that decides for
    /// other processes has neither.
    #[doc(hidden)]
    pub fn decide_apart(&self) {
        self.0.unread.decide_apart();
    }

    /// A layer with these rules, which follows each change. All layers of the same rules share buckets and permits, and are swapped
    /// together.
    pub fn layer(&self) -> RulesLayer {
        let RulesState { doors, in_flight, limits, fields, unread, .. } = &*self.0;
        RulesLayer {
            rooms: doors.clone(),
            in_flight: in_flight.clone().into(),
            limits: RateLimitLayer::from(limits.clone()).settling(),
            fields: fields.clone(),
            unread: Arc::clone(unread),
            deferring: self.0.deferring.as_ref().map(Deferring::parts),
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}
