use std::cell::Cell;

use proptest::prelude::*;

use super::*;

thread_local! {
    /// The number of positions that were compared by this thread.
    pub(super) static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

/// The comparisons that a permit takes which comes back to a full queue of as many tenants, and then the requests that find it full:
/// one of them takes a place, the other finds that it has more than its part.
fn comparisons(is_fair: bool, tenants: u32) -> u64 {
    let waits = QueueBounds { queue: tenants as usize, longest_us: 1_000, guaranteed: [0; 4] };
    let mut line = PermitLine::new(is_fair);
    let ask = |line: &mut PermitLine, key: u32| {
        let ask = PermitAsk { class: Class::Critical, key: &Key::from(key), weight: 1, waits: true };
        line.wait(&ask, &waits, 0).is_some()
    };
    assert!(line.take(Class::Critical, &Key::from(0_u32), 1));
    // One key has two places, so that a new key has a right to one of them.
    assert!((0..tenants - 1).chain([1]).all(|key| ask(&mut line, key)));
    COMPARISONS.set(0);
    assert_eq!((ask(&mut line, tenants), ask(&mut line, tenants)), (is_fair, false));
    line.put_back(Class::Critical, &Key::from(0_u32));
    line.serve(1, &waits, 0);
    assert_eq!(line.waiting_in_all(), tenants as usize - 1);
    COMPARISONS.get()
}

#[test]
fn a_permit_and_a_request_are_compared_with_few_of_many_waiting_tenants() {
    assert_eq!(comparisons(false, 10_000), comparisons(false, 10), "all requests are of one tenant");
    let [few, many] = [100, 10_000].map(|tenants| comparisons(true, tenants));
    assert!(few < 200 && many < 400, "{few} of 100 tenants, {many} of 10,000");
}

/// The tenant that comes first in a scan of all of them.
fn scanned(queues: &ClassQueues, ratio: impl Fn(&Key, &TenantQueue) -> (u64, u64)) -> Option<&Key> {
    let all = queues.by_tenant.iter().min_by(|one, other| {
        let [(part, of), (others_part, others_of)] = [one, other].map(|(key, queue)| ratio(key, queue));
        let ratios =
            (u128::from(part) * u128::from(others_of)).cmp(&(u128::from(others_part) * u128::from(of)));
        ratios.then(one.1.oldest().cmp(&other.1.oldest()))
    });
    all.map(|(key, _)| key)
}

proptest! {
    #[test]
    fn the_orders_give_the_tenants_that_a_scan_of_all_finds(
        steps in prop::collection::vec((0_u8..4, 0_usize..6, 1_u64..4, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut queues = ClassQueues::default();
        let (mut in_use, mut seats) = ([0_u64; 6], Vec::new());
        for (number, (step, tenant, weight, index)) in (0..).zip(steps) {
            let key = Key::from(tenant as u64);
            let permits = &mut in_use[tenant];
            match step {
                0 | 1 => {
                    let request = WaitingRequest { place: Arc::default(), key: key.clone(), weight };
                    queues.add(&key, number, request, *permits, 0);
                    seats.push((tenant, number));
                }
                2 if !seats.is_empty() => {
                    let (tenant, number) = seats.swap_remove(index.index(seats.len()));
                    let removed = queues.remove(&Key::from(tenant as u64), number, in_use[tenant]);
                    prop_assert!(removed.is_some());
                }
                _ => {
                    *permits = if weight == 1 { permits.saturating_sub(1) } else { *permits + 1 };
                    queues.rank(&key, *permits);
                }
            }
            let of = |key: &Key| (0..6).zip(in_use).find(|(tenant, _)| Key::from(*tenant as u64) == *key).map_or(0, |of| of.1);
            let first = scanned(&queues, |key, queue| (of(key), queue.weight()));
            let greediest = scanned(&queues, |key, queue| (queue.weight(), of(key) + queue.waiting()));
            prop_assert_eq!(queues.first().map(|(key, _)| key), first);
            prop_assert_eq!(queues.greediest().map(|(key, _)| key), greediest);
            prop_assert_eq!((queues.to_serve.len(), queues.to_lose.len()), (queues.by_tenant.len(), queues.by_tenant.len()));
            prop_assert_eq!(queues.waiting(), seats.len());
        }
    }
}
