//! The rules that apply to a request, and the reasons why the others do not: [`Explained`].

use std::fmt;
use std::sync::Arc;

use sluicegate_core::Quota;
use sluicegate_core::policy::{PolicyMode, TimeSpan};
use sluicegate_core::support::ceil_seconds;
use sluicegate_tower::in_flight::{InFlightExplained, InFlightLimit};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::has_dots;
use sluicegate_tower::limits::{LimitExplained, Limits, Select, WouldBe};
use sluicegate_tower::room::{Door, RoomNumbers};

use crate::compile::{Choice, Compiled, Rule, Sections, WithKeys};

/// All rules of a file for one request: whether each applies, with its asks or the reason why not; made by
/// [`Rules::explain`](crate::Rules::explain).
///
/// `Display` writes one line for the decision and one or more for each rule.
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
/// | line | meaning |
/// |---|---|
/// | the first | the [outcome](WouldBe), as decided by the limits |
/// | `deny admin: applies`, `exempt open: does not apply: ...` | each rule of these sections, and the first condition that does not hold |
/// | `login: asks 1 of login: 5/min (gcra) for 203.0.113.9; 2 of 5 left` | a limit of a rule that applies: cost, policy, key, and the status of each quota |
/// | `; room after 12s, all back after 1min` | the wait until the same cost passes, and until the key is at rest, in whole milliseconds, rounded up |
/// | `, refused requests count; room after at least 12s` | the policy has `count_rejected`: a refusal spends too, so that each one makes the wait longer |
/// | `tried: would ask ...` | the policy is only tried out (`mode: shadow`), and refuses no request |
/// | `rest: not asked: of group endpoint, rule login applies` | a rule that does not apply, and the reason |
/// | `shop: waiting room sale, 50/s, 120 wait, a newcomer for about 3s` | a request without a pass waits there, before all else; [`outcome`](Explained::outcome) does not include it |
/// | `order: defers what exceeds orders to the queue of the program, bodies up to 65536 bytes` | a request that exceeds this policy is kept and run later, although the [outcome](WouldBe) is a refusal; a tool has no queue, and shows no bound on bodies |
/// | `report: takes a permit of at-once` | the request is counted by a number under `in_flight`, which is checked before the limits |
///
/// Keys that may be secrets are digests, such as `Key(d415ad2e)`: the same key has the same digest within a process. Values of header
/// fields and of the query are never shown.
///
/// The store gives the current status of the quotas. On a separate store, such as a tool's, no units are spent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explained {
    /// The expected decision.
    pub outcome: WouldBe,
    /// Every rule: first the rules under `deny`, then under `exempt`, then under `rules`, each in their order.
    pub rules: Vec<RuleExplained>,
}

/// One rule, for one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleExplained {
    /// Its section.
    pub section: Section,
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: Option<String>,
    /// The reason why it does not apply, if it does not.
    pub why_not: Option<String>,
    /// Its asks: one for each of its limits. Empty if it does not apply, and for a rule under `deny` or `exempt`.
    pub limits: Vec<LimitExplained>,
    /// The permit that the request needs, if the rule names one of `in_flight`. It is taken before the limits are asked, and
    /// [`outcome`](Explained::outcome) does not include it: a request without a permit is refused with 429.
    pub in_flight: Option<InFlightExplained>,
    /// Its waiting rooms, in their order, before the permit and the limits.
    pub rooms: Vec<RoomExplained>,
    /// The enforced policies of its limits that defer: a request that exceeds one of them is kept and run later, unless
    /// another limit refuses it.
    pub deferring: Vec<DeferralExplained>,
}

/// A section of a file with rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// `deny`: the request is refused before any limit.
    Deny,
    /// `exempt`: the request skips all limits.
    Exempt,
    /// `rules`.
    Rules,
}

/// The part of the rules of a file that explanations need.
pub(crate) struct Explainer {
    sections: Sections,
    rules: Arc<[Rule]>,
    /// The limits of each rule on concurrent requests.
    in_flight: Vec<Option<InFlightLimit>>,
    /// The waiting rooms of the file, without numbers, and the door of each; a tool has none.
    rooms: Vec<(RoomExplained, Option<Arc<dyn Door>>)>,
    /// The most bytes of a body that is kept for later, in a program that keeps some.
    longest_body: Option<usize>,
    /// The quotas of single keys.
    pub(crate) with_keys: Arc<WithKeys>,
}

impl Explainer {
    pub(crate) fn of(
        compiled: &Compiled,
        (sections, in_flight): (Sections, Vec<Option<InFlightLimit>>),
        doors: &[Arc<dyn Door>],
        longest_body: Option<usize>,
    ) -> Self {
        let rooms = compiled.rooms.iter().enumerate().map(|(place, room)| {
            let (name, rate) = (room.terms.name.clone(), room.terms.rate);
            (RoomExplained { name, rate, numbers: None }, doors.get(place).cloned())
        });
        let (rules, with_keys) = (Arc::clone(&compiled.rules), Arc::clone(&compiled.with_keys));
        Self { sections, rules, in_flight, rooms: rooms.collect(), longest_body, with_keys }
    }

