//! Refusing a key outright if it continues after many refusals, as a setting of a policy.

mod buckets;
mod draft;
mod names;
mod said;
mod terms;

pub(super) use self::draft::SuspensionDraft;
pub(super) use self::names::{check_ending, is_of_suspension};
pub use self::terms::Suspension;
