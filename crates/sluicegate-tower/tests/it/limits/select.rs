//! Members of a group that a function chooses: only those are met, each once and in order, however groups are nested.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, StatusCode};
use proptest::prelude::*;
use sluicegate_core::Policy;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{Choose, Group, IntoGroup, Limits, Select, Selected, WouldBe};
use sluicegate_tower::respond::HeaderFields;
use tower::Layer;

use crate::support::{Handler, by_header, described, from, on, send, store};

/// The places that the header `members` lists.
fn listed(request: RequestView<'_>) -> Vec<usize> {
    let text = request.headers.get("members").and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',').filter_map(|place| place.parse().ok()).collect()
}

fn asking(members: &str) -> Request<()> {
    let mut request = from("ada");
    request.headers_mut().insert("members", members.parse().expect("it is a value"));
    request
}

/// The names of the limits that answer.
async fn met(limits: Limits, members: &str) -> Vec<String> {
    let service = RateLimitLayer::from(limits).layer(Handler::default());
    let response = send(&service, asking(members)).await;
    assert_eq!(response.status(), StatusCode::OK);
    described(&response, "ratelimit").unwrap_or_default().into_iter().map(|(name, _)| name).collect()
}

fn limits(group: impl IntoGroup) -> Limits {
    Limits::builder(group).headers(HeaderFields::All).build().expect("they can be decided together")
}

#[tokio::test]
async fn the_members_that_are_named_apply_in_order_and_each_once() {
    let (store, _) = store();
    let limit = |name: &str| by_header(on(&store, Policy::gcra(name, "10/min")));
    let all = || {
        let group = Group::select(listed).and(limit("a")).and(limit("b")).and(limit("c"));
        limits(Group::new(Choose::All).and(limit("before")).and(group).and(limit("after")))
    };
    for (members, expected) in [
        ("", vec!["before", "after"]),
        ("1", vec!["before", "b", "after"]),
        ("2,0,2", vec!["before", "a", "c", "after"]),
        ("0,1,2,3,99999999999", vec!["before", "a", "b", "c", "after"]),
    ] {
        assert_eq!(met(all(), members).await, expected, "{members:?}");
    }
}

#[tokio::test]
async fn a_group_with_one_member_still_asks_its_function() {
    let (store, _) = store();
    let only = || limits(Group::select(listed).and(by_header(on(&store, Policy::gcra("a", "10/min")))));
    assert_eq!(met(only(), "0").await, ["a"]);
    assert!(met(only(), "").await.is_empty());
}

#[tokio::test]
async fn a_member_without_limits_keeps_its_place() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("a", "10/min")));
    let all = limits(Group::select(listed).and(Group::new(Choose::All)).and(limit));
    assert!(met(all.clone(), "0").await.is_empty());
    assert_eq!(met(all, "0,1").await, ["a"]);
}

#[tokio::test]
async fn of_a_first_group_one_whose_function_names_nobody_does_not_match() {
    let (store, _) = store();
    let limit = |name: &str| by_header(on(&store, Policy::gcra(name, "10/min")));
    let all = || {
        let chosen = Group::select(listed).and(limit("a")).and(limit("b"));
        limits(Group::new(Choose::First).and(chosen).and(limit("rest")))
    };
    assert_eq!(met(all(), "1").await, ["b"]);
    assert_eq!(met(all(), "7").await, ["rest"]);
}

/// Counts how often it is asked.
struct Counting(Arc<AtomicUsize>);

impl Select for Counting {
    fn select(&self, request: RequestView<'_>) -> Selected {
        self.0.fetch_add(1, Ordering::Relaxed);
        listed(request).into()
    }

    fn why_not(&self, request: RequestView<'_>, member: usize) -> Option<String> {
        (!listed(request).contains(&member)).then(|| format!("{member} is not listed"))
    }

    fn is_certain(&self, _: usize) -> bool {
        true
    }
}

#[tokio::test]
async fn the_function_is_asked_once_and_explains_whom_it_leaves_out() {
    let (store, _) = store();
    let limit = |name: &str| by_header(on(&store, Policy::gcra(name, "10/min")));
    let asked = Arc::<AtomicUsize>::default();
    let two = Group::new(Choose::All).and(limit("b")).and(limit("c"));
    let limits = limits(Group::select(Counting(Arc::clone(&asked))).and(limit("a")).and(two));
    drop(limits.decide(&asking("1")).await.expect("there is room"));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let explained = limits.explain(&asking("1")).await;
    assert_eq!(explained.outcome, WouldBe::Allowed);
    let why: Vec<_> =
        explained.limits.iter().map(|limit| limit.asks.as_ref().err().map(|why| &**why)).collect();
    assert_eq!(why, [Some("0 is not listed"), None, None]);
}

