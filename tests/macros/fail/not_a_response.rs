//! What axum cannot answer with, and a future that cannot change threads.

use std::rc::Rc;

use sluicegate::rate_limited;

struct NoResponse;

#[rate_limited("5/min")]
async fn unknown() -> NoResponse {
    NoResponse
}

#[rate_limited("5/min")]
async fn stays() {
    let counted = Rc::new(1);
    std::future::ready(()).await;
    drop(counted);
}

#[rate_limited("5/min")]
async fn half() -> Result<String, NoResponse> {
    Ok(String::new())
}

fn main() {}
