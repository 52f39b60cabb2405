//! The file in force: [`FileInForce`], and its replacement by another file.
//!
//! A request keeps the limits that it began with, so a reload takes effect with the next request, never halfway through one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sluicegate_core::limiter::{self, Inherit};
use sluicegate_core::{ConfigError, Policy, RateLimiter, Store};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::InFlightLimits;
use sluicegate_tower::limits::Limits;
use sluicegate_tower::room::{Door, RoomMaker};

use crate::builder::RulesBuilder;
use crate::compile::{FileRoom, GivenKeys, LimitsPart, NamedStore};
use crate::error::{Problems, RulesError};
use crate::explain::Explainer;
use crate::file::RulesFile;
use crate::reload::FileContents;
use crate::rooms::Doors;

/// The policies and numbers of the file in force, and its text.
pub(crate) struct FileInForce {
    /// The parts that neither the file nor the store has.
    given: RulesBuilder,
    pub policies: Vec<Policy>,
    /// The limiters of the policies that no rule uses, to keep them open.
    unused: Vec<RateLimiter>,
    /// The quotas of single keys.
    pub single_keys: Vec<(String, String)>,
    /// The store that the file named when it was opened.
    pub store: Option<NamedStore>,
    /// The waiting rooms; none before there was a file.
    pub rooms: Option<Vec<FileRoom>>,
    /// The limits on requests at once, by name.
    in_flight: HashMap<String, InFlight>,
    /// The policies of code that policies of the file have replaced, by name.
    code: HashMap<String, Policy>,
    pub read: Option<FileContents>,
    /// Whether code has replaced the file since it was read.
    pub is_replaced: bool,
    /// The mistakes in the file when it was read last.
    pub error: Option<RulesError>,
}

/// The parts of a file that decide requests.
pub(crate) struct Put {
    pub limits: Limits,
    /// The limits split into parts, in a program that keeps requests.
    pub split: Option<SplitLimits>,
    pub at_once: InFlightLimits,
    pub doors: Doors,
    pub explainer: Explainer,
}

/// The limits in parts.
pub(crate) struct SplitLimits {
    /// The limits that refuse.
    pub refusing: Limits,
    /// The limits on requests at once, before `refusing`.
    pub at_once: InFlightLimits,
    /// The limits that defer.
    pub deferring: Limits,
}

impl FileInForce {
    /// The state before a file is in force; the file names this store.
    pub(crate) fn of(store: Option<NamedStore>, given: RulesBuilder) -> Self {
        Self {
            given,
            policies: Vec::new(),
            unused: Vec::new(),
            single_keys: Vec::new(),
            store,
            rooms: None,
            in_flight: HashMap::new(),
            code: HashMap::new(),
            read: None,
            is_replaced: false,
            error: None,
        }
    }

    /// Opens or replaces all policies and waiting rooms and makes their limits, or leaves everything unchanged. A policy that leaves the
    /// file is restored to the policy of code, unless code has replaced it since then.
    pub(crate) fn put(&mut self, store: &Arc<dyn Store>, file: &RulesFile) -> Result<Put, RulesError> {
        let RulesBuilder { open_all, rooms, deferral, keys } = self.given.clone();
        refuse_missing_keys(&keys, file)?;
        let doors = doors(rooms.as_ref(), &keys, file)?;
        refuse_to_defer(deferral.is_some(), file)?;
        let of_file = |error: ConfigError| RulesError::of_file(&file.name, &error.to_string());
        let shared = file.compiled.shared_permits(store, &self.in_flight).map_err(of_file)?;
        let unused = file.compiled.unused.iter().filter(|_| open_all);
        let policies: Vec<Policy> = file.compiled.policies.iter().chain(unused).cloned().collect();
        let own = |name: &str| Some(Policy::clone(&store.limiters().get(name)?.own_policy()));
        // Code, or another file, may have put another policy in force since then.
        let stands =
            |old: &Policy| own(old.name()).is_some_and(|own| own.taking_quotas() == old.taking_quotas());
        let standing: HashSet<&str> =
            self.policies.iter().filter(|old| stands(old)).map(Policy::name).collect();
        let news = policies.iter().filter(|policy| !standing.contains(policy.name()));
        let code: Vec<Policy> = news.filter_map(|policy| own(policy.name())).collect();
        let after: HashSet<&str> = policies.iter().map(Policy::name).collect();
        let gone = standing.difference(&after);
        let back: Vec<Policy> = gone.filter_map(|gone| self.code.get(*gone).cloned()).collect();
        let all: Vec<Policy> = policies.iter().chain(&back).cloned().collect();
        let inherit: HashMap<&str, Inherit> = policies
            .iter()
            .filter_map(|policy| Some((policy.name(), file.compiled.inherit(&own(policy.name())?, policy))))
            .collect();
        let inherit = |policy: &Policy| inherit.get(policy.name()).copied().unwrap_or_default();
        let limits = limiter::replace_all(Arc::clone(store), all, inherit, |limiters| {
            let (used, unused) = limiters[..policies.len()].split_at(file.compiled.policies.len());
            let part = |part| file.compiled.limits(used, &keys, part);
            let split = match &deferral {
                Some(_) => Some((part(LimitsPart::Refusing)?, part(LimitsPart::Deferring)?)),
                None => None,
            };
            Ok((part(LimitsPart::All)?, split, unused.to_vec()))
        });
        let (limits, split, unused) = limits.map_err(of_file)?;
        self.code.retain(|name, _| after.contains(&**name));
        self.code.extend(code.into_iter().map(|policy| (policy.name().to_owned(), policy)));
        self.single_keys.clone_from(&file.compiled.single_keys);
        let in_flight =
            file.compiled.in_flight(store, &keys, shared, &mut self.in_flight).map_err(of_file)?;
        let open: Vec<RateLimiter> =
            policies.iter().filter_map(|policy| store.limiters().get(policy.name())).collect();
        self.policies = policies;
        self.unused = unused;
        let sections = file.compiled.sections.on(&open);
        let at_once = || file.compiled.at_once(&in_flight, sections.clone());
        let split =
            split.map(|(refusing, deferring)| SplitLimits { refusing, at_once: at_once(), deferring });
        let at_once = at_once();
        self.put_doors(&doors, &file.compiled.rooms);
        let longest_body = deferral.as_ref().map(|deferral| deferral.longest_body());
        let explainer = Explainer::of(&file.compiled, (sections.clone(), in_flight), &doors, longest_body);
        Ok(Put { limits, split, at_once, doors: file.compiled.doors(doors, sections), explainer })
    }

