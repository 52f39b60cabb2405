//! How many at once.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use sluicegate_in_flight::InFlight;

use crate::support::Body;

mod adaptive;
mod downloads;
mod permits;
mod upgrades;

/// As many permits of a fixed number for each key, and of a service that can bear just as many.
fn kinds(name: &str, permits: u64) -> [InFlight; 2] {
    let service = InFlight::adaptive(name).at_least(permits).at_most(permits).wait_up_to(Duration::ZERO);
    [InFlight::new(name, permits), service.build()].map(|kind| kind.expect("it is possible"))
}

async fn hello(_: Request<()>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::from("hello")))
}
