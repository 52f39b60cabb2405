//! Permits for requests under way that instances share: a task for each limit reports the permits of this instance to Redis.
//!
//! A key of the limit is a hash in Redis, with a field for each instance: the number of permits that it holds, until the end of its lease.
//! So a call sends the state, not the change: it may be repeated or lost, and taking, giving back and renewing are one script. All keys
//! of a limit are in one hash slot, so that one call renews all of them.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sluicegate_core::StoreError;
use sluicegate_core::clock::micros;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{DemandsOf, KeptTask, PermitDemand, PermitGrant, SharedPermits};
use sluicegate_core::support::random;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::key::Tags;
use super::slot::{HashSlot, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("permits.lua")));

/// The interval at which an instance asks again for permits that its requests wait for.
const ASKS_EACH: Duration = Duration::from_millis(50);

/// The pause after a call without an answer.
const AGAIN: Duration = Duration::from_millis(250);

/// The most keys of a call, so that Redis can serve other clients in between.
const KEYS: usize = 256;

/// Shares the permits of a limit from now on, until no caller can ask for one any more.
pub(super) fn share(permits: &Arc<dyn SharedPermits>, slot: HashSlot, tags: &Tags) {
    let (shared, tags) = (Arc::downgrade(permits), tags.clone());
    let instance = format!("{:016x}", random());
    let (own_slot, calls) = (slot.clone(), Arc::new(AtomicU64::new(0)));
    let reporter = KeptTask::new(move || {
        let permits = shared.upgrade();
        // The last run may have ended in an outage.
        permits.iter().for_each(|permits| permits.resume());
        let reporter = permits.map(|permits| PermitReporter {
            permits,
            slot: own_slot.clone(),
            tags: tags.clone(),
            instance: instance.clone(),
            calls: Arc::clone(&calls),
        });
        async {
            if let Some(reporter) = reporter {
                reporter.serve().await;
            }
        }
    });
    permits.report_by(Box::new(move || reporter.keep_on(|| slot.runtime()).is_ok()));
}

/// The task that reports to Redis the permits of a limit that this instance holds.
struct PermitReporter {
    permits: Arc<dyn SharedPermits>,
    slot: HashSlot,
    tags: Tags,
    /// The name of this instance: a limit that is built again is another instance.
    instance: String,
    /// The number of calls, also of former runs.
    calls: Arc<AtomicU64>,
}

impl PermitReporter {
    async fn serve(self) {
        let renews_each = self.permits.lease() / 3;
        let (mut renewed, mut asked) = (Instant::now(), Instant::now());
        let mut is_down = false;
        loop {
            if is_down {
                let rest = self.permits.expire().unwrap_or(AGAIN);
                sleep(rest.min(AGAIN)).await;
            } else {
                let due = if self.permits.is_waiting() { asked + ASKS_EACH } else { renewed + renews_each };
                // At the next renewal, or when there is a change to report.
                _ = timeout_at(due.min(renewed + renews_each), poll_fn(|cx| self.permits.poll_changed(cx)))
                    .await;
            }
            let now = Instant::now();
            let of = if is_down || now >= renewed + renews_each {
                (renewed, asked) = (now, now);
                DemandsOf::All
            } else if now >= asked + ASKS_EACH {
                asked = now;
                DemandsOf::Waiting
            } else {
                DemandsOf::Changed
            };
            let demands = self.permits.demands(of);
            if demands.is_empty() {
                if self.permits.is_closed() {
                    return;
                }
                // The next request tests whether there are answers again.
                self.permits.resume();
                is_down = false;
            }
            for demands in demands.chunks(KEYS) {
                let answered = self.tell(demands, renews_each).await;
                match &answered {
                    Ok(()) if is_down => {
                        tracing::info!(limit = self.permits.name(), "instances share its permits again");
                    }
                    Err(error) if !is_down => tracing::warn!(
                        limit = self.permits.name(),
                        %error,
                        "Redis gives no answer about permits: each instance gives them out as the limit says for an outage"
                    ),
                    _ => {}
                }
                is_down = answered.is_err();
            }
            if is_down && self.permits.is_closed() {
                // The permits are back when the lease is over.
                return;
            }
        }
    }

    /// Sends these demands to Redis, and passes on its grants.
    async fn tell(&self, demands: &[PermitDemand], longest: Duration) -> Result<(), StoreError> {
        // Relaxed: one task counts at a time.
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let mut arguments = vec![
            self.slot.clock_us().map_or_else(String::new, |now_us| now_us.to_string()),
            self.instance.clone(),
            micros(self.permits.lease()).to_string(),
            calls.to_string(),
            self.permits.permits().to_string(),
        ];
        let numbers = demands
            .iter()
            .flat_map(|demand| [demand.in_use, demand.wanted, demand.waiting, micros(demand.waited)]);
        arguments.extend(numbers.map(|number| number.to_string()));
        let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
        let parts: Vec<String> = demands.iter().map(|demand| self.tags.tag(demand.key.as_ref())).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let reply = timeout(longest, self.slot.run(&SCRIPT, &parts, &arguments)).await;
        let reply = reply.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)));
        match reply.and_then(|reply| grants(&reply, demands.len())) {
            Ok(grants) => {
                demands.iter().zip(grants).for_each(|(demand, grant)| self.permits.answer(demand, grant));
                Ok(())
            }
            Err(error) => {
                self.permits.unanswered(demands);
                Err(error)
            }
        }
    }
}

/// The reply of the script.
fn grants(reply: &[Vec<u8>], keys: usize) -> Result<Vec<PermitGrant>, StoreError> {
    let number = |digits: &Vec<u8>| str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let (each, rest) = reply.as_chunks::<4>();
    let grant = |[held, left, owed, instances]: &[Vec<u8>; 4]| {
        Some(PermitGrant::new(number(held)?, number(left)?, number(owed)?).by(number(instances)?))
    };
    let grants = each.iter().map(grant).collect::<Option<Vec<_>>>();
    grants.filter(|grants| rest.is_empty() && grants.len() == keys).ok_or_else(|| {
        StoreError::with_source(
            StoreErrorKind::Protocol,
            "the reply of the script is not four numbers for each key",
        )
    })
}
