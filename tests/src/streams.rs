//! Many streams of a language model at once on one budget, against a count by hand.

use http_body::Body;

use crate::frames::{Frames, data, next};
use crate::random::Random;

/// The tokens of the budget.
pub const BUDGET: u64 = 10_000;
/// The tokens that each stream reserves.
pub const RESERVED: u64 = 500;
const AT_ONCE: usize = 64;

/// A stream that tells in its second event what it costs.
#[must_use]
pub fn stream(cost: u64) -> Frames {
    let usage = format!("data: {{\"usage\": {{\"total_tokens\": {cost}}}}}\n\ndata: [DONE]\n\n");
    Frames::new([data("data: {\"choices\": []}\n\n"), data(usage)])
}

/// Begins streams, ends them and hangs up, in an order that follows from the seed, up to 64 at once. `send` asks for a stream of this cost, and
/// returns its body if it is admitted; `used` returns the units that are spent, and is told what it should be. `pays_seen` says whether a
/// stream that ends early costs what it has told.
///
/// # Panics
/// When another stream is admitted than by the count, or when other units are spent.
pub async fn play<B: Body + Unpin>(
    seed: u64,
    pays_seen: bool,
    send: impl AsyncFn(u64) -> Option<B>,
    used: impl AsyncFn(u64) -> u64,
) {
    let mut random = Random::new(seed);
    let (mut open, mut counted, mut refused): (Vec<(u64, B)>, u64, u64) = (Vec::new(), 0, 0);
    for _ in 0..300 {
        match random.below(6) {
            0..3 if open.len() < AT_ONCE => {
                let cost = 20 + random.below(481);
                let body = send(cost).await;
                let is_admitted = counted + RESERVED <= BUDGET;
                assert_eq!(body.is_some(), is_admitted, "seed {seed}: {counted} are used");
                match body {
                    Some(body) => {
                        counted += RESERVED;
                        open.push((cost, body));
                    }
                    None => refused += 1,
                }
            }
            step @ 3.. if !open.is_empty() => {
                let (cost, mut body) = open.swap_remove(random.index(open.len()));
                // As a whole, or up to its first or second event.
                let events = if step < 5 { 3 } else { 1 + random.below(2) };
                for _ in 0..events {
                    _ = next(&mut body).await;
                }
                drop(body);
                let is_told = events == 3 || (events == 2 && pays_seen);
                counted -= if is_told { RESERVED - cost } else { 0 };
            }
            _ => {}
        }
        assert!(counted <= BUDGET);
        assert_eq!(used(counted).await, counted, "seed {seed}");
    }
    assert!(refused > 0 && counted > 0, "seed {seed} tries nothing");
}
