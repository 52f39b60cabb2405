//! Requests that come at the same time share a call.
//!
//! Half of what a decision costs Redis is reading a command and writing its reply. A request that
//! finds the connection at rest is sent at once; one that comes while others are waiting for their
//! answers goes with the next call, with up to fifteen others. They are decided one after the
//! other, each for itself.
//!
//! # Why it is made so
//! - No timer: nobody waits for company. Under light load each request is a call of its own, and
//!   batches grow with the load.
//! - At most 16 quotas a call: the server does nothing else meanwhile, so that a larger batch would
//!   delay everyone.
//! - A request whose future was dropped before it was sent is left out; nothing of it was spent.
//! - Not on a Cluster, where one call can only be for keys of one slot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use super::request::{Answer, Request, call};
use crate::connection::State;

/// The most quotas in one call: some fifty microseconds in which Redis does nothing else.
const MOST: usize = 16;

/// Where requests meet that come at the same time.
pub(crate) struct Batches {
    shared: Arc<Shared>,
    queue: mpsc::UnboundedSender<Waiting>,
}

struct Shared {
    connection: Arc<State>,
    /// Calls that have not been answered yet.
    under_way: AtomicUsize,
}

struct Waiting {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

impl Batches {
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn start(connection: Arc<State>) -> Self {
        let shared = Arc::new(Shared { connection, under_way: AtomicUsize::new(0) });
        let (queue, waiting) = mpsc::unbounded_channel();
        tokio::spawn(gather(Arc::clone(&shared), waiting));
        Self { shared, queue }
    }

    /// Decides a request, alone or with others.
    pub(super) fn decide(&self, request: Request) -> impl Future<Output = Answer> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        let queue = self.queue.clone();
        async move {
            // Relaxed: a guess that is wrong costs a call of its own, or none.
            if shared.under_way.load(Ordering::Relaxed) == 0 || !shared.connection.is_up_or_mending() {
                return shared.alone(request).await;
            }
            let deadline = request.deadline;
            let (answer, answered) = oneshot::channel();
            // The other end lives as long as this one.
            _ = queue.send(Waiting { request, answer });
            match timeout_at(deadline, answered).await {
                Ok(answer) => answer.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable))),
                Err(_) => Err(StoreError::new(StoreErrorKind::Timeout)),
            }
        }
    }
}

/// A call that is counted until it is answered or given up.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    async fn alone(&self, request: Request) -> Answer {
        let _under_way = UnderWay::begin(&self.under_way);
        call(&self.connection, 0, &[&request]).await?.decision(&request.asks)
    }

    async fn batch(&self, waiting: Vec<Waiting>) {
        let _under_way = UnderWay::begin(&self.under_way);
        let requests: Vec<&Request> = waiting.iter().map(|waiting| &waiting.request).collect();
        let mut reply = call(&self.connection, 0, &requests).await;
        for Waiting { request, answer } in waiting {
            let decided = match &mut reply {
                Ok(reply) => reply.decision(&request.asks),
                Err(error) => Err(again(error)),
            };
            // Who does not wait any longer has given the request up.
            _ = answer.send(decided);
        }
    }
}

/// Takes what has come, and sends it; ends with the store.
async fn gather(shared: Arc<Shared>, mut queue: mpsc::UnboundedReceiver<Waiting>) {
    let mut come = VecDeque::new();
    let mut taken = Vec::new();
    loop {
        if come.is_empty() && queue.recv_many(&mut taken, 256).await == 0 {
            return;
        }
        // Those that the same answers have woken are about to come, too.
        tokio::task::yield_now().await;
        while let Ok(waiting) = queue.try_recv() {
            taken.push(waiting);
        }
        // Nobody waits any longer for what is closed, and nothing of it was sent.
        come.extend(taken.drain(..).filter(|waiting| !waiting.answer.is_closed()));
        while let Some(first) = come.pop_front() {
            let (mut count, time) = (first.request.quotas(), first.request.time);
            let mut waiting = vec![first];
            while let Some(next) = come.front() {
                count += next.request.quotas();
                // An injected clock shows one time to all of a call.
                if count > MOST || next.request.time != time {
                    break;
                }
                waiting.extend(come.pop_front());
            }
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { shared.batch(waiting).await });
        }
    }
}

/// The same error for another request.
fn again(error: &StoreError) -> StoreError {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let kind = error.kind();
    let copy = source.map_or_else(|| StoreError::new(kind), |source| StoreError::with_source(kind, source));
    if error.may_have_spent() { copy } else { copy.unsent() }
}
