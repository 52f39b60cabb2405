//! Refusing a key outright if it continues after many refusals, as a setting of a policy.

use std::time::Duration;

use super::{OnFull, OnOutage, Policy, PolicyBuilder, check_name};
use crate::algorithm::Algorithm;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;
use crate::time_span::{IntoTimeSpan, TimeSpan};

crate::setters! { PolicyBuilder
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
    pub fn suspend(it, after: u64, within: impl IntoTimeSpan, lasts: impl IntoTimeSpan) {
        it.suspension_draft().terms = Some((after, within.into_time_span(), lasts.into_time_span()));
    }

    /// Sets the longest [suspension](Self::suspend), however many came before. Default: a day, or the length of
    /// the first one if that is more.
    pub fn up_to(it, longest: impl IntoTimeSpan) { it.suspension_draft().up_to = Some(longest.into_time_span()) }

    /// Sets the time from its beginning for which a [suspension](Self::suspend) is remembered: each remembered one doubles the length of
    /// the next. Default: a day, or the longest suspension if that is more.
    pub fn remember(it, span: impl IntoTimeSpan) { it.suspension_draft().remembers = Some(span.into_time_span()) }

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
    pub fn everywhere(it) { it.suspension_draft().reach = Reach::Everywhere }

    /// Like [`everywhere`](Self::everywhere), including keys that are an address.
    pub fn everywhere_with_addresses(it) { it.suspension_draft().reach = Reach::AddressesToo }

    /// Counts refusals, and keeps [suspensions](Self::suspend), under this name instead of the policy's own. Policies with the
    /// same name share them, so that a client cannot evade them by changing its plan: for the tiers of one limit. They
    /// need equal settings for suspensions and outages.
    pub fn suspend_as(it, name: impl Into<String>) { it.suspension_draft().name = Some(name.into()) }
}

impl PolicyBuilder {
    fn suspension_draft(&mut self) -> &mut SuspensionDraft {
        self.suspension.get_or_insert_default()
    }
}

/// The most refusals, and the most suspensions, of a key: the room of a sliding log on every store.
const MOST_STRIKES: u64 = 2_000;

/// The default for the longest suspension and for the time that it is remembered.
const DAY: Duration = Duration::from_secs(86_400);

/// The settings of a suspension as written, right or wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct SuspensionDraft {
    terms: Option<(u64, Span, Span)>,
    up_to: Option<Span>,
    remembers: Option<Span>,
    reach: Reach,
    name: Option<String>,
}

type Span = Result<TimeSpan, ConfigError>;

impl SuspensionDraft {
    /// The suspension of a policy of this name, or the mistake.
    pub(super) fn build(self, policy: &str) -> Result<Suspension, ConfigError> {
        let Self { terms, up_to, remembers, reach, name } = self;
        let (up_to, remembers) = (up_to.transpose()?, remembers.transpose()?);
        let base = name.as_deref().unwrap_or(policy);
        check_name("name for suspensions", base)?;
        let longest = 64 - ENDINGS[2].len();
        if base.len() > longest {
            let problem = format!(
                "{base:?} is too long for the name of a policy with suspensions: use at most {longest} characters, or a shorter name by `suspend_as`"
            );
            return Err(ConfigError::new(ConfigErrorKind::Name, problem));
        }
        let Some((after, within, lasts)) = terms else {
            return match (up_to.or(remembers), &name, reach) {
                (None, None, Reach::Everywhere | Reach::AddressesToo) => {
                    Ok(Suspension { terms: None, reach, name })
                }
                (Some(span), ..) => Err(wrong(format!(
                    "{span} is a span of a suspension, and none was said: add `suspend`, such as suspend(100, \"10min\", \"30min\")"
                ))),
                (None, ..) => Err(wrong(format!(
                    "it is to suspend as {base:?}, and after how many refusals was not said: add `suspend`, such as suspend(100, \"10min\", \"30min\")"
                ))),
            };
        };
        if !(1..=MOST_STRIKES).contains(&after) {
            return Err(wrong(format!(
                "it cannot suspend a key after {after} refusals: use 1 to {MOST_STRIKES}"
            )));
        }
        let lasts = spanned("suspend a key for", lasts?)?;
        let up_to = up_to.map(|span| spanned("suspend a key for up to", span)).transpose()?;
        let up_to = up_to.unwrap_or_else(|| lasts.max(DAY));
        if lasts > up_to {
            let (lasts, up_to) = (TimeSpan::from(lasts), TimeSpan::from(up_to));
            return Err(wrong(format!(
                "a suspension of {lasts} is longer than the {up_to} that it lasts at most: raise `up_to`, or suspend for less"
            )));
        }
        let remembers = remembers.map(|span| spanned("remember a suspension for", span)).transpose()?;
        let remembers = remembers.unwrap_or_else(|| up_to.max(DAY));
        if remembers < lasts {
            let (lasts, remembers) = (TimeSpan::from(lasts), TimeSpan::from(remembers));
            return Err(wrong(format!(
                "a suspension of {lasts} that is remembered for {remembers} is forgotten before it is over, so that the next one never lasts longer: raise `remember`"
            )));
        }
        let within = spanned("count refusals within", within?)?;
        let terms = SuspensionTerms { after, within, lasts, up_to, remembers };
        if terms.most_suspensions() > MOST_STRIKES {
            let (up_to, remembers) = (TimeSpan::from(up_to), TimeSpan::from(remembers));
            return Err(wrong(format!(
                "suspensions of up to {up_to} that are remembered for {remembers} can be more than the {MOST_STRIKES} that fit: raise `up_to`, or remember them for less"
            )));
        }
        Ok(Suspension { terms: Some(terms), reach, name })
    }
}

