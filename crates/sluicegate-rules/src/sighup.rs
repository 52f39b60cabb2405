//! Reads the file again on SIGHUP from an operator.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use crate::rules::Rules;

impl Rules {
    /// Reads the file again, from now on, whenever this process gets SIGHUP, for example by `kill -HUP` or `systemctl reload`; without this
    /// the signal ends a process. Each outcome is logged. With [`follow`](Self::follow) as well, a changed file takes effect without a
    /// signal, too.
    ///
    /// ```no_run
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, Variables};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = Rules::open(&MemoryStore::new(), "rules.yaml", Variables::environment())?;
    /// rules.reload_on_sighup()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the signal cannot be listened to.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and in one without I/O.
    pub fn reload_on_sighup(&self) -> io::Result<()> {
        let mut hangups = signal(SignalKind::hangup())?;
        let rules = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                let Some(inner) = rules.upgrade() else { return };
                // Reading a file may take a while, and a runtime that shuts down does not begin it.
                _ = tokio::task::spawn_blocking(move || Self(inner).reload_and_log(true)).await;
            }
        });
        Ok(())
    }
}
