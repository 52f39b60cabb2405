//! The quotas of a key, as written in a file or in a request: [`KeyQuotas`].

use std::str::FromStr;

use sluicegate_core::policy::Quotas;
use sluicegate_core::{ConfigError, Policy, Quota};

use super::value::{read, texts, wrong};
use crate::at::At;
use crate::error::Problems;
use crate::schema::OneOrMany;

/// The quotas of a key, which take the place of its policy's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KeyQuotas {
    Quotas(Quotas),
    Unlimited,
}

impl FromStr for KeyQuotas {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text == UNLIMITED { Ok(Self::Unlimited) } else { text.parse().map(Self::Quotas) }
    }
}

impl KeyQuotas {
    pub(super) fn quotas(&self) -> Option<&Quotas> {
        match self {
            Self::Quotas(quotas) => Some(quotas),
            Self::Unlimited => None,
        }
    }
}

/// The word for no quota at all.
pub(super) const UNLIMITED: &str = "unlimited";

/// Quotas as written, or `unlimited`, if a key of the policy can have them.
pub(super) fn quotas_under(
    policy: &Policy,
    given: &At<OneOrMany>,
    problems: &mut Problems<'_>,
) -> Option<KeyQuotas> {
    let own = own_quotas(given, problems)?;
    if let Some(quotas) = own.quotas()
        && let Err(error) = policy.under(quotas)
    {
        let all = given.all();
        match error.quota().and_then(|index| all.get(index)) {
            Some(quota) => wrong(quota, &error, problems),
            None => problems.error(given.place, error.problem()),
        }
        return None;
    }
    Some(own)
}

/// Quotas as written, or `unlimited`.
pub(super) fn own_quotas(given: &At<OneOrMany>, problems: &mut Problems<'_>) -> Option<KeyQuotas> {
    let all = texts(given, problems);
    if let [one] = &all[..]
        && one.value == UNLIMITED
    {
        return Some(KeyQuotas::Unlimited);
    }
    if all.is_empty() {
        problems.error(given.place, "a key has at least one quota, as 5/min, or is unlimited");
    }
    let each: Vec<Option<Quota>> = all.iter().map(|text| read(text, problems)).collect();
    let each: Option<Vec<Quota>> = each.into_iter().collect();
    each.filter(|each| !each.is_empty()).map(|each| KeyQuotas::Quotas(each.into()))
}
