//! The wait for a permit, with its bound: [`PermitWait`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_in_flight::{Acquire, NoPermit, Permit, PermitRequest};
use tokio::time::Sleep;

use crate::trace::{self, WaitSpan};

/// A request that waits for a permit.
#[derive(Debug)]
#[expect(unnameable_types, reason = "it is a part of a future that has a name")]
pub struct PermitWait {
    /// `None` when it has ended.
    acquire: Option<Acquire>,
    /// `None` if the wait is for the answer of a store, which bounds its answers itself.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Empty if it waits only for the answer of a store.
    span: WaitSpan,
}

impl PermitWait {
    /// Asks for a permit. The request waits up to `longest`, or up to the bound of a limit that adapts, and otherwise not at all.
    ///
    /// # Errors
    /// The wait, if the answer is not known at once.
    pub(crate) fn begin(
        asks: PermitRequest,
        longest: Option<Duration>,
    ) -> Result<Result<Permit, NoPermit>, Box<Self>> {
        let waits = longest.is_some() || asks.in_flight().is_adaptive();
        let traced = (waits && trace::is_on()).then(|| asks.in_flight().clone());
        let acquire = if waits { asks.acquire() } else { asks.attempt() };
        acquire.now().map_err(|acquire| {
            let longest = [longest, acquire.longest()].into_iter().flatten().min();
            let sleep = longest.map(|longest| Box::pin(tokio::time::sleep(longest)));
            let span = traced.map_or_else(WaitSpan::default, |of| WaitSpan::for_permit(of.name()));
            Box::new(Self { acquire: Some(acquire), sleep, span })
        })
    }

    /// Waits for the permit.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, NoPermit>> {
        let Some(acquire) = &mut self.acquire else { return Poll::Pending };
        // The permit is polled first, so that a permit that comes at the last moment is taken.
        if let Poll::Ready(result) = Pin::new(acquire).poll(cx) {
            self.acquire = None;
            self.span.end(if result.is_ok() { "permit" } else { "refused" });
            return Poll::Ready(result);
        }
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        ready!(sleep.as_mut().poll(cx));
        match self.acquire.take().and_then(Acquire::give_up) {
            Some(none) => {
                self.span.end("refused");
                Poll::Ready(Err(none))
            }
            None => Poll::Pending,
        }
    }
}
