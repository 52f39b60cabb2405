//! Requests that arrive at the same time share a call.
//!
//! Half of what a decision costs Redis is reading a command and writing its reply. A request that
//! finds the connection idle is sent at once; a request that arrives while others wait for their
//! answers is sent with the next call, with up to 31 others. The script decides them one after the
//! other, independently.
//!
//! # Design
//! - No timer: no request waits for others to arrive. Under light load each request is a call of its own, and
//!   batches grow with the load.
//! - At most 32 quotas a call: the server decides nothing else meanwhile, so a larger batch would
//!   delay all clients.
//! - A request whose deadline passes before it is sent, in a process that is overloaded, is left out; nothing of it is spent.
//! - On a Cluster a call is for keys of one slot, so requests of one slot share a call. While the slot moves, a node that has only
//!   some of the keys refuses the whole call and has no effect; each request is then sent by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::ask::KeyAsk;
use super::command::{command, expires};
use super::reply::ScriptReply;
use crate::connection::{ConnectionState, is_of_moving_slot, part_of};

/// The most quotas in one call: 80 microseconds with GCRA in which Redis serves nothing else, and 400 with sliding logs.
const MOST: usize = 32;

/// The number of counts of pending calls on a Cluster. Slots with the same remainder share a count.
const COUNTS: usize = 1_024;

/// Collects requests that arrive at the same time, so that they share a call.
pub(in crate::store) struct Batcher {
    sender: Arc<BatchSender>,
    queue: mpsc::UnboundedSender<QueuedRequest>,
}

/// Sends calls.
pub(in crate::store) struct BatchSender {
    connection: Arc<ConnectionState>,
    /// The requests that wait for others.
    queue: tokio::sync::Mutex<mpsc::UnboundedReceiver<QueuedRequest>>,
    /// Pending calls: one count, or several on a Cluster.
    under_way: Box<[AtomicUsize]>,
}

struct QueuedRequest {
    request: ScriptRequest,
    slot: u16,
    answer: oneshot::Sender<DecisionResult>,
}

impl Batcher {
    pub(in crate::store) fn new(connection: Arc<ConnectionState>) -> Self {
        let counts = if connection.is_cluster { COUNTS } else { 1 };
        let under_way = (0..counts).map(|_| AtomicUsize::new(0)).collect();
        let (queue, waiting) = mpsc::unbounded_channel();
        let sender = BatchSender { connection, queue: tokio::sync::Mutex::new(waiting), under_way };
        Self { sender: Arc::new(sender), queue }
    }

    /// The part that [`gather`]s.
    pub(in crate::store) fn sender(&self) -> Arc<BatchSender> {
        Arc::clone(&self.sender)
    }

    /// Decides a request on this runtime, alone or with others.
    pub(super) fn decide(&self, request: ScriptRequest, runtime: &Handle) -> DecisionFuture {
        let slot = self.sender.slot(&request);
        // Relaxed: a wrong guess costs only a separate call or a shared one.
        let is_at_rest = self.sender.under_way(slot).load(Ordering::Relaxed) == 0;
        if is_at_rest || !self.sender.connection.is_up_or_mending() {
            let sender = Arc::clone(&self.sender);
            return DecisionFuture::begun(runtime, async move { sender.alone(&request, slot).await });
        }
        let deadline = request.deadline;
        let (answer, answered) = oneshot::channel();
        // The other end lives as long as this one.
        _ = self.queue.send(QueuedRequest { request, slot, answer });
        DecisionFuture::begun(runtime, async move {
            // A timer of its own: a call has the deadline of its last request, and may wait for a thread that is busy.
            let kind = match timeout_at(deadline, answered).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(_)) => StoreErrorKind::Unavailable,
                Err(_) => StoreErrorKind::Timeout,
            };
            Err(StoreError::new(kind).in_part(part_of(slot)))
        })
    }
}

/// Counts a call until it is answered or given up.
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

impl BatchSender {
    /// The slot of a request's keys. On a single server, which decides any keys together, all requests count as one slot.
    fn slot(&self, request: &ScriptRequest) -> u16 {
        if self.connection.is_cluster { request.slot() } else { 0 }
    }

    fn under_way(&self, slot: u16) -> &AtomicUsize {
        &self.under_way[usize::from(slot) % self.under_way.len()]
    }

    async fn alone(&self, request: &ScriptRequest, slot: u16) -> DecisionResult {
        let _under_way = UnderWay::begin(self.under_way(slot));
        loop {
            let decided = call(&self.connection, part_of(slot), &[request]).await?.decision(&request.asks);
            if !is_expired_in_time(&decided, request) {
                return decided;
            }
        }
    }