/// The settings as written.
impl From<&Suspension> for SuspensionDraft {
    fn from(Suspension { terms, reach, name }: &Suspension) -> Self {
        let span = |span: Duration| Ok(TimeSpan::from(span));
        Self {
            terms: terms.map(|terms| (terms.after, span(terms.within), span(terms.lasts))),
            up_to: terms.map(|terms| span(terms.up_to)),
            remembers: terms.map(|terms| span(terms.remembers)),
            reach: *reach,
            name: name.clone(),
        }
    }
}

fn spanned(what: &str, span: TimeSpan) -> Result<Duration, ConfigError> {
    let span = Duration::from(span);
    if (SHORTEST..=LONGEST).contains(&span) {
        return Ok(span);
    }
    let (span, longest) = (TimeSpan::from(span), TimeSpan::from(LONGEST));
    Err(wrong(format!("it cannot {what} {span}: use 1ms to {longest}")))
}

fn wrong(problem: String) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Policy, problem)
}

/// The bucket of keys that are suspended everywhere. No policy of a user can have a name that begins with a dot.
const EVERYWHERE: &str = ".suspended";

#[doc(hidden)]
impl Policy {
    /// The buckets that count a key's refusals and its suspensions, if this policy suspends keys by itself.
    pub(crate) fn strikes(&self) -> Result<Option<[Self; 2]>, ConfigError> {
        let Some(terms) = self.suspension().and_then(|suspension| suspension.terms) else {
            return Ok(None);
        };
        let SuspensionTerms { after, within, remembers, .. } = terms;
        let strikes =
            PolicyBuilder::new(self.beside(ENDINGS[0]), Algorithm::SlidingLog, Ok(Quota::new(after, within)));
        let most = terms.most_suspensions();
        let log = Ok(Quota::new(most, remembers));
        let suspensions =
            PolicyBuilder::new(self.beside(ENDINGS[2]), Algorithm::SlidingLog, log).debt_up_to(most);
        Ok(Some([self.bucket(strikes)?, self.bucket(suspensions)?]))
    }

    /// The policy whose debt is the rest of a key's suspension, one unit for each millisecond. For authors of stores.
    ///
    /// # Errors
    /// When its name is too long or taken.
    pub fn suspended(&self) -> Result<Self, ConfigError> {
        let name = self.beside(ENDINGS[1]);
        self.bucket(Self::debt_of_time(name))
    }

    /// The policy that keeps suspensions across all policies of a store, if this policy takes part in them. For authors of stores.
    ///
    /// # Errors
    /// As [`suspended`](Self::suspended).
    pub fn suspended_everywhere(&self) -> Result<Option<Self>, ConfigError> {
        if !self.suspension().is_some_and(Suspension::is_everywhere) {
            return Ok(None);
        }
        // Equal for all policies, whatever their settings for outages and keys.
        Self::debt_of_time(EVERYWHERE.to_owned()).on_outage(OnOutage::Allow).assembled().map(Some)
    }

    /// The name of the policy that counts how often a key was suspended, if this policy keeps the rest of suspensions. For authors
    /// of stores.
    pub fn counts_suspensions_in(&self) -> Option<String> {
        let base = self.name.strip_suffix(ENDINGS[1])?;
        Some(format!("{base}{}", ENDINGS[2]))
    }

    fn debt_of_time(name: String) -> PolicyBuilder {
        let units = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
        let quota = Ok(Quota::new(1, SHORTEST));
        PolicyBuilder::new(name, Algorithm::Gcra, quota).debt_up_to(units).on_full(OnFull::Keep)
    }

