//! Reads the file again on SIGHUP from an operator.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::Builder;
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
    /// It is done by a thread of its own.
    ///
    /// # Errors
    /// When the signal cannot be listened to, or no thread can be started.
    pub fn reload_on_sighup(&self) -> io::Result<()> {
        // A runtime of its own, because the caller's may end before the rules do.
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let mut hangups = {
            let _entered = runtime.enter();
            signal(SignalKind::hangup())?
        };
        let rules = Arc::downgrade(&self.0);
        let run = move || {
            while runtime.block_on(hangups.recv()).is_some() {
                let Some(inner) = rules.upgrade() else { return };
                Self(inner).reload_by_thread(true);
            }
        };
        thread::Builder::new().name("sluicegate-sighup".to_owned()).spawn(run).map(drop)
    }
}
