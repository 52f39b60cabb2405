//! The settings of a policy beside its quotas: [`PolicySettings`].

use super::options::{OnExceeded, OnFull, OnOutage, PolicyMode};
use super::tightening::Tightening;

/// The settings of a policy beside its name, its algorithm, its quotas and its suspension, for the builder as for the
/// policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PolicySettings {
    pub(super) on_exceeded: OnExceeded,
    pub(super) on_outage: OnOutage,
    pub(super) mode: PolicyMode,
    pub(super) is_hidden: bool,
    pub(super) gives_back: bool,
    /// Whether keys may bring quotas of their own.
    pub(super) takes_quotas: bool,
    pub(super) counts_rejected: bool,
    pub(super) version: Option<u64>,
    /// The highest debt in units; by default that of the rule.
    pub(super) debt: Option<u64>,
    /// Keys that a store of fixed size makes room for; by default those of the store.
    pub(super) keys: Option<usize>,
    pub(super) on_full: OnFull,
    pub(super) tightening: Option<Tightening>,
    /// Whether it is one of the parts that a policy was split into, which together count no less than the whole.
    pub(super) is_part: bool,
}
