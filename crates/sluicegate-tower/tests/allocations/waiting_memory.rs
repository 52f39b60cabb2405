//! What a request that waits keeps in memory.

use std::alloc::System;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{Key, MemoryStore, Policy};
use sluicegate_tests::process::alone;
use sluicegate_tower::{Limit, RateLimitLayer};
use stats_alloc::Region;
use tower::{Layer, Service, service_fn};

type Served = Ready<Result<Response<Full<Bytes>>, Infallible>>;

const WAITING: usize = 10_000;

/// The head of a request, its turn with the units that it has spent, its place in the queue, and the timer of its turn.
const MOST_BYTES_EACH: usize = 1_700;

fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

#[test]
fn ten_thousand_waiting_requests_hold_bounded_memory_and_leave_nothing_behind() {
    alone(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(ten_thousand_wait());
    });
}

async fn ten_thousand_wait() {
    // Tokio's time stands still, too.
    let store = MemoryStore::builder().table_size(1_000).clock(ManualClock::new()).build().unwrap();
    let policy = Policy::gcra("mail", "1000/s burst 1").wait_up_to(Duration::from_secs(60));
    let limit = Limit::new(policy.on(&store).unwrap()).key(Key::from("all"));
    let layer = RateLimitLayer::new(limit);
    let serve = |_: Request<()>| -> Served { ready(Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))) };
    let mut service = layer.layer(service_fn(serve));
    let mut requests: Vec<_> = Vec::with_capacity(WAITING + 1);
    let region = Region::new(crate::ALLOCATOR);
    requests.extend((0..=WAITING).map(|_| service.call(Request::new(()))));
    let each = held(&region) / WAITING;
    assert_eq!(layer.waiting(), WAITING);
    println!("{each} bytes for each waiting request");
    assert!(each <= MOST_BYTES_EACH, "{each} bytes for each waiting request");
    // Whoever comes now is refused, and nothing of it is kept.
    let before = held(&region);
    for _ in 0..1_000 {
        drop(service.call(Request::new(())));
    }
    let kept = held(&region).saturating_sub(before);
    assert!(kept < 1_000 * size_of::<usize>(), "{kept} bytes are kept of a thousand that were refused");
    // From the back, so that nobody has to move up.
    while requests.pop().is_some() {}
    assert_eq!(layer.waiting(), 0);
    assert!(held(&region) < 64 * 1_024, "{} bytes are left behind", held(&region));
}
