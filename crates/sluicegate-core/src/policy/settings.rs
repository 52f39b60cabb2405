//! The settings of a policy beside its quotas: [`Settings`].

use super::options::{OnExceeded, OnFull, OnOutage, PolicyMode};

/// The settings of a policy beside its name, its algorithm, its quotas and its suspension: the same while it is put together and
/// after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Settings {
    pub(super) on_exceeded: OnExceeded,
    pub(super) on_outage: OnOutage,
    pub(super) mode: PolicyMode,
    pub(super) is_hidden: bool,
    pub(super) gives_back: bool,
    /// Whether keys may bring quotas of their own.
    pub(super) takes_quotas: bool,
    pub(super) counts_rejected: bool,
    pub(super) version: Option<u64>,
    /// The highest debt in units; as the rule has it by default.
    pub(super) debt: Option<u64>,
    /// Keys that a store of fixed size makes room for; as the store has it by default.
    pub(super) keys: Option<usize>,
    pub(super) on_full: OnFull,
    /// Whether it is one of the parts that a policy was split into, which together count no less than the whole.
    pub(super) is_part: bool,
}
