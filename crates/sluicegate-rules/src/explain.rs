//! The rules that a request meets, and why it does not meet the others: [`Explained`].

use std::fmt;
use std::sync::Arc;

use sluicegate_core::Quota;
use sluicegate_tower::in_flight::{InFlightExplained, InFlightLimit};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::has_dots;
use sluicegate_tower::limits::{LimitExplained, Limits, Select, WouldBe};
use sluicegate_tower::room::Door;

use crate::compile::{Choice, Compiled, Unclear, WithKeys};
use crate::explain_room::RoomExplained;

/// All rules of a file for one request: whether each applies, what it asks then, and why it does not otherwise; made by
/// [`Rules::explain`](crate::Rules::explain).
///
/// `Display` writes one line for what would be decided and one or more for each rule.
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
/// policies: { reports: { quota: 10/h } }
/// in_flight:
///   at-once: { permits: 2, on_exceeded: wait 10s }
/// exempt:
///   - { name: health, only_if: { path: /health } }
/// rules:
///   - { name: report, only_if: { path: /report }, limit: reports, key: everybody, in_flight: at-once }
/// ", &Variables::none())?;
/// let rules = Rules::new(&MemoryStore::new(), file)?;
///
/// let explained = rules.explain(&Request::get("/report").body(())?).await.to_string();
/// let lines: Vec<&str> = explained.lines().collect();
/// assert_eq!(lines[..2], ["passes", "  exempt health: does not apply: path /report does not match /health"]);
/// assert!(lines[2].starts_with("  report: asks 1 of reports: 10/h (gcra)"));
/// assert!(lines[3].starts_with("  report: takes a permit of at-once") && lines[3].ends_with("2 of 2 left, waits up to 10s"));
/// # Ok(())
/// # }
/// ```
///
/// # How to read it
/// | line | says |
/// |---|---|
/// | the first | the [outcome](WouldBe), as far as the limits decide it |
/// | `deny admin: applies`, `exempt open: does not apply: ...` | each rule of these sections, and the first condition that does not hold |
/// | `login: asks 1 of login: 5/min (gcra) for 203.0.113.9; 2 of 5 left` | a limit of a rule that applies: cost, policy, key, and where each quota stands |
/// | `; room after 12s, all back after 1min` | the wait until the same cost passes, and until the key is at rest, in whole milliseconds, rounded up |
/// | `, refused requests count; room after at least 12s` | the policy has `count_rejected`: a refusal spends too, so that each one makes the wait longer |
/// | `tried: would ask ...` | the policy is only tried out (`mode: shadow`), and refuses nobody |
/// | `rest: not asked: of group endpoint, rule login applies` | a rule that does not apply, and why |
/// | `shop: waiting room sale, 50/s, 120 wait, a newcomer for about 3s` | a request without a pass waits there, before all else; [`outcome`](Explained::outcome) does not tell of it |
/// | `order: defers what exceeds orders` | a request that exceeds this policy is kept and carried out later, where the [outcome](WouldBe) says that it is refused |
/// | `report: takes a permit of at-once` | the request is counted by a number under `in_flight`, which is asked before the limits |
///
/// Keys that may be secrets are digests, as `Key(d415ad2e)`: the same key has the same digest within a process. Values of header fields
/// and of the query are never shown.
///
/// The store says where the quotas stand now. On a store of its own, such as a tool's, nothing has been spent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explained {
    /// The decision that would be made.
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
    /// The reason why it does not apply, if it does not.
    pub why_not: Option<String>,
    /// Its asks: one for each of its limits. Empty if it does not apply, and for a rule under `deny` or `exempt`.
    pub limits: Vec<LimitExplained>,
    /// The permit that the request needs, if the rule names one of `in_flight`. It is asked for before the limits are, and
    /// [`outcome`](Explained::outcome) does not tell of it: a request without one is refused with 429.
    pub in_flight: Option<InFlightExplained>,
    /// The waiting rooms that it comes to, in their order, before the permit and the limits.
    pub rooms: Vec<RoomExplained>,
    /// The policies of its limits that defer: a request that exceeds one of them is kept and carried out later, unless another limit refuses it.
    pub deferring: Vec<String>,
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

/// The name and the rate of a room in the file, and its door.
type RoomOfRule = (String, Quota, Option<Arc<dyn Door>>);

