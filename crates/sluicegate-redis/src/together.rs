//! Requests that come at the same time share a call.
//!
//! Half of what a decision costs Redis is reading a command and writing its reply. Whoever finds the connection at rest
//! sends at once; who comes while others are waiting for their answers goes with the next call, with up to fifteen others.
//! They are decided one after the other, each for itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::{Decision, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::call::Answer;
use crate::cell::Cell;
use crate::link::State;
use crate::reply::Reply;
use crate::script;

/// The most buckets in one call: some fifty microseconds in which Redis does nothing else.
const MOST: usize = 16;

/// One request, and what it needs to be sent.
pub(crate) struct Request {
    pub(crate) cells: Vec<Cell>,
    pub(crate) time: Option<u64>,
    pub(crate) deadline: Instant,
}

impl Request {
    fn buckets(&self) -> usize {
        self.cells.iter().map(|cell| cell.bucket.rules.len()).sum()
    }
}

/// Where requests meet.
pub(crate) struct Together {
    shared: Arc<Shared>,
    queue: mpsc::UnboundedSender<Waiting>,
}

struct Shared {
    link: Arc<State>,
    /// Calls that have not been answered yet.
    under_way: AtomicUsize,
}

struct Waiting {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

impl Together {
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn start(link: Arc<State>) -> Self {
        let shared = Arc::new(Shared { link, under_way: AtomicUsize::new(0) });
        let (queue, waiting) = mpsc::unbounded_channel();
        tokio::spawn(gather(Arc::clone(&shared), waiting));
        Self { shared, queue }
    }

    /// Decides a request, alone or with others.
    pub(crate) fn decide(&self, request: Request) -> impl Future<Output = Answer> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        let queue = self.queue.clone();
        async move {
            // Relaxed: a guess that is wrong costs a call of its own, or none.
            if shared.under_way.load(Ordering::Relaxed) == 0 || !shared.link.is_up_or_mending() {
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
        decide(&self.link, 0, request).await.map(|(decision, _)| decision)
    }

    async fn together(&self, waiting: Vec<Waiting>) {
        let _under_way = UnderWay::begin(&self.under_way);
        let Some(last) = waiting.last() else { return };
        let (time, deadline) = (last.request.time, last.request.deadline);
        let requests = || waiting.iter().map(|waiting| &*waiting.request.cells);
        let reply = self.link.send(0, |call| script::command(call, requests(), time), deadline).await;
        let mut reply = reply.and_then(|reply| Reply::read(&reply).ok_or_else(script::not_ours));
        for Waiting { request, answer } in waiting {
            let decided = match &mut reply {
                Ok(reply) => reply.decision(&request.cells).ok_or_else(script::not_ours),
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
            let (mut count, time) = (first.request.buckets(), first.request.time);
            let mut waiting = vec![first];
            while let Some(next) = come.front() {
                count += next.request.buckets();
                // An injected clock shows one time to all of a call.
                if count > MOST || next.request.time != time {
                    break;
                }
                waiting.extend(come.pop_front());
            }
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { shared.together(waiting).await });
        }
    }
}

/// One call for one request; with whether it is refused only because of units that others may give back in a moment.
pub(crate) async fn decide(
    link: &State,
    part: usize,
    request: Request,
) -> Result<(Decision, bool), StoreError> {
    let Request { cells, time, deadline } = &request;
    let one = || std::iter::once(&**cells);
    let reply = link.send(part, |call| script::command(call, one(), *time), *deadline).await?;
    let mut reply = Reply::read(&reply).ok_or_else(script::not_ours)?;
    let decision = reply.decision(cells).ok_or_else(script::not_ours)?;
    Ok((decision, reply.is_busy))
}

/// The same error for another request.
fn again(error: &StoreError) -> StoreError {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let kind = error.kind();
    source.map_or_else(|| StoreError::new(kind), |source| StoreError::with_source(kind, source))
}