    /// Requests of one slot.
    async fn batch(self: Arc<Self>, mut waiting: Vec<QueuedRequest>) {
        let now = Instant::now();
        for late in waiting.extract_if(.., |waiting| waiting.request.deadline <= now) {
            let error = StoreError::new(StoreErrorKind::Timeout).in_part(part_of(late.slot));
            _ = late.answer.send(Err(error.unsent()));
        }
        let Some(first) = waiting.first() else { return };
        let slot = first.slot;
        let _under_way = UnderWay::begin(self.under_way(slot));
        let requests: Vec<&ScriptRequest> = waiting.iter().map(|waiting| &waiting.request).collect();
        let mut reply = call(&self.connection, part_of(slot), &requests).await;
        if waiting.len() > 1 && reply.as_ref().is_err_and(is_of_moving_slot) {
            // The callers of closed requests have left.
            for QueuedRequest { request, answer, .. } in
                waiting.into_iter().filter(|one| !one.answer.is_closed())
            {
                let sender = Arc::clone(&self);
                tokio::spawn(async move { answer.send(sender.alone(&request, slot).await) });
            }
            return;
        }
        for QueuedRequest { request, answer, .. } in waiting {
            let decided = match &mut reply {
                Ok(reply) => reply.decision(&request.asks),
                Err(error) => Err(again(error)),
            };
            if is_expired_in_time(&decided, &request) {
                let shared = Arc::clone(&self);
                tokio::spawn(async move { answer.send(shared.alone(&request, slot).await) });
                continue;
            }
            // Fails if the caller has left, which needs no handling.
            _ = answer.send(decided);
        }
    }
}

/// Takes the waiting requests, and sends them; ends with the store.
pub(in crate::store) async fn gather(sender: Arc<BatchSender>) {
    let mut queue = sender.queue.lock().await;
    let mut come = Vec::new();
    while queue.recv_many(&mut come, 256).await > 0 {
        // Lets other requests that the same answers have woken arrive.
        tokio::task::yield_now().await;
        while let Ok(waiting) = queue.try_recv() {
            come.push(waiting);
        }
        // Stable: requests of one slot keep their order.
        come.sort_by_key(|waiting| waiting.slot);
        let mut come = come.drain(..).peekable();
        while let Some(first) = come.next() {
            let (mut count, time, slot) = (first.request.quotas(), first.request.time, first.slot);
            let mut waiting = Vec::with_capacity(MOST.min(1 + come.len()));
            waiting.push(first);
            // With an injected clock, all requests of a call have the same time.
            while let Some(next) = come.next_if(|next| {
                count += next.request.quotas();
                count <= MOST && next.request.time == time && next.slot == slot
            }) {
                waiting.push(next);
            }
            tokio::spawn(Arc::clone(&sender).batch(waiting));
            // The call is sent before the next one is made, so that Redis decides it meanwhile.
            tokio::task::yield_now().await;
        }
    }
}

/// Whether the server has left out a request before its deadline: the server's clock was set, which its reply has told.
fn is_expired_in_time(decided: &DecisionResult, request: &ScriptRequest) -> bool {
    let is_expired = |error: &StoreError| error.kind() == StoreErrorKind::Timeout && !error.may_have_spent();
    decided.as_ref().is_err_and(is_expired) && Instant::now() < request.deadline
}

/// A copy of the error for another request of the call.
fn again(error: &StoreError) -> StoreError {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let kind = error.kind();
    let copy = source.map_or_else(|| StoreError::new(kind), |source| StoreError::with_source(kind, source));
    let copy = copy.in_part(error.part());
    if error.may_have_spent() { copy } else { copy.unsent() }
}

pub(super) type DecisionResult = Result<Decision, StoreError>;

/// One request and the data to send it.
///
/// The time of an injected clock is read when the request begins, not when it is sent; the server's
/// time is read by the script.
pub(super) struct ScriptRequest {
    /// The asks, whose keys all live in one slot.
    pub(super) asks: Vec<KeyAsk>,
    /// The time of an injected clock.
    pub(super) time: Option<u64>,
    pub(super) deadline: Instant,
}

impl ScriptRequest {
    pub(super) fn quotas(&self) -> usize {
        self.asks.iter().map(|ask| ask.prepared.rules.len()).sum()
    }

    /// The hash slot of all its keys on a Cluster.
    pub(super) fn slot(&self) -> u16 {
        self.asks.first().map_or(0, KeyAsk::slot)
    }
}

/// Calls the script for these requests, whose keys are in this part of the slots, at the time and until the deadline of the
/// last of them. The reply has their decisions in this order. A request that the server gets to later, because it was stopped or busy, is not
/// carried out: its caller has decided without it.
pub(super) async fn call<'a>(
    connection: &'a ConnectionState,
    part: usize,
    requests: &[&ScriptRequest],
) -> Result<ScriptReply<'a>, StoreError> {
    let begun = Instant::now();
    let (time, deadline) = requests.last().map_or((None, begun), |last| (last.time, last.deadline));
    let asks = || requests.iter().map(|request| &*request.asks);
    // That of the first, and none by an injected clock.
    let first =
        requests.iter().filter(|request| expires(&request.asks)).map(|request| request.deadline).min();
    let (clock, first) = (&connection.clocks[part], first.filter(|_| time.is_none()));
    let deadline_us = || first.and_then(|first| clock.at(first)).unwrap_or(u64::MAX);
    let command = |name| command(name, asks(), time, deadline_us());
    let reply = connection.send(part, command, deadline).await?;
    let mut reply = ScriptReply::read(&reply, &connection.disagreements)?;
    reply.part = part;
    if time.is_none() {
        clock.note(begun, reply.now_us, Instant::now());
    }
    Ok(reply)
}