/// The part of the rules of a file that explanations need.
pub(crate) struct Explainer {
    deny: Arc<Choice>,
    exempt: Arc<Choice>,
    choice: Arc<Choice>,
    unclear: Unclear,
    /// The number of limits of each rule.
    sizes: Vec<usize>,
    /// The limits of each rule on requests under way at once.
    in_flight: Vec<Option<InFlightLimit>>,
    /// The waiting rooms of each rule, without doors for a tool.
    rooms: Vec<Vec<RoomOfRule>>,
    /// The policies of each rule that defer.
    deferring: Vec<Vec<String>>,
    /// The quotas of single keys.
    pub(crate) with_keys: Arc<WithKeys>,
}

impl Explainer {
    pub(crate) fn of(
        compiled: &Compiled,
        (in_flight, doors): (Vec<Option<InFlightLimit>>, &[Arc<dyn Door>]),
        unclear: Unclear,
    ) -> Self {
        let room = |place: &usize| {
            let terms = &compiled.rooms.get(*place)?.terms;
            Some((terms.name.clone(), terms.rate, doors.get(*place).cloned()))
        };
        let rooms = compiled.rooms_of_rules().map(|rooms| rooms.iter().filter_map(room).collect());
        let Compiled { deny, exempt, choice, with_keys, .. } = compiled;
        let with_keys = Arc::clone(with_keys);
        let (deny, exempt, choice) = (Arc::clone(deny), Arc::clone(exempt), Arc::clone(choice));
        let (sizes, rooms) = (compiled.sizes().collect(), rooms.collect());
        let deferring = compiled.deferring().collect();
        Self { deny, exempt, choice, unclear, sizes, in_flight, rooms, deferring, with_keys }
    }

    /// Explains a request by these limits, which must come from the same file.
    pub(crate) async fn explain(&self, limits: &Limits, request: RequestView<'_>) -> Explained {
        let explanation = limits.explain(request).await;
        let Self { deny, exempt, choice, unclear, sizes, in_flight, rooms: of_rules, .. } = self;
        let is_denied = deny.first(request).is_some();
        let mut rules = doors(Section::Deny, deny, request, None);
        let unclear = unclear(request);
        let never = match (is_denied, has_dots(request.path())) {
            (true, _) => Some("the request is denied"),
            (_, true) => Some("a path with \".\" or \"..\" is never exempt"),
            _ => unclear,
        };
        rules.extend(doors(Section::Exempt, exempt, request, never));
        let passes_by = match explanation.outcome {
            WouldBe::Exempt => Some("the request is exempt"),
            _ if is_denied => Some("the request is denied"),
            _ => unclear,
        };
        let mut asked = explanation.limits.into_iter();
        for (place, ((name, group), size)) in choice.names().zip(sizes).enumerate() {
            let limits: Vec<_> = asked.by_ref().take(*size).collect();
            let why_not = passes_by.map(str::to_owned).or_else(|| choice.why_not(request, place));
            let limits = if why_not.is_some() { Vec::new() } else { limits };
            let in_flight = match in_flight.get(place) {
                Some(Some(limit)) if why_not.is_none() => limit.explain(request).await,
                _ => None,
            };
            let rooms = of_rules.get(place).filter(|_| why_not.is_none()).into_iter().flatten();
            let rooms = rooms.map(|(name, rate, door)| RoomExplained {
                name: name.clone(),
                rate: *rate,
                numbers: door.as_ref().map(|door| door.numbers()),
            });
            let deferring =
                self.deferring.get(place).filter(|_| why_not.is_none()).cloned().unwrap_or_default();
            let (name, group, rooms) = (name.to_owned(), group.map(str::to_owned), rooms.collect());
            let section = Section::Rules;
            rules.push(RuleExplained { section, name, group, why_not, limits, in_flight, rooms, deferring });
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
        in_flight: None,
        rooms: Vec::new(),
        deferring: Vec::new(),
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
        let Self { section, name, why_not, limits, in_flight, rooms, deferring, .. } = self;
        match (section, why_not) {
            (Section::Rules, Some(why)) => write!(f, "  {name}: not asked: {why}"),
            (Section::Rules, None) => {
                let rooms = rooms.iter().map(|room| format!("  {name}: {room}"));
                let limits = limits.iter().map(|limit| format!("  {limit}"));
                let permit = in_flight.iter().map(|permit| format!("  {name}: {permit}"));
                let deferring =
                    deferring.iter().map(|policy| format!("  {name}: defers what exceeds {policy}"));
                f.write_str(
                    &rooms.chain(limits).chain(deferring).chain(permit).collect::<Vec<_>>().join("\n"),
                )
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
