//! Settings of suspensions on a policy.

use super::draft::SuspensionDraft;
use super::terms::Reach;
use crate::policy::PolicyBuilder;
use crate::time_span::IntoTimeSpan;

impl PolicyBuilder {
    /// Suspends a key that continues after many refusals: from the `after`-th refusal `within` a span it is refused outright, with
    /// [`Outcome::Suspended`](crate::Outcome::Suspended), for as long as this `lasts`, and twice as long each further time, see
    /// [`remember`](Self::remember). The refusal that suspends a key already says so. Refusals of a suspended key
    /// do not count, and cost the store one call like every decision.
    ///
    /// Each refusal counts as one, whatever its cost and its wait; if several limits decide together, it counts for the
    /// policies that refused. Under a policy that is not [enforced](Self::mode), no refusal counts and no key is suspended.
    /// Replacing the policy, a [reset](crate::RateLimiter::reset) and a refund release no key;
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

    /// Sets the longest [suspension](Self::suspend), however many came before. Default: a day, or the length of
    /// the first one if that is more.
    pub fn up_to(mut self, longest: impl IntoTimeSpan) -> Self {
        self.suspension_draft().up_to = Some(longest.into_time_span());
        self
    }

    /// Sets the time from its beginning for which a [suspension](Self::suspend) is remembered: each remembered one doubles the length of
    /// the next. Default: a day, or the longest suspension if that is more.
    pub fn remember(mut self, span: impl IntoTimeSpan) -> Self {
        self.suspension_draft().remembers = Some(span.into_time_span());
        self
    }

    /// Shares suspensions: a key that this policy [suspends](Self::suspend) is refused by all policies of the store with this setting, and
    /// this policy refuses the keys that they have suspended, whether or not it suspends keys itself. Each counts refusals by itself.
    ///
    /// A key that is an address is suspended only by this policy: a whole company may be behind one address, and only
    /// one of its clients may misbehave. To refuse addresses everywhere as well, use
    /// [`everywhere_with_addresses`](Self::everywhere_with_addresses). While the store cannot be reached, the keys
    /// suspended everywhere are unknown.
    ///
    /// A policy that gets this setting by a replacement still refuses the keys that it has suspended before. A policy that loses
    /// it then refuses only the keys that it suspends itself.
    pub fn everywhere(mut self) -> Self {
        self.suspension_draft().reach = Reach::Everywhere;
        self
    }

    /// Like [`everywhere`](Self::everywhere), including keys that are an address.
    pub fn everywhere_with_addresses(mut self) -> Self {
        self.suspension_draft().reach = Reach::AddressesToo;
        self
    }

    /// Counts refusals, and keeps [suspensions](Self::suspend), under this name instead of the policy's own. Policies with the
    /// same name share them, so that a client cannot evade them by changing its plan: for the tiers of one limit. They
    /// need equal settings for suspensions and outages.
    pub fn suspend_as(mut self, name: impl Into<String>) -> Self {
        self.suspension_draft().name = Some(name.into());
        self
    }

    fn suspension_draft(&mut self) -> &mut SuspensionDraft {
        self.suspension.get_or_insert_default()
    }
}
