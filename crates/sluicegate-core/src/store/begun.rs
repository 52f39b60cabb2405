//! Work that is finished even if its future is dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::runtime::Handle;

use super::future::{DecideResult, DecisionFuture};

impl DecisionFuture {
    /// Begins work on this runtime, at once. If the future is dropped before the answer has come, the runtime finishes the work. For
    /// stores that answer later, whose calls must complete even if the client hangs up.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sluicegate_core::store::DecisionFuture;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use tokio::runtime::Handle;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::gcra("login", "5/min").on(&MemoryStore::new())?;
    /// let (begun, later) = (login.clone(), tokio::task::yield_now());
    /// drop(DecisionFuture::begun(&Handle::current(), async move {
    ///     later.await;
    ///     begun.check("ada").await
    /// }));
    /// tokio::task::yield_now().await;
    /// tokio::task::yield_now().await;
    /// assert_eq!(login.peek("ada").await?.remaining(), 4); // no task waited, and the unit was spent
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// The work is done, polled or not, unless the runtime ends.
    pub fn begun(runtime: &Handle, work: impl Future<Output = DecideResult> + Send + 'static) -> Self {
        Self::begun_boxed(runtime, Box::pin(work))
    }

    /// As [`begun`](Self::begun), on the tokio runtime of the caller; without one, the work is only [polled](Self::polled).
    pub fn begun_here(work: impl Future<Output = DecideResult> + Send + 'static) -> Self {
        match Handle::try_current() {
            Ok(runtime) => Self::begun(&runtime, work),
            Err(_) => Self::polled(work),
        }
    }

    /// As [`map`](Self::map), but `change` sees the answer even if the future is dropped before it came, if the caller has a tokio
    /// runtime. For store wrappers that keep information from an answer.
    pub fn map_even_if_dropped(
        self,
        change: impl FnOnce(DecideResult) -> DecideResult + Send + 'static,
    ) -> Self {
        match self.now() {
            Ok(answer) => Self::ready(change(answer)),
            Err(pending) => Self::begun_here(async { change(pending.await) }),
        }
    }

    pub(crate) fn begun_boxed(
        runtime: &Handle,
        work: Pin<Box<dyn Future<Output = DecideResult> + Send>>,
    ) -> Self {
        let mut begun = BegunDecision { work: Some(work), runtime: runtime.clone() };
        // Timers are created on this runtime, whatever the caller's. A caller that awaits the answer polls again with a waker.
        let _entered = runtime.enter();
        match Pin::new(&mut begun).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Self::ready(answer),
            Poll::Pending => Self::pending(begun),
        }
    }
}

struct BegunDecision {
    work: Option<Pin<Box<dyn Future<Output = DecideResult> + Send>>>,
    runtime: Handle,
}

impl Future for BegunDecision {
    type Output = DecideResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecideResult> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let answer = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(answer)
    }
}

impl Drop for BegunDecision {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            spawn(&self.runtime, Box::pin(async { drop(work.await) }));
        }
    }
}

/// Spawns work on the runtime. Boxed, because tokio's code for a task is compiled once for each type.
pub(crate) fn spawn(runtime: &Handle, work: Pin<Box<dyn Future<Output = ()> + Send>>) {
    runtime.spawn(work);
}
