//! The policies of a file.
//!
//! A policy is built by the same code as in a Rust program, so a file can express nothing that code cannot, and mistakes are reported in
//! the same words.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use sluicegate_core::policy::{PolicyBuilder, PolicyMode, TimeSpan};
use sluicegate_core::{Algorithm, OnExceeded, OnOutage, Policy, Quota};

use super::keys::{ApiKeys, Keys};
use super::own::KeyedPolicy;
use super::rooms::{self, FileRoomTerms};
use super::rule::status;
use super::value::{number, option, read, refuse, texts, wrong};
use crate::at::At;
use crate::error::Problems;
use crate::schema::{ApiKeysEntry, Named, PolicyEntry, Suspend, Tighten, written};
use crate::shown::short;

/// The policies by name, and the ones that rules use.
pub(super) struct Policies {
    all: HashMap<String, FilePolicy>,
    used: RefCell<HashSet<String>>,
}

/// A policy of the file.
struct FilePolicy {
    name: At<String>,
    policy: Option<KeyedPolicy>,
    /// The terms, if the policy is a waiting room; `Some(None)` if they are wrong.
    room: Option<Option<FileRoomTerms>>,
}

impl Policies {
    /// All policies of the section. The mistakes in each are reported once, whichever rules name it.
    pub(super) fn of(section: &Named<At<PolicyEntry>>, keys: &Keys, problems: &mut Problems<'_>) -> Self {
        let mut all = HashMap::new();
        for (name, entry) in &section.0 {
            let entry = &entry.value;
            let (mut policy, mut room) = (None, None);
            if is_said(entry, "room") {
                room = Some(rooms::terms(name, entry, problems));
            } else {
                refuse(written!(entry; room), problems, |_| {
                    "this is of a waiting room: say on_exceeded: room, or leave it out".to_owned()
                });
                let own = (name, &entry.overrides, entry.quota_by.as_ref());
                policy = self::policy(name, entry, problems)
                    .map(|policy| KeyedPolicy::of(policy, own, keys, problems));
                let defers = is_said(entry, DEFER);
                if defers {
                    refuse_beside_defer(entry, problems);
                }
                let inherit = option(entry.inherit.as_ref(), problems).unwrap_or_default();
                let status = entry.status.as_ref().and_then(|text| status(text, problems));
                if let Some(policy) = &mut policy {
                    (policy.defers, policy.inherit, policy.status) = (defers, inherit, status);
                }
            }
            let known = FilePolicy { name: name.clone(), policy, room };
            all.insert(name.value.clone(), known);
        }
        Self { all, used: RefCell::default() }
    }

    /// Whether there is a policy of this name, valid or not.
    pub(super) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// The waiting room of this name, which is used from now on; `Some(None)` if it is wrong, which is already reported.
    pub(super) fn room(&self, name: &str) -> Option<Option<&FileRoomTerms>> {
        let room = self.all.get(name)?.room.as_ref()?;
        self.used.borrow_mut().insert(name.to_owned());
        Some(room.as_ref())
    }

    /// The policy of this name, which is used from now on; `None` too if it is wrong, which is already reported.
    pub(super) fn used(&self, name: &str) -> Option<&KeyedPolicy> {
        self.used.borrow_mut().insert(name.to_owned());
        self.all.get(name)?.policy.as_ref()
    }

    /// The policy of this name, if nothing has used it so far.
    pub(super) fn unused(&self, name: &str) -> Option<&KeyedPolicy> {
        self.all.get(name).filter(|_| !self.used.borrow().contains(name))?.policy.as_ref()
    }

    /// The names of all policies, in no order, to suggest a similar one.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(|name| &**name)
    }

    /// Warns of unused quotas, because they look as if they were in force.
    pub(super) fn warn_of_unread(
        &self,
        keys: &At<ApiKeysEntry>,
        listed: &ApiKeys,
        problems: &mut Problems<'_>,
    ) {
        let is_read = self.all.values().flat_map(|known| &known.policy).any(KeyedPolicy::reads_api_keys);
        if listed.quotas().next().is_some() && !is_read {
            let text = "the file of API keys gives quotas that no policy reads: say quota_by: api_key in one";
            problems.warning(keys.place, text);
        }
    }

    /// Warns of unused policies, because they look as if they were in force.
    pub(super) fn warn_of_unused(&self, problems: &mut Problems<'_>) {
        let names = self.all.values().map(|known| &known.name);
        for name in names.filter(|name| !self.used.borrow().contains(&name.value)) {
            problems.warning(
                name.place,
                format!(
                    "policy {:?} limits no request, because no rule or tier names it; `sluicegate serve` checks it by name",
                    name.value
                ),
            );
        }
    }
}

/// The word of `on_exceeded` in a policy whose requests are kept for later.
const DEFER: &str = "defer";

/// Whether `on_exceeded` has this word.
fn is_said(entry: &PolicyEntry, word: &str) -> bool {
    entry.on_exceeded.as_ref().is_some_and(|said| said.value == word)
}

/// Reports words that have no meaning in a policy that defers.
fn refuse_beside_defer(entry: &PolicyEntry, problems: &mut Problems<'_>) {
    refuse(written!(entry; quota_by overrides), problems, |word| {
        format!(
            "a policy that defers has no {word:?}: a job takes its turn by the quotas of the policy, and not of its key"
        )
    });
    refuse(written!(entry; count_rejected suspend status), problems, |word| {
        format!("a policy that defers has no {word:?}: a request that is kept for later is no refusal")
    });
}

