//! Readiness: [`Ready`].

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::store::DecidedBy;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::app::App;
use crate::connection::ended;

/// The interval between two checks of a store that has not answered yet.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The longest time that a starting server waits for its store's first answer. Without the wait, the fallback would decide
/// while the store still connects.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// Whether the store has answered once, and the server is not shutting down.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    has_answered: watch::Sender<bool>,
    is_ending: watch::Receiver<bool>,
}

impl Ready {
    pub(crate) fn until(is_ending: watch::Receiver<bool>) -> Self {
        Self { has_answered: watch::Sender::new(false), is_ending }
    }

    /// The output of a future, unless the server begins to shut down first.
    pub(crate) async fn unless_ending<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut is_ending = self.is_ending.clone();
        tokio::select! {
            // An output that is ready at once is not lost to a shutdown.
            biased;
            output = future => Some(output),
            () = ended(&mut is_ending) => None,
        }
    }

    /// Waits for the first answer of the store, but not for long.
    pub(crate) async fn first_answer(&self) {
        let mut has_answered = self.has_answered.subscribe();
        // Without an answer it serves nevertheless, by the policies' `OnOutage`.
        _ = timeout(FIRST_ANSWER, has_answered.wait_for(|has_answered| *has_answered)).await;
    }

    /// Whether the server shuts down.
    pub(crate) fn is_ending(&self) -> bool {
        *self.is_ending.borrow()
    }

    /// Waits until the store has answered for the first time, or until the server shuts down.
    pub(crate) async fn changed(&self) {
        let (mut is_ending, mut has_answered) = (self.is_ending.clone(), self.has_answered.subscribe());
        let is_answered = *has_answered.borrow();
        tokio::select! {
            () = ended(&mut is_ending) => {}
            _ = has_answered.wait_for(|has_answered| *has_answered), if !is_answered => {}
        }
    }

    /// The reason why it is not ready.
    pub(crate) fn why_not(&self) -> Option<&'static str> {
        match () {
            () if self.is_ending() => Some("the server is shutting down"),
            () if !*self.has_answered.borrow() => Some("the store has not answered yet"),
            () => None,
        }
    }
}

/// Checks the store until it has answered once. Answers of a fallback do not count.
pub(crate) async fn ask_store(app: Arc<App>) {
    loop {
        let answer = app.receipts.ask_store().await;
        if answer.is_ok_and(|decision| decision.decided_by() == DecidedBy::Store) {
            app.ready.has_answered.send_replace(true);
            return;
        }
        tokio::time::sleep(LOOKS_AGAIN_AFTER).await;
    }
}
