//! Settings of suspensions on a policy.

use super::draft::SuspensionDraft;
use super::terms::Reach;
use crate::policy::PolicyBuilder;
use crate::time_span::IntoTimeSpan;

impl PolicyBuilder {
    /// Suspends a key that goes on after many refusals: with the `after`-th of them `within` a span it is refused outright, with
    /// [`Outcome::Suspended`](crate::Outcome::Suspended), for as long as this `lasts`; twice as long each time, see
    /// [`remember`](Self::remember). The refusal that is one too many is the first that says so. Refusals of a suspended key
    /// do not count, and cost the store one call as every decision does.
    ///
    /// Each refusal counts as one, whatever its cost and its wait; where several limits decide together, it counts for the
    /// policies that refused. Under a policy that is not [enforced](Self::mode) nothing counts and no key is suspended.
    /// Replacing the policy, a [reset](crate::RateLimiter::reset) and a refund free no key;
    /// [`release`](crate::limiter::Suspensions::release) does. See [`suspension`](crate::suspension) for more.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Outcome, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Policy::gcra("api", "1/s").suspend(3, "1min", "30min").up_to("1d").on(&MemoryStore::new())?;
    ///
    /// assert!(api.check("ada").await?.is_allowed());
    /// assert_eq!(api.check("ada").await?.outcome(), Outcome::Denied);
    /// assert_eq!(api.check("ada").await?.outcome(), Outcome::Denied);
    /// let third = api.check("ada").await?;
    /// assert_eq!(third.outcome(), Outcome::Suspended);
    /// assert_eq!(third.retry_after().map(|wait| wait.as_secs_f64().round() / 60.0), Some(30.0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn suspend(mut self, after: u64, within: impl IntoTimeSpan, lasts: impl IntoTimeSpan) -> Self {
        self.suspension_draft().terms = Some((after, within.into_time_span(), lasts.into_time_span()));
        self
    }

    /// The longest that a [suspension](Self::suspend) lasts, however often there was one before. Default: a day, or as long as
    /// the first one lasts if that is more.
    pub fn up_to(mut self, longest: impl IntoTimeSpan) -> Self {
        self.suspension_draft().up_to = Some(longest.into_time_span());
        self
    }

    /// Sets the time from its beginning for which a [suspension](Self::suspend) is remembered: the next one lasts twice as long for
    /// each that is. Default: a day, or as long as a suspension lasts at most if that is more.
    pub fn remember(mut self, span: impl IntoTimeSpan) -> Self {
        self.suspension_draft().remembers = Some(span.into_time_span());
        self
    }

    /// A key that this policy [suspends](Self::suspend) is refused by all policies of the store with this setting; and this one
    /// refuses the keys that those have suspended, whether or not it suspends any itself. Each counts refusals by itself.
    ///
    /// Keys that are one address are suspended by this policy alone: behind one address there may be a whole company, of which
    /// one client misbehaves in one place. If they are to be refused everywhere as well, say
    /// [`everywhere_with_addresses`](Self::everywhere_with_addresses). While the store cannot be reached, it is not known which keys
    /// are suspended everywhere.
    ///
    /// A policy that gets this setting by a replacement goes on refusing the keys that it has suspended before. A policy that loses
    /// it refuses from then on the keys that it suspends itself.
    pub fn everywhere(mut self) -> Self {
        self.suspension_draft().reach = Reach::Everywhere;
        self
    }

    /// As [`everywhere`](Self::everywhere), for keys that are an address, too.
    pub fn everywhere_with_addresses(mut self) -> Self {
        self.suspension_draft().reach = Reach::AddressesToo;
        self
    }

    /// Counts refusals, and keeps [suspensions](Self::suspend), under this name instead of the policy's own. Policies with the
    /// same name share them, so that a client does not evade them by a change of its plan: for the tiers of one limit. They
    /// have to have the same settings for suspensions and outages.
    pub fn suspend_as(mut self, name: impl Into<String>) -> Self {
        self.suspension_draft().name = Some(name.into());
        self
    }

    fn suspension_draft(&mut self) -> &mut SuspensionDraft {
        self.suspension.get_or_insert_default()
    }
}
