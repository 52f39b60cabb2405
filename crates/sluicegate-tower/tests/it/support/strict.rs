//! A service that holds its callers to tower's contract.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::Response;
use tower::Service;

use crate::support::Body;

/// Panics when it is called without being ready. A clone is not ready, and takes two polls to be.
#[derive(Debug, Default)]
pub(crate) struct Strict {
    polls: usize,
    calls: Arc<AtomicUsize>,
}

impl Strict {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { polls: 0, calls: Arc::clone(&self.calls) }
    }
}

impl<Req> Service<Req> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.polls += 1;
        if self.polls < 2 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Req) -> Self::Future {
        assert!(self.polls >= 2, "called without being ready");
        self.polls = 0;
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(Response::new(Body::from("ok")))
        })
    }
}
