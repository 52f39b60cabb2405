//! A rules file that was read: [`RulesFile`].

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::{MemoryStore, Policy, Store, limiter};

use crate::changes::Changes;
use crate::compile::{Compiled, GivenKeys, Leases, LimitsPart, NamedStore, Rule, compile};
use crate::error::{Problem, Problems, RulesError};
use crate::read;
use crate::variables::Variables;

/// A rules file that was read and is valid. It changes nothing until [`Rules`](crate::Rules) puts it in force.
///
/// Reading connects to nothing and counts nothing, so that tools can look at files for other machines. The policies are opened on a
/// separate store, without their table sizes, so that mistakes that show only then are reported as well.
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let text = "
/// version: 1
/// store: { redis: \"redis://redis.internal\" }
/// clients: { proxies: 10.0.0.1/8 }
/// policies:
///   api: { quota: 100/min, table_size: 10_000_000 }
///   unused: { quota: 1/s }
/// rules:
///   - { name: all, limit: api, key: client }
/// ";
/// let file = RulesFile::parse("rules.yaml", text, &Variables::none())?;
/// let warnings: Vec<_> = file.warnings().iter().map(|warning| warning.text()).collect();
/// assert!(warnings[0].contains("it is taken as 10.0.0.0/8"));
/// assert!(warnings[1].starts_with("policy \"unused\" limits no request"));
/// # Ok::<(), sluicegate_rules::RulesError>(())
/// ```
///
/// # Values
/// The parser treats every value as text; the same code as elsewhere reads it later. Quotes are needed only around
/// braces (`"/users/{id}"`).
///
/// | of | written as | range |
/// |---|---|---|
/// | quota | `5/min`, `10/s burst 20`, `1.5k/12h`, `60/min burst 100 start 10`, `2M/month in Asia/Seoul carry over 20%`: units, a period, the units that pass at once from rest, and the units of an unknown key | up to 10^6 units in 1 ms to 30 days in any case; an error explains other exact quotas |
/// | time | a number with `ns`, `us`, `ms`, `s`, `min`, `h`, `d` or `w`: `500ms`, `0.5s`, `30 days` | no months |
/// | wait | `deny`, or `wait` with a time: `wait 5s`; in a policy also `room` and `defer` | |
/// | moment (`opens_at`) | `2026-11-27T12:00:00Z`, `2026-11-27T13:00:00+01:00` | from 1970 on |
/// | number of visitors, of places (`room`) | `500` | 1 to 2^32 |
/// | number of units (`cost`) | `10`, `1_000` | 1 to 2^32, and at most the burst of each limit |
/// | number of keys (`keys` of a policy) | `1_000_000` | 1 to 2^31 |
/// | number of keys (`memory` of the store) | `5000`, `100k keys`, `1M keys` | 1 to 1000M |
/// | number of permits | `2` | 1 to 1,000,000 |
/// | number of refusals (`suspend`) | `100 in 10min` | 1 to 1,000,000 |
/// | share | `1/10` | above 0, up to the whole; each quota keeps at least a unit |
/// | field of JSON (`settle`) | `usage.total_tokens`: names separated by dots | up to 16 fields of up to 256 bytes; each price 1 to 2^32 units |
/// | statuses (`refund_if`) | `502`, `5xx` | 100 to 999, and `1xx` to `5xx` |
/// | status of a denial, of a missing key | `403` | 400 to 599 |
/// | how keys start after a reload (`inherit`) | `spent`, `reset`, `as-is`, `proportional` or `additive`: see [`Inherit`](sluicegate_core::limiter::Inherit) | |
/// | network | `10.0.0.0/8`, `2001:db8::/32`, an address alone | |
/// | `hops`, `ipv6_prefix` | `1`, `56` | 1 to 32 proxies, 1 to 128 bits |
/// | `deadline`, `replicas` | `50ms`, `4` | 1 ms to 1 min, 1 to 100,000 |
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let file = |limit: &str, rule: &str| {
///     let text = format!("
/// version: 1
/// policies: {{ api: {{ {limit} }} }}
/// rules: [{{ name: all, limit: api, key: client, {rule} }}]
/// ");
///     RulesFile::parse("rules.yaml", &text, &Variables::none())
/// };
/// for good in ["quota: 1000/12h", "quota: [5 per 2 minutes, 20/d]", "quota: 5/s, on_exceeded: wait 1500ms", "quota: 5/s, table_size: 1_000_000"] {
///     assert!(file(good, "cost: 1").is_ok(), "{good}");
/// }
/// for bad in ["quota: 5", "quota: 5/moon", "quota: 0.5/s", "quota: 5/s, on_exceeded: 5s", "quota: 5/s, keys: many"] {
///     assert!(file(bad, "cost: 1").is_err(), "{bad}");
/// }
/// let error = file("quota: 5/min", "cost: 6").unwrap_err();
/// assert!(error.to_string().contains("cost 6 is above burst 5 of 5/min"), "{error}");
/// # Ok::<(), sluicegate_rules::RulesError>(())
/// ```
///
/// # Bounds
/// A file has at most 1 MiB, a file of API keys 16 MiB (about 200,000 keys), and a file with a public key 1 MiB. Anchors are expanded
/// within a budget, so that a small file cannot become a large one.
/// Keys of a policy have up to 65,535 different quotas. Reading takes time in proportion to the text; a thousand rules take a few
/// milliseconds.
pub struct RulesFile {
    pub(crate) name: String,
    pub(crate) compiled: Compiled,
    warnings: Vec<Problem>,
    /// The text in lower case; empty if a word in it may be written differently.
    words: String,
}

impl RulesFile {
    /// Reads a text of YAML or JSON. Errors show it as `name`. Paths in the text are relative to the folder of the process.
    ///
    /// # Errors
    /// When values are wrong, or the shape, with all mistakes. When `variables` have no value for one
    /// that the text names.
    pub fn parse(name: &str, text: &str, variables: &Variables) -> Result<Self, RulesError> {
        Self::parse_in(name, text, None, variables, &[])
    }

    /// Reads a file; paths in it are relative to its folder. A pipe or a device is not read: it might never end.
    ///
    /// ```
    /// use sluicegate_rules::{RulesFile, Variables};
    ///
    /// let error = RulesFile::read("missing/rules.yaml", &Variables::none()).unwrap_err();
    /// assert!(error.to_string().starts_with("missing/rules.yaml: error: it cannot be read: "));
    /// ```
    ///
    /// # Errors
    /// When it cannot be read, is not a regular file, is not UTF-8 or has more than 1 MiB, and as [`parse`](Self::parse) does.
    pub fn read(path: impl AsRef<Path>, variables: &Variables) -> Result<Self, RulesError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match read::text(path) {
            Ok(text) => Self::parse_in(&name, &text, path.parent(), variables, &[]),
            Err(problem) => Err(RulesError::of_file(&name, &problem)),
        }
    }

    pub(crate) fn parse_in(
        name: &str,
        text: &str,
        folder: Option<&Path>,
        variables: &Variables,
        given_keys: &[String],
    ) -> Result<Self, RulesError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut problems = Problems::of(name, text);
        let file = read::sections(text, variables, &mut problems);
        let compiled = file.and_then(|file| compile(&file, folder, given_keys, &mut problems));
        match compiled {
            Some(compiled) => {
                if !problems.has_errors() {
                    check(&compiled, &mut problems);
                }
                let warnings = problems.into_result()?;
                // A variable or an escape may represent any word.
                let is_plain = !text.contains(['$', '\\']);
                let words = if is_plain { text.to_ascii_lowercase() } else { String::new() };
                Ok(Self { name: name.to_owned(), compiled, warnings, words })
            }
            None => Err(problems.into_errors()),
        }
    }

    /// The changes from `old` to this file, as a [reload](crate::Rules::reload) would report them. Overrides that
    /// operators have set on a service are not known here.
    ///
    /// ```
    /// use sluicegate_rules::{RulesFile, Variables};
    ///
    /// let file = |policies: &str| {
    ///     let text = format!("
    /// version: 1
    /// policies: {{ {policies} }}
    /// rules:
    ///   - {{ name: login, only_if: {{ path: /login }}, limit: login, key: client }}
    ///   - {{ name: all, limit: api, key: client }}
    /// ");
    ///     RulesFile::parse("rules.yaml", &text, &Variables::none())
    /// };
    /// let old = file("login: { quota: 5/min }, api: { quota: 100/min }")?;
    /// let new = file("login: { quota: 5/min, on_outage: deny }, api: { quota: 100/min burst 20 }")?;
    /// assert_eq!(
    ///     new.changes_since(&old).to_string(),
    ///     "changed login in its options, api 100/min -> 100/min burst 20, what was spent counts",
    /// );
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    pub fn changes_since(&self, old: &Self) -> Changes {
        let (old, new) = (&old.compiled, &self.compiled);
        let changes = Changes::between(&old.policies, &new.policies, new)
            .of_keys(&old.single_keys, &new.single_keys)
            .of_rooms(&old.rooms, &new.rooms);
        changes.of_stores(old.store.as_ref(), new.store.as_ref())
    }

    /// Opens the store that the file names under `store`. Redis is connected in the background of the tokio runtime that this is
    /// called on, with a breaker and a local fallback around it; a service starts while it is down.
    ///
    /// ```
    /// use sluicegate_rules::{Rules, RulesFile, Variables};
    ///
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// store: { memory: 100k keys }
    /// policies: { api: { quota: 100/min } }
    /// rules: [{ name: all, limit: api, key: client }]
    /// ", &Variables::environment())?;
    /// let rules = Rules::new(file.open_store()?, file.without_store())?;
    /// # let _ = rules;
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    ///
    /// # Errors
    /// When the file names no store; when it names a Redis, without the feature `redis` or without a tokio runtime.
    pub fn open_store(&self) -> Result<Arc<dyn Store>, RulesError> {
        self.open_store_with_leases().map(|(store, _)| store)
    }

    pub(crate) fn open_store_with_leases(&self) -> Result<(Arc<dyn Store>, Leases), RulesError> {
        self.named_store()?.open().map_err(|error| RulesError::of_file(&self.name, error.problem()))
    }

    /// Connects to the store that the file names under `store`, for tools that ask it: without the breaker and the fallback that a
    /// service has around it, so that an answer is the store's own, and so that a peek writes nothing, not even when a policy of the
    /// file is not in force yet. Each decision has the deadline of the file.
    ///
    /// # Errors
    /// When the file names no store or one in memory, which only its own process can ask; when there is no connection to Redis
    /// `within` this time; without the feature `redis`, and without a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future ends the connection.
    pub async fn connected_store(&self, within: Duration) -> Result<Arc<dyn Store>, RulesError> {
        let connected = self.named_store()?.connected(within).await;
        connected.map_err(|problem| RulesError::of_file(&self.name, &problem))
    }

    fn named_store(&self) -> Result<&NamedStore, RulesError> {
        self.compiled.store.as_ref().ok_or_else(|| {
            RulesError::of_file(
                &self.name,
                "it names no store: add the section \"store\", as store: { redis: redis://host:6379 }, or give one in code",
            )
        })
    }

    /// The kind of store that the file names: `redis` or `memory`.
    pub fn store_kind(&self) -> Option<&'static str> {
        self.compiled.store.as_ref().map(NamedStore::kind)
    }

    /// Removes the store from the file: for tools, and for programs that have opened [the store](Self::open_store) themselves.
    #[must_use]
    pub fn without_store(mut self) -> Self {
        self.compiled.store = None;
        self
    }

    /// Admits all visitors of the file's waiting rooms at once, and refuses requests that the file defers: for tools, which have no line,
    /// no queue and no secrets. An explanation still mentions the rooms.
    #[must_use]
    pub fn without_rooms(mut self) -> Self {
        self.compiled.is_without_rooms = true;
        self
    }

    /// The waiting rooms of the file, in words, each with the first rule that names it.
    ///
    /// ```
    /// use sluicegate_rules::{RulesFile, Variables};
    ///
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies: { sale: { quota: 50/s, on_exceeded: room } }
    /// rules: [{ name: shop, limit: sale, key: client }]
    /// ", &Variables::none())?;
    /// assert_eq!(file.rooms().collect::<Vec<_>>(), [r#"rule "shop": waiting room sale, 50/s"#]);
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    pub fn rooms(&self) -> impl Iterator<Item = String> {
        self.compiled.rooms.iter().map(|room| format!("rule {:?}: {room}", room.rule))
    }

    /// The policies of the file that defer, in words, for each rule that names one. The program has the queue that keeps such requests.
    ///
    /// ```
    /// use sluicegate_rules::{RulesFile, Variables};
    ///
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies: { orders: { quota: 2/s, on_exceeded: defer } }
    /// rules: [{ name: order, limit: orders, key: everybody }]
    /// ", &Variables::none())?;
    /// let words = r#"rule "order": defers to the queue of the program what exceeds orders: 2/s (gcra)"#;
    /// assert_eq!(file.deferring().collect::<Vec<_>>(), [words]);
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    pub fn deferring(&self) -> impl Iterator<Item = String> {
        let in_words = |(rule, policy): (&Rule, &Policy)| {
            format!("rule {:?}: defers to the queue of the program what exceeds {policy}", rule.name)
        };
        self.compiled.deferring().map(in_words)
    }

    /// Sets the number of keys that each policy has room for in memory, whatever the file says: for tools that ask about one request.
    #[must_use]
    pub fn with_table_size(mut self, keys: usize) -> Self {
        self.compiled.policies =
            self.compiled.policies.iter().map(|policy| policy.with_table_size(keys)).collect();
        self
    }

    /// Whether a word may occur in the file, in upper or lower case. No rule reads a header field with a name that is not in the file,
    /// except fields of hosts, cookies, tokens and proxies, so that a tool with many requests can leave such fields out.
    ///
    /// ```
    /// use sluicegate_rules::{RulesFile, Variables};
    ///
    /// let text = "
    /// version: 1
    /// policies: { api: { quota: 100/min } }
    /// rules: [{ name: all, limit: api, key: header(User-Agent) }]
    /// ";
    /// let file = RulesFile::parse("rules.yaml", text, &Variables::none())?;
    /// assert!(file.may_mention("user-agent") && !file.may_mention("referer"));
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    pub fn may_mention(&self, word: &str) -> bool {
        self.words.is_empty() || self.words.contains(&word.to_ascii_lowercase())
    }

    /// Warnings, in the order of the file. None of them prevents a service from starting.
    ///
    /// | warning about | because |
    /// |---|---|
    /// | a policy or a number under `in_flight` that no rule names | it limits nothing, and its name may be misspelt elsewhere |
    /// | a key that clients choose freely, without a rule by address for all requests | a client that invents keys has a new bucket with each |
    /// | a tier that is read from a header field | clients choose it, unless a proxy sets the field |
    /// | a policy that two rules spend from that may both apply | such a request gets 500 |
    /// | a rule that a rule before it in its group hides | it never applies |
    /// | a cost by header whose `max` is above a burst | such a request never passes |
    /// | a network with bits after its prefix, or with every address | it differs from its text |
    /// | a variable that is not set here, for tools | its default replaces the value |
    ///
    /// ```
    /// use sluicegate_rules::{RulesFile, Variables};
    ///
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies: { api: { quota: 100/min } }
    /// rules: [{ name: all, limit: api, key: header(x-user) }]
    /// ", &Variables::none())?;
    /// let warning = file.warnings()[0].to_string();
    /// assert!(warning.starts_with("rules.yaml:4:39: warning: clients choose this key freely"), "{warning}");
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

/// Makes the limits on a separate store, to find mistakes that show only then.
fn check(compiled: &Compiled, problems: &mut Problems<'_>) {
    let before = problems.count();
    let tried = MemoryStore::builder().table_size(1).build().and_then(|store| {
        let store: Arc<dyn Store> = (&store).into();
        // The table sizes of the file do not matter here: no request is counted.
        let policies: Vec<_> = compiled.policies.iter().map(|policy| policy.with_table_size(1)).collect();
        let open = limiter::open_all(Arc::clone(&store), policies)?;
        compiled.check(&open, problems);
        if problems.count() == before {
            compiled.limits(&open, &GivenKeys::new(), LimitsPart::All).map(drop)
        } else {
            Ok(())
        }
    });
    if let Err(error) = tried {
        problems.error(None, error.to_string());
    }
}

impl fmt::Debug for RulesFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesFile")
            .field("name", &self.name)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}
