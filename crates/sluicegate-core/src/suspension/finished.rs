//! Work that is finished even if its future is dropped: [`finished`].

use std::future::Future;
use std::pin::Pin;

use crate::store::{DecideResult, DecisionFuture};

/// Begins work of several calls: at once if it is `here`, in memory, or if there is a tokio runtime, which the timers
/// of other stores need. If the future is dropped, the tokio runtime on which it was begun finishes the work: a client that
/// hangs up does not evade the consequences of its refusal.
pub(crate) fn finished(
    is_here: bool,
    work: Pin<Box<dyn Future<Output = DecideResult> + Send>>,
) -> DecisionFuture {
    #[cfg(feature = "tokio")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        return DecisionFuture::begun_boxed(&runtime, work);
    }
    if is_here { DecisionFuture::polled_boxed(work) } else { DecisionFuture::pending(work) }
}