/// The most keys that a policy can have room for.
const MOST_KEYS: u64 = 1 << 31;

fn policy(name: &At<String>, given: &PolicyEntry, problems: &mut Problems<'_>) -> Option<Policy> {
    let algorithm = option(given.algorithm.as_ref(), problems).unwrap_or(Algorithm::Gcra);
    let quotas = texts(&given.quota, problems);
    let Some((first, others)) = quotas.split_first() else {
        problems.error(given.quota.place, "a policy has at least one quota, as 5/min");
        return None;
    };
    // Each of several is checked separately, so that all errors are reported together.
    let before = problems.count();
    for quota in quotas.iter().filter(|_| !others.is_empty()) {
        if let Err(error) = Policy::builder("one", algorithm, &*quota.value).build() {
            wrong(quota, &error, problems);
        }
    }
    if problems.count() > before {
        return None;
    }
    let mut builder = Policy::builder(&*name.value, algorithm, &*first.value);
    for quota in others {
        builder = builder.and(&*quota.value);
    }
    let keys = given.table_size.as_ref();
    if let Some(keys) = keys.and_then(|keys| number(keys, "a number of keys", 1..=MOST_KEYS, problems)) {
        builder = builder.table_size(usize::try_from(keys).unwrap_or(usize::MAX));
    }
    let builder = options(builder, given, problems);
    builder
        .build()
        .map_err(|error| match error.quota().and_then(|index| quotas.get(index)) {
            Some(quota) => wrong(quota, &error, problems),
            None => problems.error(name.place, error.problem()),
        })
        .ok()
}

fn options(mut builder: PolicyBuilder, given: &PolicyEntry, problems: &mut Problems<'_>) -> PolicyBuilder {
    // Without a queue for the requests, such a policy refuses them.
    let on_exceeded = given.on_exceeded.as_ref().filter(|_| !is_said(given, DEFER));
    if let Some(on_exceeded) = option::<OnExceeded>(on_exceeded, problems) {
        builder = builder.on_exceeded(on_exceeded);
    }
    if let Some(on_outage) = option::<OnOutage>(given.on_outage.as_ref(), problems) {
        builder = builder.on_outage(on_outage);
    }
    if let Some(mode) = option::<PolicyMode>(given.mode.as_ref(), problems) {
        builder = builder.mode(mode);
    }
    if given.hidden.as_ref().is_some_and(|hidden| hidden.value) {
        builder = builder.hidden();
    }
    if given.count_rejected.as_ref().is_some_and(|counts| counts.value) {
        builder = builder.count_rejected();
    }
    if let Some(suspend) = &given.suspend {
        builder = suspension(builder, suspend, problems);
    }
    match &given.tighten {
        Some(tighten) => tightening(builder, tighten, problems),
        None => builder,
    }
}

fn tightening(builder: PolicyBuilder, given: &At<Tighten>, problems: &mut Problems<'_>) -> PolicyBuilder {
    let Tighten { to, r#for, agreed_by, keys, shadow } = &given.value;
    let agreed_by = agreed_by.as_ref().map(|text| number(text, "a number of instances", 1..=100, problems));
    let (to, longest) = (read::<Quota>(to, problems), read::<TimeSpan>(r#for, problems));
    let (Some(to), Some(longest)) = (to, longest) else { return builder };
    let mut builder = builder.tighten(to, longest);
    if let Some(Some(instances)) = agreed_by {
        builder = builder.tighten_agreed_by(instances);
    }
    match keys.as_ref().map(|keys| (&*keys.value, keys.place)) {
        None | Some(("all", _)) => {}
        Some(("new", _)) => builder = builder.tighten_new_keys(),
        Some((other, place)) => {
            problems.error(
                place,
                format!("{:?} does not say which keys are tightened: use \"all\" or \"new\"", short(other)),
            );
        }
    }
    if shadow.as_ref().is_some_and(|shadow| shadow.value) {
        builder = builder.tighten_in_shadow();
    }
    builder
}

fn suspension(builder: PolicyBuilder, given: &At<Suspend>, problems: &mut Problems<'_>) -> PolicyBuilder {
    let Suspend { after, r#for, up_to, remember } = &given.value;
    let Some((refusals, within)) = after.value.split_once(" in ") else {
        let text =
            format!("{:?} is not a number of refusals in a time: write 100 in 10min", short(&after.value));
        problems.error(after.place, text);
        return builder;
    };
    let refusals = At { value: refusals.trim().to_owned(), place: after.place };
    let within = At { value: within.to_owned(), place: after.place };
    let refusals = number(&refusals, "a number of refusals", 1..=1_000_000, problems);
    let mut span = |text: &At<String>| read::<TimeSpan>(text, problems);
    let (within, lasts) = (span(&within), span(r#for));
    let (up_to, remember) = (up_to.as_ref().map(&mut span), remember.as_ref().map(&mut span));
    let (Some(refusals), Some(within), Some(lasts)) = (refusals, within, lasts) else { return builder };
    let mut builder = builder.suspend(refusals, within, lasts);
    if let Some(Some(longest)) = up_to {
        builder = builder.up_to(longest);
    }
    if let Some(Some(time)) = remember {
        builder = builder.remember(time);
    }
    builder
}
