//! Layers with one capability each that no request of the bench uses.

use std::time::Duration;

use futures_util::FutureExt;
use sluicegate::fleet::DenyCache;
use sluicegate::limiter::{Override, Overrides};
use sluicegate::limits::path_in;
use sluicegate::observed::Observed;
use sluicegate::policy::PolicyBuilder;
use sluicegate::rate_limit::RateLimitLayerBuilder;
use sluicegate::respond::HeaderFields;
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate::{Limit, MemoryStore, Policy, Quota, RateLimitLayer, RateLimiter};

use crate::services::layer;

/// The layer to which all others are compared.
pub(crate) const NOTHING: &str = "nothing else";

/// The one with less.
pub(crate) const NO_FIELDS: &str = "no fields, no extensions";

/// The one with more.
pub(crate) const ALL_FIELDS: &str = "all fields on every response";

type SetUp = fn(PolicyBuilder) -> RateLimitLayer;

/// Each has this policy by the address of the peer.
pub(crate) const SET_UPS: [(&str, SetUp); 16] = [
    (NOTHING, |policy| built(layer(policy, MemoryStore::new()))),
    (NO_FIELDS, |policy| {
        built(layer(policy, MemoryStore::new()).headers(HeaderFields::None).without_extensions())
    }),
    (ALL_FIELDS, |policy| built(layer(policy, MemoryStore::new()).headers(HeaderFields::All))),
    ("a limit that does not apply", |policy| {
        let store = MemoryStore::new();
        let login = Limit::new(on(Policy::gcra("login", "5/min"), &store)).only_if(nowhere());
        built(layer(policy, store).and(login))
    }),
    ("an exemption", |policy| built(layer(policy, MemoryStore::new()).exempt(nowhere()))),
    ("two rules of a file", |policy| {
        let policy = policy.build().expect("the policy is possible");
        let text = format!(
            "version: 1
policies: {{ all: {{ quota: {} }}, login: {{ quota: 5/min }} }}
rules:
  - {{ name: login, group: g, only_if: {{ path: /login }}, limit: login, key: peer }}
  - {{ name: all, group: g, limit: all, key: peer }}
",
            policy.quotas()[0].quota()
        );
        let file = RulesFile::parse("rules.yaml", &text, &Variables::none()).expect("the file is good");
        Rules::new(MemoryStore::new(), file).expect("memory keeps all").limits_handle().into()
    }),
    ("a wait", |policy| built(layer(policy.wait_up_to(Duration::from_millis(1)), MemoryStore::new()))),
    ("refunds", |policy| built_of(limit(policy).refund_if(|head| head.status.is_server_error()))),
    ("quotas of other keys", |policy| built_of(limit(policy).quota_by(|_| None::<Quota>))),
    ("Observed", |policy| {
        built(layer(policy, Observed::named("bill", MemoryStore::new()).expect("the name is free")))
    }),
    ("count_routes", |policy| built(layer(policy, MemoryStore::new()).count_routes())),
    ("suspensions, nobody suspended", |policy| built(layer(suspending(policy), MemoryStore::new()))),
    ("Observed, and suspensions", |policy| {
        let store = Observed::named("suspensions", MemoryStore::new()).expect("the name is free");
        built(layer(suspending(policy), store))
    }),
    ("another key suspended", |policy| {
        let limiter = on(suspending(policy), &MemoryStore::new());
        let suspended = limiter.suspensions().suspend("another", Duration::from_secs(3_600));
        let _ = suspended.now_or_never().expect("memory answers at once").expect("the policy suspends keys");
        built_of(Limit::new(limiter))
    }),
    ("another policy overridden", |policy| {
        let store = MemoryStore::new();
        // The policy is open as long as the process lives.
        std::mem::forget(on(Policy::gcra("login", "5/min"), &store));
        let overrides = Overrides::of(&store);
        let more = overrides.put(Override::builder("login", "ada").quota("50/min")).now_or_never();
        more.expect("memory answers at once").expect("the override is possible");
        built(layer(policy, store))
    }),
    ("a deny cache", |policy| built(layer(policy, DenyCache::new(MemoryStore::new())))),
];

fn on(policy: PolicyBuilder, store: &MemoryStore) -> RateLimiter {
    policy.on(store).expect("the policy is possible")
}

fn limit(policy: PolicyBuilder) -> Limit {
    Limit::new(on(policy, &MemoryStore::new()))
}

/// A thousand refusals an hour are more than a peer of the bench has.
fn suspending(policy: PolicyBuilder) -> PolicyBuilder {
    policy.suspend(1_000, "1h", "30min")
}

fn nowhere() -> impl Fn(sluicegate::key::RequestView<'_>) -> bool + Send + Sync + 'static {
    path_in(["/login"]).expect("the path is a path")
}

fn built_of(limit: Limit) -> RateLimitLayer {
    built(RateLimitLayer::builder(limit))
}

fn built(layer: RateLimitLayerBuilder) -> RateLimitLayer {
    layer.build().expect("the limits can be decided together")
}
