//! A flood of new keys through a layer, and the debtors of another one.

use http::{Request, StatusCode};
use sluicegate_core::Policy;

use crate::support::{by_header, on, send, service, store};

fn of(key: u32) -> Request<()> {
    Request::get("/").header("x-key", key.to_string()).body(()).unwrap()
}

/// 250,000 keys against `1/d` gave 6 to 8 of 8 clients of another policy their bucket back.
#[tokio::test]
async fn a_flood_against_one_policy_frees_no_client_of_another() {
    for algorithm in ["gcra", "fixed-window", "sliding-counter", "sliding-log"] {
        let (store, clock) = store();
        let login = Policy::builder("login", algorithm.parse().unwrap(), "5/min").and("2/10s");
        let login = service(by_header(on(&store, login))).0;
        let daily =
            service(by_header(on(&store, Policy::builder("daily", algorithm.parse().unwrap(), "1/d")))).0;
        for victim in 0..8 {
            for expected in [200, 200, 429] {
                assert_eq!(send(&login, of(victim)).await.status().as_u16(), expected);
            }
        }
        for key in 0..20_000 {
            clock.advance(std::time::Duration::from_micros(100));
            assert_eq!(send(&daily, of(1_000 + key)).await.status(), StatusCode::OK);
        }
        assert!(store.stats().evictions > 0, "the flood was none");
        for victim in 0..8 {
            let status = send(&login, of(victim)).await.status();
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{algorithm}, {victim}");
        }
    }
}
