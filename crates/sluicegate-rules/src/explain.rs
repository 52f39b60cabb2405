//! Which rules a request meets, and why not the others: [`Explained`].

use std::fmt;
use std::sync::{Arc, PoisonError};

use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{LimitExplained, Select, WouldBe};

use crate::compile::{Choice, Compiled, has_dots};
use crate::rules::Rules;

/// All rules of a file for one request: whether each applies, what it asks then, and why it does not otherwise; made by
/// [`Rules::explain`].
///
/// `Display` writes one line for what would be decided and one or more for each rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explained {
    /// What would be decided.
    pub outcome: WouldBe,
    /// Every rule: first those under `deny`, then those under `exempt`, then those under `rules`, each in their order.
    pub rules: Vec<RuleExplained>,
}

/// One rule, for one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleExplained {
    /// The section that it stands in.
    pub section: Section,
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: Option<String>,
    /// Why it does not apply, if it does not.
    pub why_not: Option<String>,
    /// What it asks: one for each of its limits. Empty if it does not apply, and for a rule under `deny` or `exempt`.
    pub limits: Vec<LimitExplained>,
}

/// A section of a file with rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// `deny`: the request is refused before any limit.
    Deny,
    /// `exempt`: the request passes all limits by.
    Exempt,
    /// `rules`.
    Rules,
}

/// The rules of a file, as far as explanations need them.
pub(crate) struct Explainer {
    deny: Arc<Choice>,
    exempt: Arc<Choice>,
    choice: Arc<Choice>,
    /// How many limits each rule has.
    sizes: Vec<usize>,
}

impl Explainer {
    pub(crate) fn of(compiled: &Compiled) -> Self {
        let Compiled { deny, exempt, choice, .. } = compiled;
        let (deny, exempt, choice) = (Arc::clone(deny), Arc::clone(exempt), Arc::clone(choice));
        Self { deny, exempt, choice, sizes: compiled.sizes().collect() }
    }
}

impl Rules {
    /// Says which rules a request meets and why not the others, and what would be decided on it; by the code that decides. Nothing
    /// is spent. Keys that may be secrets are shown as digests, and the values of header fields and parameters are not.
    ///
    /// ```
    /// use http::Request;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, RulesFile, Variables};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = RulesFile::parse("rules.yaml", "
    /// version: 1
    /// policies:
    ///   login: { quota: 5/min }
    ///   api: { quota: 100/min }
    /// rules:
    ///   - { name: login, only_if: { path: /login, method: POST }, limit: login, key: everybody }
    ///   - { name: api, limit: api, key: everybody }
    /// ", &Variables::none())?;
    /// let rules = Rules::new(&MemoryStore::new(), file)?;
    ///
    /// let request = Request::get("/login").body(())?;
    /// let explained = rules.explain(&request).await;
    /// assert_eq!(explained.rules[0].why_not.as_deref(), Some("method is GET, the rule wants POST"));
    /// assert_eq!(explained.rules[1].limits[0].asks.as_ref().map(|asks| asks.cost), Ok(1));
    /// println!("{explained}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it undoes nothing, because nothing is done.
    pub async fn explain<'a>(&self, request: impl Into<RequestView<'a>>) -> Explained {
        let request = request.into();
        let (limits, explainer) = {
            let in_force = self.0.in_force.lock().unwrap_or_else(PoisonError::into_inner);
            (self.limits(), Arc::clone(&in_force.explainer))
        };
        let explanation = limits.explain(request).await;
        let Explainer { deny, exempt, choice, sizes } = &*explainer;
        let is_denied = deny.first(request).is_some();
        let mut rules = doors(Section::Deny, deny, request, None);
        let never = match (is_denied, has_dots(request.path())) {
            (true, _) => Some("the request is denied"),
            (_, true) => Some("a path with \".\" or \"..\" is never exempt"),
            _ => None,
        };
        rules.extend(doors(Section::Exempt, exempt, request, never));
        let passes_by = match explanation.outcome {
            WouldBe::Exempt => Some("the request is exempt"),
            _ if is_denied => Some("the request is denied"),
            _ => None,
        };
        let mut asked = explanation.limits.into_iter();
        for (place, ((name, group), size)) in choice.names().zip(sizes).enumerate() {
            let limits: Vec<_> = asked.by_ref().take(*size).collect();
            let why_not = passes_by.map(str::to_owned).or_else(|| choice.why_not(request, place));
            let limits = if why_not.is_some() { Vec::new() } else { limits };
            let (name, group) = (name.to_owned(), group.map(str::to_owned));
            rules.push(RuleExplained { section: Section::Rules, name, group, why_not, limits });
        }
        Explained { outcome: explanation.outcome, rules }
    }
}

fn doors(
    section: Section,
    doors: &Choice,
    request: RequestView<'_>,
    never: Option<&str>,
) -> Vec<RuleExplained> {
    let all = doors.names().enumerate().map(|(place, (name, _))| RuleExplained {
        section,
        name: name.to_owned(),
        group: None,
        why_not: doors.why_not(request, place).or_else(|| never.map(str::to_owned)),
        limits: Vec::new(),
    });
    all.collect()
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        self.rules.iter().try_for_each(|rule| write!(f, "\n{rule}"))
    }
}

impl fmt::Display for RuleExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, name, why_not, limits, .. } = self;
        match (section, why_not) {
            (Section::Rules, Some(why)) => write!(f, "  {name}: not asked: {why}"),
            (Section::Rules, None) => {
                let mut lines = limits.iter().enumerate();
                lines.try_for_each(|(at, limit)| write!(f, "{}  {limit}", if at > 0 { "\n" } else { "" }))
            }
            (section, Some(why)) => write!(f, "  {section} {name}: does not apply: {why}"),
            (section, None) => write!(f, "  {section} {name}: applies"),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::Exempt => "exempt",
            Self::Rules => "rules",
        })
    }
}