    /// Explains a request with these limits, which must come from the same file.
    pub(crate) async fn explain(&self, limits: &Limits, request: RequestView<'_>) -> Explained {
        let explanation = limits.explain(request).await;
        let Sections { deny, exempt, rules: choice, .. } = &self.sections;
        let is_denied = deny.first(request).is_some();
        let mut rules = doors(Section::Deny, deny, request, None);
        let unclear = self.sections.unclear(request);
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
        for (place, rule) in self.rules.iter().enumerate() {
            let mut explained = RuleExplained::new(Section::Rules, &rule.name);
            explained.group.clone_from(&rule.group);
            let limits: Vec<_> = asked.by_ref().take(rule.size()).collect();
            explained.why_not = passes_by.map(str::to_owned).or_else(|| choice.why_not(request, place));
            if explained.why_not.is_none() {
                explained.deferring = self.deferring(rule, &limits);
                explained.limits = limits;
                explained.rooms = rule.rooms.iter().filter_map(|room| self.room(*room)).collect();
                if let Some(limit) = self.in_flight.get(place).and_then(Option::as_ref) {
                    explained.in_flight = limit.explain(request).await;
                }
            }
            rules.push(explained);
        }
        Explained { outcome: explanation.outcome, rules }
    }

    fn room(&self, place: usize) -> Option<RoomExplained> {
        let (room, door) = self.rooms.get(place)?;
        Some(RoomExplained { numbers: door.as_ref().map(|door| door.numbers()), ..room.clone() })
    }

    /// The policies of a rule that defer requests, if they are enforced and asked.
    fn deferring(&self, rule: &Rule, limits: &[LimitExplained]) -> Vec<DeferralExplained> {
        let asks = limits.iter().filter_map(|limit| limit.asks.as_ref().ok());
        let enforced = asks.map(|asks| &asks.policy).filter(|policy| policy.mode() == PolicyMode::Enforce);
        let names = enforced.map(|policy| policy.name().to_owned());
        let deferring =
            names.filter(|name| rule.policies().any(|keyed| keyed.defers && keyed.policy.name() == name));
        deferring.map(|policy| DeferralExplained { policy, longest_body: self.longest_body }).collect()
    }
}

fn doors(
    section: Section,
    doors: &Choice,
    request: RequestView<'_>,
    never: Option<&str>,
) -> Vec<RuleExplained> {
    let all = doors.names().enumerate().map(|(place, name)| RuleExplained {
        why_not: doors.why_not(request, place).or_else(|| never.map(str::to_owned)),
        ..RuleExplained::new(section, name)
    });
    all.collect()
}

impl RuleExplained {
    fn new(section: Section, name: &str) -> Self {
        Self {
            section,
            name: name.to_owned(),
            group: None,
            why_not: None,
            limits: Vec::new(),
            in_flight: None,
            rooms: Vec::new(),
            deferring: Vec::new(),
        }
    }
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
                let deferring = deferring.iter().map(|deferral| format!("  {name}: {deferral}"));
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

/// A waiting room that a request comes to. A request that shows no pass waits there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RoomExplained {
    /// Its name.
    pub name: String,
    /// The rate in the file.
    pub rate: Quota,
    /// Its current numbers; `None` in a tool, which has no line.
    ///
    /// They are from one moment, and estimates if the line is long: visitors who leave are noticed only at their turn.
    pub numbers: Option<RoomNumbers>,
}

/// A policy that defers, for a request that may exceed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeferralExplained {
    /// Its name. Its quotas, which jobs are run by, are listed with the limit.
    pub policy: String,
    /// The most bytes of a body that the queue of the program keeps; a request with a longer one is refused. `None` in a tool, which has no
    /// queue.
    pub longest_body: Option<usize>,
}

/// Writes `defers what exceeds orders to the queue of the program, bodies up to 65536 bytes`.
impl fmt::Display for DeferralExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "defers what exceeds {} to the queue of the program", self.policy)?;
        self.longest_body.map_or(Ok(()), |bytes| write!(f, ", bodies up to {bytes} bytes"))
    }
}

/// Writes `waiting room sale, 50/s, 120 wait, a newcomer for about 3s`.
impl fmt::Display for RoomExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rate, numbers } = self;
        write!(f, "waiting room {name}, {rate}")?;
        let Some(now) = numbers else { return Ok(()) };
        let plain = |rate: Quota| Quota::new(rate.limit(), rate.period());
        if plain(now.rate) != plain(*rate) {
            write!(f, ", set to {}", plain(now.rate))?;
        }
        match now.mode {
            "open" => f.write_str(", open to all")?,
            "paused" => f.write_str(", paused")?,
            _ => {}
        }
        if let Some(active) = now.active {
            write!(f, ", {active} are inside")?;
        }
        write!(f, ", {} wait", now.waiting)?;
        match now.wait.filter(|wait| !wait.is_zero()) {
            // As much as an estimate is worth.
            Some(wait) => {
                let seconds = ceil_seconds(wait);
                write!(
                    f,
                    ", a newcomer for about {}",
                    TimeSpan::from(std::time::Duration::from_secs(seconds))
                )
            }
            None => Ok(()),
        }
    }
}