#[test]
fn members_that_are_certain_are_checked_before_the_first_request() {
    let (store, _) = store();
    let twice = || by_header(on(&store, Policy::gcra("a", "10/min")));
    let certain = Group::select(Counting(Arc::default())).and(twice()).and(twice());
    let error = Limits::builder(certain).build().expect_err("both apply to every request").to_string();
    assert!(error.contains("there twice"), "{error}");
    assert!(Limits::builder(Group::select(listed).and(twice()).and(twice())).build().is_ok());
}

/// Limits and groups, each with whether its condition holds; a group chooses all, the first, or those that a function names.
#[derive(Clone, Debug)]
enum Tree {
    Limit(bool),
    Group(u8, bool, Vec<Self>),
}

fn tree() -> impl Strategy<Value = Tree> {
    any::<bool>().prop_map(Tree::Limit).prop_recursive(4, 40, 4, |inner| {
        let members = prop::collection::vec(inner, 0..4);
        (0..3_u8, any::<bool>(), members).prop_map(|(kind, holds, members)| Tree::Group(kind, holds, members))
    })
}

struct Laid<'a> {
    limit: &'a dyn Fn(&str) -> sluicegate_tower::Limit,
    count: usize,
}

impl Laid<'_> {
    /// The group, the names of its limits that apply to a request that lists these places, and whether it matches.
    fn of(&mut self, tree: &Tree, listed_places: &[usize]) -> (Group, Vec<String>, bool) {
        let (kind, holds, members) = match tree {
            Tree::Limit(holds) => {
                let (name, holds) = (format!("l{}", self.count), *holds);
                self.count += 1;
                let limit = (self.limit)(&name).only_if(move |_| holds);
                return (limit.into_group(), holds.then_some(name).into_iter().collect(), holds);
            }
            Tree::Group(kind, holds, members) => (*kind, *holds, members),
        };
        let group = match kind {
            0 => Group::new(Choose::All),
            1 => Group::new(Choose::First),
            _ => Group::select(listed),
        };
        let mut group = group.only_if(move |_| holds);
        let (mut names, mut matched) = (Vec::new(), kind == 0);
        for (place, member) in members.iter().enumerate() {
            let (inner, applying, matches) = self.of(member, listed_places);
            group = group.and(inner);
            let applies = match kind {
                0 => true,
                1 => !matched,
                _ => listed_places.contains(&place),
            };
            if applies && !(member.is_empty() && kind < 2) {
                names.extend(applying);
                matched |= matches || kind == 2;
            }
        }
        if holds { (group, names, matched) } else { (group, Vec::new(), false) }
    }
}

impl Tree {
    fn is_empty(&self) -> bool {
        match self {
            Self::Limit(_) => false,
            Self::Group(_, _, members) => members.iter().all(Self::is_empty),
        }
    }
}

/// Seen: a group of all, with nothing in it but a group of which nothing is chosen, did not count as the first that matches.
#[tokio::test]
async fn a_group_of_all_is_the_first_that_matches_whatever_is_chosen_in_it() {
    let (store, _) = store();
    let limit = |name: &str| by_header(on(&store, Policy::gcra(name, "10/min")));
    let inner = Group::new(Choose::All).and(Group::select(listed).and(limit("a")));
    let limits = limits(Group::new(Choose::First).and(inner).and(limit("b")));
    let explained = limits.explain(&asking("")).await;
    assert!(explained.limits.iter().all(|limit| limit.asks.is_err()), "{explained}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn groups_in_groups_choose_as_a_slow_model_does(
        tree in tree(),
        places in prop::collection::vec(0..4_usize, 0..3),
    ) {
        let (store, _) = store();
        let limit = |name: &str| by_header(on(&store, Policy::gcra(name, "10/min").table_size(1)));
        let mut laid = Laid { limit: &limit, count: 0 };
        let (group, expected, _) = laid.of(&tree, &places);
        prop_assume!(expected.len() <= 16);
        let limits = limits(group);
        let text: Vec<_> = places.iter().map(ToString::to_string).collect();
        let request = asking(&text.join(","));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("it starts");
        let explained = runtime.block_on(limits.explain(&request));
        let asked = explained.limits.iter().filter(|limit| limit.asks.is_ok());
        prop_assert_eq!(asked.map(|limit| limit.name.clone()).collect::<Vec<_>>(), &expected[..]);
        let admitted = runtime.block_on(limits.decide(&request)).expect("there is room");
        let policies = admitted.decided().map(|decided| decided.policies.to_vec()).unwrap_or_default();
        let decided: Vec<_> = policies.iter().map(|policy| policy.name().to_owned()).collect();
        prop_assert_eq!(decided, expected);
    }
}