    fn beside(&self, ending: &str) -> String {
        let own = self.suspension().and_then(Suspension::name);
        format!("{}{ending}", own.unwrap_or(&self.name))
    }

    fn bucket(&self, mut bucket: PolicyBuilder) -> Result<Self, ConfigError> {
        // If the policy itself refuses or admits without asking, there is nothing to add.
        bucket.settings.on_outage = match self.on_outage() {
            OnOutage::Local | OnOutage::Quota(_) => OnOutage::Local,
            OnOutage::Allow | OnOutage::Deny => OnOutage::Allow,
        };
        (bucket.settings.keys, bucket.settings.version) = (self.table_size(), self.version());
        bucket.assembled()
    }
}

/// The endings of the names of a suspension's buckets. No other policy's name may have one of them.
const ENDINGS: [&str; 3] = [".strikes", ".suspended", ".suspensions"];

/// The shortest span, which is also the unit of suspensions.
const SHORTEST: Duration = Duration::from_millis(1);

/// The longest: ten years of 365 days.
const LONGEST: Duration = Duration::from_secs(315_360_000);

/// Whether a policy of this name is a bucket of a suspension.
pub(super) fn is_of_suspension(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Refuses a name with the ending of a suspension's buckets.
pub(super) fn check_ending(name: &str) -> Result<(), ConfigError> {
    match ENDINGS.iter().find(|ending| name.ends_with(**ending)) {
        None => Ok(()),
        Some(ending) => {
            let problem = format!(
                "{name:?} cannot be a policy name: names that end in {ending:?} are those of suspensions, so leave that ending out"
            );
            Err(ConfigError::new(ConfigErrorKind::Name, problem))
        }
    }
}

/// When a key is refused outright, and for how long: see [`PolicyBuilder::suspend`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suspension {
    /// None if the policy suspends no key by itself.
    terms: Option<SuspensionTerms>,
    reach: Reach,
    /// The name for suspensions, if it differs from the policy's.
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SuspensionTerms {
    after: u64,
    within: Duration,
    lasts: Duration,
    up_to: Duration,
    remembers: Duration,
}

impl SuspensionTerms {
    fn lasts(&self, before: u64) -> Duration {
        let times = u32::try_from(before).ok().and_then(|before| 1_u32.checked_shl(before));
        let longer = times.and_then(|times| self.lasts.checked_mul(times));
        longer.map_or(self.up_to, |longer| longer.min(self.up_to))
    }

    /// The most suspensions of a key that are remembered at a time: each is longer than the one before until the longest is reached, and
    /// then no more fit into the remembered time. A suspension that was ended by hand makes room for one more, which is
    /// not remembered.
    fn most_suspensions(&self) -> u64 {
        let doublings = (0..32).find(|before| self.lasts(*before) == self.up_to).unwrap_or(32);
        if doublings == 0 {
            // Nothing depends on earlier suspensions then.
            return 1;
        }
        let longest = self.remembers.as_nanos().checked_div(self.up_to.as_nanos()).unwrap_or_default();
        u64::try_from(longest).unwrap_or(u64::MAX).saturating_add(doublings + 1)
    }
}

/// The policies that refuse a suspended key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Reach {
    /// This policy.
    #[default]
    Policy,
    /// All policies with this reach; keys that are addresses are suspended only by this policy.
    Everywhere,
    /// All policies with this reach.
    AddressesToo,
}

impl Suspension {
    /// The number of refusals that suspend a key, and the span in which they count; `None` if this policy suspends no key by itself.
    pub fn after(&self) -> Option<(u64, Duration)> {
        self.terms.map(|terms| (terms.after, terms.within))
    }

    /// The length of a suspension of a key with `before` [remembered](Self::remembers) suspensions: twice as long for each,
    /// up to [`PolicyBuilder::up_to`].
    pub fn lasts(&self, before: u64) -> Option<Duration> {
        self.terms.map(|terms| terms.lasts(before))
    }

    /// The time from its beginning for which a suspension makes the next one longer.
    pub fn remembers(&self) -> Option<Duration> {
        self.terms.map(|terms| terms.remembers)
    }

    /// Whether this policy and others refuse each other's suspended keys.
    pub fn is_everywhere(&self) -> bool {
        self.reach != Reach::Policy
    }

    /// Whether keys that are addresses are refused everywhere, too.
    pub fn holds_addresses_everywhere(&self) -> bool {
        self.reach == Reach::AddressesToo
    }

    /// The number of buckets that say whether a key is suspended.
    pub(super) fn buckets(&self) -> usize {
        if self.is_everywhere() { 2 } else { 1 }
    }

    /// The name under which refusals are counted, if it differs from the policy's.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}
