//! A flood of refused keys costs the store almost nothing.

use std::time::Duration;

use sluicegate_core::Policy;
use sluicegate_tests::memory::answer;

use super::Scene;

#[test]
fn less_than_one_in_a_hundred_of_a_flood_reaches_the_store() {
    let scene = Scene::with(|builder| builder.longest(Duration::from_secs(2)));
    let login = Policy::gcra("login", "5/min").on(&scene.cache).unwrap();
    let (keys, seconds, mut admitted) = (100_u64, 30, 0);
    for _ in 0..seconds * 100 {
        for key in 0..keys {
            admitted += u64::from(answer(login.check(key)).is_allowed());
        }
        scene.advance_ms(10);
    }
    let (asked, calls) = (keys * seconds * 100, scene.calls());
    assert_eq!(admitted, keys * (5 + 30 / 12));
    assert!(calls * 100 < asked, "{calls} of {asked}");
    assert!(calls <= admitted + keys * seconds / 2, "one for each admission, and one each two seconds");
}
