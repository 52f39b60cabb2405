//! Rules with more than a file and a store: [`RulesBuilder`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sluicegate_core::Store;
use sluicegate_core::store::IntoStore;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::defer::Defer;
use sluicegate_tower::room::RoomMaker;

use crate::compile::GivenKeys;
use crate::error::RulesError;
use crate::file::RulesFile;
use crate::reload::FileSource;
use crate::rules::Rules;
use crate::variables::Variables;

/// Settings of rules that neither a file nor a store has; made by [`Rules::builder`].
///
/// A file names rooms and their rates. It cannot hold the secret that passes are signed with, nor the line that instances share: code gives
/// both, and they stay while files change. Without them, a file with a room is refused, because otherwise a sale would begin with
/// its door open.
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it puts a file in force"]
pub struct RulesBuilder {
    pub(crate) open_all: bool,
    pub(crate) rooms: Option<Arc<dyn RoomMaker>>,
    pub(crate) deferral: Option<Arc<dyn Defer>>,
    pub(crate) keys: GivenKeys,
}

impl Rules {
    /// Starts rules with [waiting rooms](crate#waiting-rooms-on_exceeded-room), with
    /// [requests that are kept for later](crate#work-for-later-on_exceeded-defer), or with
    /// [policies that no rule uses](RulesBuilder::open_all_policies).
    pub fn builder() -> RulesBuilder {
        RulesBuilder::default()
    }
}

impl RulesBuilder {
    /// The keeper of the lines and secrets of waiting rooms: `sluicegate::overflow::Rooms`. Default: none, and a file with
    /// `on_exceeded: room` is refused.
    pub fn rooms(mut self, rooms: impl RoomMaker) -> Self {
        self.rooms = Some(Arc::new(rooms));
        self
    }

    /// The keeper of requests that are carried out later: `sluicegate::overflow::deferred::Deferral`. Default: none, and a file with
    /// `on_exceeded: defer` is refused. Make the layer by [`RulesLayer::deferring`](crate::RulesLayer::deferring), or such requests are refused.
    pub fn deferral(mut self, deferral: impl Defer) -> Self {
        self.deferral = Some(Arc::new(deferral));
        self
    }

    /// Names a key that the program finds itself, so that a rule may say `key: user`. A file that is also read elsewhere, as by
    /// `sluicegate check`, lists the name: `keys: { user: program }`.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, RulesFile, Variables};
    /// use sluicegate_tower::key::HeaderKey;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// keys: { user: program }
    /// policies: { api: { quota: 1/h } }
    /// rules: [{ name: all, limit: api, key: user }]
    /// ", &Variables::none())?;
    /// let rules = Rules::builder().key("user", HeaderKey::new("x-user")?).put(&MemoryStore::new(), file)?;
    /// for (user, passes) in [("ada", true), ("ada", false), ("grace", true)] {
    ///     let request = Request::get("/").header("x-user", user).body(())?;
    ///     assert_eq!(rules.limits().decide(&request).await.is_ok(), passes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(mut self, name: impl Into<String>, key: impl KeyExtractor) -> Self {
        self.keys.insert(name.into(), Arc::new(key));
        self
    }

    /// Opens every policy of the file, so that a program can check policies by name, as `sluicegate serve` does. Default: only policies
    /// used by a rule are opened, and a policy of code may have the name of an unused one.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Store};
    /// use sluicegate_rules::{Rules, RulesFile, Variables};
    ///
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies: { mail: { quota: 3/h } }
    /// rules: []
    /// ", &Variables::none())?;
    /// let rules = Rules::builder().open_all_policies().put(&MemoryStore::new(), file)?;
    /// let mail = rules.store().limiters().get("mail").ok_or("it is open")?;
    /// assert_eq!(mail.check("ada").now().expect("memory answers at once")?.remaining(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_all_policies(mut self) -> Self {
        self.open_all = true;
        self
    }

    /// Does what [`Rules::new`] does, for rules that code has read or written itself, without reading them again.
    ///
    /// # Errors
    /// As [`Rules::new`].
    pub fn put(self, store: impl IntoStore, file: RulesFile) -> Result<Rules, RulesError> {
        Rules::of((store.into(), None), &file, (None, None), self)
    }

    /// Does what [`Rules::open`] does, for a file that is read again, on a store that code has made.
    ///
    /// # Errors
    /// As [`Rules::open`].
    pub fn open(
        self,
        store: impl IntoStore,
        path: impl Into<PathBuf>,
        variables: Variables,
    ) -> Result<Rules, RulesError> {
        let source = self.source(path, variables);
        let (text, file) = source.read(None)?.ok_or_else(|| source.error("it has no text"))?;
        Rules::of((store.into(), None), &file, (Some(text), Some(source)), self)
    }

    /// Does what [`Rules::from_file`] does, for a file that names its store, and is read again.
    ///
    /// # Errors
    /// As [`Rules::from_file`].
    pub fn from_file(self, path: impl Into<PathBuf>, variables: Variables) -> Result<Rules, RulesError> {
        self.from_file_within(path, variables, |store| store)
    }

    /// Does what [`Rules::from_file_within`] does.
    ///
    /// # Errors
    /// As [`Rules::from_file`].
    pub fn from_file_within<S: IntoStore>(
        self,
        path: impl Into<PathBuf>,
        variables: Variables,
        around: impl FnOnce(Arc<dyn Store>) -> S,
    ) -> Result<Rules, RulesError> {
        let source = self.source(path, variables);
        let (text, file) = source.read(None)?.ok_or_else(|| source.error("it has no text"))?;
        let (store, leases) = file.open_store_with_leases()?;
        let store = around(store).into();
        Rules::of((store, Some(leases)), &file, (Some(text), Some(source)), self)
    }
}

impl RulesBuilder {
    fn source(&self, path: impl Into<PathBuf>, variables: Variables) -> FileSource {
        FileSource { path: path.into(), variables, given_keys: self.keys.keys().cloned().collect() }
    }
}

impl fmt::Debug for RulesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesBuilder")
            .field("open_all", &self.open_all)
            .field("keys", &self.keys.keys())
            .field("has_rooms", &self.rooms.is_some())
            .field("has_deferral", &self.deferral.is_some())
            .finish()
    }
}
