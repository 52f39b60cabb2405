//! A layer that shows nothing works no numbers out, and decides, counts and gives back as one that shows all.

use std::time::Duration;

use http::StatusCode;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::{Inherit, Overrides};
use sluicegate_core::policy::{Override, PolicyBuilder, PolicyMode};
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
use sluicegate_tower::respond::HeaderFields;
use sluicegate_tower::{Limit, RateLimitLayer};
use tower::Layer;

use crate::support::{Handler, answer, by_header, from, on, send, store};

/// A layer, and what is behind its limit.
struct Side {
    layer: RateLimitLayer,
    handler: Handler,
    limiter: RateLimiter,
    store: MemoryStore,
    clock: ManualClock,
}

impl Side {
    fn new(policy: PolicyBuilder, limit: fn(Limit) -> Limit, is_quiet: bool) -> Self {
        let (store, clock) = store();
        let limiter = on(&store, policy);
        let builder = RateLimitLayer::builder(limit(by_header(limiter.clone())));
        let builder = match is_quiet {
            true => builder.headers(HeaderFields::None).without_extensions(),
            false => builder.headers(HeaderFields::All),
        };
        let layer = builder.build().expect("one limit is possible");
        Self { layer, handler: Handler::default(), limiter, store, clock }
    }

    async fn send(&self, key: &'static str) -> StatusCode {
        send(&self.layer.layer(self.handler.clone()), from(key)).await.status()
    }

    /// Where both keys stand, how often the handler was called, and what the policy would have done in shadow.
    fn stands(&self) -> String {
        let left = ["ada", "eve"].map(|key| {
            let decision = answer(self.limiter.peek(key));
            (decision.outcome(), decision.quotas().to_vec())
        });
        let shadow: Vec<_> =
            self.layer.shadow_counts().iter().map(|count| (count.passed, count.refused)).collect();
        format!("{left:?} {} {shadow:?} {}", self.handler.calls(), self.store.stats().keys)
    }
}

#[tokio::test]
async fn a_layer_that_shows_nothing_decides_counts_and_gives_back_as_one_that_shows_all() {
    let api = || Policy::gcra("api", "4/10s");
    let plain: fn(Limit) -> Limit = |limit| limit;
    let refunding: fn(Limit) -> Limit = |limit| limit.refund_if(|head| head.status.is_success());
    let costly: fn(Limit) -> Limit = |limit| limit.cost(3).expect("it fits");
    for (title, policy, limit) in [
        ("plain", api(), plain),
        ("a window", Policy::fixed_window("api", "4/10s"), plain),
        ("a log", Policy::sliding_log("api", "4/10s"), plain),
        ("two quotas", api().and("6/20s").named("second"), plain),
        ("a cost", api(), costly),
        ("given back", api(), refunding),
        ("in shadow", api().shadow(), plain),
        ("suspended", api().suspend(2, "1min", "20s"), plain),
        ("counting refusals", api().count_rejected(), plain),
    ] {
        let sides = [true, false].map(|is_quiet| Side::new(policy.clone(), limit, is_quiet));
        for step in 0..60_u32 {
            for side in &sides {
                let replace = |policy: Policy| side.limiter.replace(policy, Inherit::Spent).expect("it fits");
                match step {
                    20 => replace(side.limiter.policy().in_mode(PolicyMode::Off)),
                    24 => replace(side.limiter.policy().in_mode(PolicyMode::Enforce)),
                    30 => {
                        let more = Override::builder("api", "operator").key("ada").quota("7/10s");
                        let more = more.lasting(Duration::from_secs(4));
                        let put = Overrides::of(&side.store).put(more).await;
                        assert_eq!(put.is_ok(), title != "two quotas", "{title}: {put:?}");
                    }
                    40 => replace(side.limiter.policy().in_mode(PolicyMode::Shadow)),
                    _ => {}
                }
                if step % 9 == 8 {
                    side.clock.advance(Duration::from_millis(2_600));
                }
            }
            let key = ["ada", "ada", "eve"][step as usize % 3];
            let [quiet, showing] = [sides[0].send(key).await, sides[1].send(key).await];
            assert_eq!(quiet, showing, "{title}, request {step}");
            assert_eq!(sides[0].stands(), sides[1].stands(), "{title}, request {step}");
        }
    }
}
