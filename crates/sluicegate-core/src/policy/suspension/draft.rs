//! The settings of a suspension as written, right or wrong: [`SuspensionDraft`].

use std::time::Duration;

use super::names::{ENDINGS, LONGEST, SHORTEST};
use super::terms::{Reach, Suspension, SuspensionTerms};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::check_name;
use crate::time_span::TimeSpan;

/// The most refusals, and the most suspensions, of a key: the room of a sliding log on every store.
const MOST_STRIKES: u64 = 2_000;

/// The default for the longest suspension and for the time that it is remembered.
const DAY: Duration = Duration::from_secs(86_400);

/// The settings of a suspension as written, right or wrong.
#[derive(Clone, Debug, Default)]
pub(in crate::policy) struct SuspensionDraft {
    pub(super) terms: Option<(u64, Span, Span)>,
    pub(super) up_to: Option<Span>,
    pub(super) remembers: Option<Span>,
    pub(super) reach: Reach,
    pub(super) name: Option<String>,
}

type Span = Result<TimeSpan, ConfigError>;

impl SuspensionDraft {
    /// The suspension of a policy of this name, or the mistake.
    pub(in crate::policy) fn build(self, policy: &str) -> Result<Suspension, ConfigError> {
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
