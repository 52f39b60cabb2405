//! The shape of `status.json`: [`Document`].

use serde::Serialize;
use serde_json::Number;

/// The state of one instance, in the shape of `status.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Document {
    /// The version of this shape: another one only if something that is there becomes something else.
    pub(crate) version: u32,
    /// When it was put together.
    pub(crate) at: String,
    /// Whose numbers these are.
    pub(crate) instance: String,
    /// For how long the first of the stores has been observed.
    pub(crate) uptime_seconds: u64,
    pub(crate) notices: Vec<NoticeShown>,
    pub(crate) stores: Vec<StoreStatus>,
    pub(crate) policies: Vec<PolicyStatus>,
    pub(crate) rooms: Vec<RoomShown>,
    pub(crate) events: Vec<Happened>,
}

/// A text that the application has put here.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NoticeShown {
    /// Its subject, such as the name of a file.
    pub(crate) about: String,
    /// When it was put first.
    pub(crate) since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// How a store is doing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StoreStatus {
    /// Under which it is observed.
    pub(crate) name: String,
    /// `ok`, `fallback` or `down`.
    pub(crate) state: &'static str,
    /// `closed`, `half_open` or `open`: the worst of its parts.
    pub(crate) breaker: &'static str,
    /// In how many milliseconds 99 of 100 answers came in the last minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<f64>,
    /// How often one has opened.
    pub(crate) opened: u64,
    pub(crate) errors: Errors,
    /// Decisions that were made without it, and for how long.
    pub(crate) fallback_decisions: u64,
    pub(crate) fallback_seconds: u64,
    /// Keys whose spending it has not been told yet.
    pub(crate) unsettled_keys: usize,
    /// Keys in debt in the table in memory, how many fit, and how many had to go.
    pub(crate) keys: usize,
    pub(crate) slots: usize,
    pub(crate) evictions: u64,
}

/// Calls that failed, by kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Errors {
    pub(crate) timeout: u64,
    pub(crate) unavailable: u64,
    pub(crate) protocol: u64,
}

/// A policy, and what came of it in this instance.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyStatus {
    pub(crate) name: String,
    pub(crate) algorithm: String,
    pub(crate) quotas: Vec<QuotaShown>,
    pub(crate) mode: String,
    pub(crate) hidden: bool,
    #[serde(rename = "override")]
    pub(crate) over: Option<OverrideShown>,
    pub(crate) on_exceeded: &'static str,
    pub(crate) on_outage: String,
    pub(crate) per_second: PerSecond,
    /// Whole minutes, the oldest first.
    pub(crate) minutes: Vec<MinuteShown>,
    pub(crate) waiting: usize,
    /// Which part of what was allowed in the last hour left less than a fifth.
    #[serde(skip)]
    pub(crate) near_share: f64,
    pub(crate) suspended_seen: usize,
    /// Whether keys of it can be suspended.
    #[serde(skip)]
    pub(crate) suspends: bool,
    pub(crate) offenders: Vec<OffenderShown>,
    #[serde(skip)]
    pub(crate) askers: Vec<AskerShown>,
}

/// How much in how long.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QuotaShown {
    pub(crate) label: String,
    pub(crate) limit: u64,
    pub(crate) period_seconds: Number,
    pub(crate) burst: u64,
    /// As people write it.
    #[serde(skip)]
    pub(crate) text: String,
}

/// An operator's override of a policy, for a time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OverrideShown {
    /// The operator.
    pub(crate) by: String,
    /// When it ends by itself.
    pub(crate) until: String,
    /// Names it when it is replaced or withdrawn.
    pub(crate) version: u64,
    /// Whether other instances have it, too.
    pub(crate) shared: bool,
    /// The quotas that are back when it ends.
    pub(crate) own_quotas: Vec<String>,
    /// The mode that is back then.
    pub(crate) own_mode: String,
}

/// The mean of ten seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PerSecond {
    pub(crate) allowed: f64,
    pub(crate) rejected: f64,
    pub(crate) delayed: f64,
    pub(crate) suspended: f64,
}

/// One whole minute.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MinuteShown {
    pub(crate) at: String,
    pub(crate) allowed: u64,
    pub(crate) rejected: u64,
    /// Of those that were allowed, the ones that left less than a fifth.
    pub(crate) near: u64,
}

/// A key that was refused often.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OffenderShown {
    /// An address, a name or a digest, as `kind` says.
    pub(crate) key: String,
    pub(crate) kind: &'static str,
    /// Stands for the key in look-ups.
    #[serde(rename = "ref")]
    pub(crate) reference: String,
    pub(crate) rejected: u64,
    /// The count is at most this much too high.
    pub(crate) error: u64,
    pub(crate) share: f64,
    pub(crate) suspended_until: Option<String>,
    /// Whether it can be looked up by its reference.
    #[serde(skip)]
    pub(crate) is_known: bool,
}

/// A key that asked often.
#[derive(Clone, Debug)]
pub(crate) struct AskerShown {
    pub(crate) key: String,
    pub(crate) kind: &'static str,
    pub(crate) asked: u64,
    /// Which part of what it may spend at once is left.
    pub(crate) remaining: f64,
}

/// A waiting room.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RoomShown {
    pub(crate) name: String,
    /// `metered`, `paused` or `open`.
    pub(crate) mode: &'static str,
    /// As people write it.
    pub(crate) rate: String,
    /// Visitors that wait, and those that are inside, where their number is bounded.
    pub(crate) waiting: u64,
    pub(crate) active: Option<u64>,
    /// Since the room began.
    pub(crate) admitted: u64,
    pub(crate) passed_over: u64,
    /// The estimated wait of a visitor that comes now.
    pub(crate) wait_seconds: Option<u64>,
    /// Rate and mode, as a form sends them back.
    #[serde(skip)]
    pub(crate) seen: String,
}

/// Something that was done or befell a store.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Happened {
    pub(crate) at: String,
    pub(crate) what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) room: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
}
