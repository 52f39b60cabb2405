//! Sends one command over the current connection, and reacts to signs of a broken connection in the reply.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use tokio::time::{Instant, sleep, timeout_at};

use super::failure::{Remedy, is_no_script, is_on_the_way, remedy, store_error};
use super::state::{ConnectionState, Live};

/// Timeouts in a row after which a connection counts as dead, although the kernel still considers it open.
const TIMEOUTS_IN_A_ROW: u32 = 3;

/// The pause before a command is sent again while its slot moves from one node of a cluster to another.
const SLOT_PAUSE: Duration = Duration::from_millis(4);

/// How a command names its script: by digest, or by its text if the server does not know the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptName {
    Digest,
    Text,
}

impl ConnectionState {
    /// Sends the command that calls a script, by digest, or by its text if the server does not know the digest; `part` is the
    /// part of the slots that the command is for.
    ///
    /// - A server without the script answers `NOSCRIPT`, has done nothing, and is sent the text.
    /// - A node of a Cluster that does not have the slot (any more) has done nothing either, so there is one
    ///   more attempt, after a pause of a few milliseconds.
    /// - Everything else is the answer, or an error. Nothing that may have been carried out is sent
    ///   again.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] marked as unsent when there is no connection,
    /// [`StoreErrorKind::Timeout`] after the deadline, otherwise the kind of the server's error;
    /// each names the part of the slots.
    pub(crate) async fn send(
        &self,
        part: usize,
        command: impl Fn(ScriptName) -> Cmd,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        // Nothing was sent yet, so there is nothing that could be sent twice.
        let live = match self.live.load_full() {
            Some(live) => Some(live),
            None => {
                self.started().await;
                self.mended(deadline).await
            }
        };
        let Some(live) = live else {
            let problem = "there is no connection to Redis";
            return Err(StoreError::with_source(StoreErrorKind::Unavailable, problem).in_part(part).unsent());
        };
        let call = async {
            let mut again = true;
            let mut name = ScriptName::Digest;
            loop {
                match live.connection.send(command(name)).await {
                    Err(error) if is_no_script(&error) && name == ScriptName::Digest => {
                        name = ScriptName::Text;
                    }
                    // A slot is moving, and the client's own retry failed, too.
                    Err(error) if again && is_on_the_way(&error) => {
                        again = false;
                        sleep(SLOT_PAUSE).await;
                    }
                    result => break result,
                }
            }
        };
        match timeout_at(deadline, call).await {
            Ok(Ok(value)) => {
                // Relaxed, here and below: counts and marks order nothing else.
                live.timeouts[part].store(0, Ordering::Relaxed);
                live.answered.store(true, Ordering::Relaxed);
                Ok(value)
            }
            Ok(Err(error)) => {
                self.note(&live, part, remedy(&error));
                Err(store_error(error).in_part(part))
            }
            Err(_) => {
                self.note(&live, part, Remedy::Count);
                Err(StoreError::new(StoreErrorKind::Timeout).in_part(part))
            }
        }
    }

    /// Applies the result of a call to its connection.
    ///
    /// A timeout alone proves nothing: the server may be busy for a moment. Three without an answer
    /// in between mean that the connection or its server is dead. On a Cluster they
    /// are counted per part of the slots, because the other nodes still answer.
    fn note(&self, live: &Live, part: usize, remedy: Remedy) {
        let replace = match remedy {
            Remedy::Keep => false,
            // The cluster client mends the connection to a single node by itself, most of the time.
            Remedy::Replace if !self.is_cluster => true,
            Remedy::Count | Remedy::Replace => {
                live.timeouts[part].fetch_add(1, Ordering::Relaxed);
                // Counted over all parts: a caller that rarely uses each part would need seconds for three in one of them.
                let open = live.timeouts.iter().map(|timeouts| timeouts.load(Ordering::Relaxed));
                open.fold(0, u32::saturating_add) >= TIMEOUTS_IN_A_ROW
            }
        };
        // Only the connection that failed is given up, not the one that came after it.
        if replace && self.generation() == Some(live.generation) {
            if !self.is_cluster {
                self.live.store(None);
            }
            self.give_up(live.generation);
        }
    }
}