    /// Puts the terms of all rooms in force. A rate changes only if the file's rate changed: an operator may have set another one.
    fn put_doors(&mut self, doors: &[Arc<dyn Door>], rooms: &[FileRoom]) {
        let before = self.rooms.replace(rooms.to_vec());
        for (door, room) in doors.iter().zip(rooms) {
            let said = |before: &Vec<FileRoom>| {
                before
                    .iter()
                    .any(|old| old.terms.name == room.terms.name && old.terms.rate == room.terms.rate)
            };
            // The first file does not change a shared line: another instance may have it in force.
            door.put_in_force(before.as_ref().is_some_and(|before| !said(before)));
        }
    }
}

/// Refuses a file that names a store which is not opened, because it would look as if it were used.
pub(crate) fn refuse_two_stores(is_own_store: bool, file: &RulesFile) -> Result<(), RulesError> {
    if is_own_store || file.compiled.store.is_none() {
        return Ok(());
    }
    Err(RulesError::of_file(
        &file.name,
        "it names a store, and the program gives another one: leave the section \"store\" out, or open the file by `Rules::from_file`",
    ))
}

/// Refuses a file that defers in a program that keeps no requests.
fn refuse_to_defer(keeps: bool, file: &RulesFile) -> Result<(), RulesError> {
    let deferring = file.compiled.deferring().next().filter(|_| !keeps && !file.compiled.is_without_rooms);
    let Some((rule, policy)) = deferring else { return Ok(()) };
    let text = format!(
        "rule {:?} has the policy {:?}, which defers, and the program keeps no requests: open the file by `Rules::builder().deferral(..)`, with a `Deferral` of the feature \"deferred\"",
        rule.name,
        policy.name()
    );
    let mut problems = Problems::of(&file.name, "");
    problems.error(rule.place, text);
    Err(problems.into_errors())
}

/// Refuses a file with a key that the program has to find and does not. A file for tools needs none.
fn refuse_missing_keys(keys: &GivenKeys, file: &RulesFile) -> Result<(), RulesError> {
    let mut names = file.compiled.given_names.iter().filter(|_| !file.compiled.is_without_rooms);
    if let Some(name) = names.find(|name| !keys.contains_key(*name)) {
        let text = format!(
            "the key {name:?} is found by the program, and the program gives none: open the file by `Rules::builder().key({name:?}, ..)`"
        );
        return Err(RulesError::of_file(&file.name, &text));
    }
    Ok(())
}

/// A door for each room of the file. No request uses it yet.
fn doors(
    maker: Option<&Arc<dyn RoomMaker>>,
    keys: &GivenKeys,
    file: &RulesFile,
) -> Result<Vec<Arc<dyn Door>>, RulesError> {
    let wrong = |room: &FileRoom, text: String| {
        let mut problems = Problems::of(&file.name, "");
        problems.error(room.place, text);
        problems.into_errors()
    };
    let rooms = file.compiled.rooms.iter().filter(|_| !file.compiled.is_without_rooms);
    let doors = rooms.map(|room| {
        let Some(maker) = maker else {
            let text = format!(
                "rule {:?} has the {room}, and the program gives none: open the file by `Rules::builder().rooms(..)`, with the `Rooms` of the feature \"overflow\"",
                room.rule
            );
            return Err(wrong(room, text));
        };
        maker.door(&room.given(keys)).map_err(|error| wrong(room, error.problem().to_owned()))
    });
    doors.collect()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use sluicegate_core::MemoryStore;
    use sluicegate_tower::key::HeaderKey;

    use super::*;
    use crate::{Rules, Variables};

    /// The extractors of the first program were once those of every program that put the file in force.
    #[tokio::test]
    async fn each_program_finds_the_keys_of_a_file_by_its_own_extractors() {
        let text = "
version: 1
keys: { user: program }
in_flight: { at-once: 1 }
policies: { api: { quota: 1/h, overrides: { ada: 2/h } } }
rules: [{ name: all, limit: api, key: [user + path, user], in_flight: at-once }]
";
        let file = RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap();
        for name in ["x-user", "x-account"] {
            let builder = Rules::builder().key("user", HeaderKey::new(name).unwrap());
            let rules =
                Rules::of(((&MemoryStore::new()).into(), None), &file, (None, None), builder).unwrap();
            for (user, keys) in [("grace", [true, false]), ("linus", [true, false])] {
                for passes in keys {
                    let request = Request::get("/").header(name, user).body(()).unwrap();
                    assert_eq!(rules.limits().decide(&request).await.is_ok(), passes, "{user} by {name}");
                    let explained = rules.explain(&request).await.to_string();
                    assert!(explained.contains("takes a permit of at-once for"), "{explained}");
                    assert!(!explained.contains("for shared"), "{explained}");
                }
            }
        }
    }
}
