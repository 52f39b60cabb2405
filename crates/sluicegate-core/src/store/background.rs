//! Work on a tokio runtime: decisions that are finished even if their futures are dropped, and [`KeptTask`]s, which outlive their runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::{PoisonError, RwLock};
use std::task::{Context, Poll, Waker, ready};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::ask::{DecideResult, DecisionFuture};
use crate::error::{StoreError, StoreErrorKind};
use crate::support::{read, write};

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
    /// Unless the caller is on this runtime, the work is a task of this one, and the answer is [`StoreErrorKind::Unavailable`] if this one ends
    /// first.
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
        // A timer panics when it is polled after its runtime has ended, so only this runtime polls the work.
        if !Handle::try_current().is_ok_and(|here| here.id() == runtime.id()) {
            let task = runtime.spawn(work);
            return Self::pending(async { task.await.unwrap_or_else(|_| Err(runtime_ended())) });
        }
        let mut begun = BegunDecision { work: Some(work), runtime: runtime.clone() };
        // A caller that awaits the answer polls again with a waker.
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

/// A task that is kept running: it begins on a tokio runtime of the callers that need it, and begins anew on another one after that has ended.
/// For stores with work in the background, which may be in a static, or be used by a runtime for each thread.
///
/// The work must bear to end at any `await`, and to begin again with what it has left behind. Dropping this ends the task.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use sluicegate_core::store::KeptTask;
/// use tokio::runtime::Builder;
///
/// let begun = Arc::new(AtomicU64::new(0));
/// let count = Arc::clone(&begun);
/// let task = KeptTask::new(move || {
///     count.fetch_add(1, Ordering::Relaxed);
///     std::future::pending()
/// });
/// for runtimes in 1..=2 {
///     let runtime = Builder::new_current_thread().build()?;
///     runtime.block_on(async { task.keep() })?;
///     runtime.block_on(async { task.keep() })?;
///     assert_eq!(begun.load(Ordering::Relaxed), runtimes);
/// }
/// assert!(task.keep().is_err(), "its runtime has ended, and here is none");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeptTask {
    begin: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>,
    run: RwLock<Option<TaskRun>>,
}

/// One run of a task.
struct TaskRun {
    runtime: Handle,
    task: AbortHandle,
}

impl KeptTask {
    /// A task that has not begun yet. `begin` is called whenever it begins, and must not block.
    pub fn new<F>(begin: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { begin: Box::new(move || Box::pin(begin())), run: RwLock::new(None) }
    }

    /// The runtime on which the task runs. If it does not run, it begins on the caller's.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] when its runtime has ended, and the caller is on none.
    pub fn keep(&self) -> Result<Handle, StoreError> {
        self.keep_on(|| Handle::try_current().map_err(|_| runtime_ended().unsent()))
    }

    /// As [`keep`](Self::keep), but it begins on the runtime that `find` returns.
    ///
    /// # Errors
    /// The error of `find`.
    pub fn keep_on(&self, find: impl FnOnce() -> Result<Handle, StoreError>) -> Result<Handle, StoreError> {
        // No code panics while it holds the lock, except for `begin`, which then has changed nothing.
        if let Some(runtime) = running(&read(&self.run)) {
            return Ok(runtime);
        }
        let mut run = write(&self.run);
        // Another caller may have begun it meanwhile.
        if let Some(runtime) = running(&run) {
            return Ok(runtime);
        }
        let runtime = find()?;
        let task = runtime.spawn((self.begin)()).abort_handle();
        *run = Some(TaskRun { runtime: runtime.clone(), task });
        Ok(runtime)
    }

    /// Whether the task runs.
    pub fn is_running(&self) -> bool {
        running(&read(&self.run)).is_some()
    }
}

/// The runtime of this run, unless it is over: a runtime that ends cancels its tasks.
fn running(run: &Option<TaskRun>) -> Option<Handle> {
    let run = run.as_ref().filter(|run| !run.task.is_finished())?;
    Some(run.runtime.clone())
}

/// The error of work whose runtime has ended.
fn runtime_ended() -> StoreError {
    let problem = "the tokio runtime on which the store works has ended";
    StoreError::with_source(StoreErrorKind::Unavailable, problem)
}

impl Drop for KeptTask {
    fn drop(&mut self) {
        let run = self.run.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        run.into_iter().for_each(|run| run.task.abort());
    }
}

crate::debug_as!(KeptTask, task => task.is_running());
