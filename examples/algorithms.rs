//! Every algorithm side by side: the same bursts of requests against the same "4 in 4 seconds", on a manual
//! clock.

use std::error::Error;
use std::time::Duration;

use sluicegate::clock::ManualClock;
use sluicegate::{Algorithm, MemoryStore, Policy};

/// Requests arrive in bursts of this many, once a second.
const BURSTS: [usize; 10] = [0, 0, 0, 6, 6, 0, 0, 2, 2, 2];

fn main() -> Result<(), Box<dyn Error>> {
    println!("4 in 4 seconds; arrivals per second on top. #: passed, o: passed later, .: refused\n");
    print!("{:29}", "");
    for arrivals in BURSTS {
        print!("{arrivals:<7}");
    }
    println!();
    for (number, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        let clock = ManualClock::new();
        clock.set(Duration::from_secs(1_000));
        let store = MemoryStore::builder().clock(clock.clone()).build()?;
        let limiter = Policy::builder(format!("demo-{number}"), algorithm, "4/4s").on(&store)?;
        print!("{:29}", algorithm.to_string());
        let mut passed = 0;
        for arrivals in BURSTS {
            let mut second = String::new();
            for _ in 0..arrivals {
                let decision = limiter.check("everybody").now().expect("memory answers at once")?;
                passed += u32::from(decision.is_allowed());
                second.push(match decision.is_allowed() {
                    false => '.',
                    true if decision.delay().is_zero() => '#',
                    true => 'o',
                });
            }
            print!("{second:<7}");
            clock.advance(Duration::from_secs(1));
        }
        println!("  {passed} passed");
    }
    Ok(())
}
