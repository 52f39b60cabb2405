//! Checks that a connection can make decisions: [`Probe`].

use redis::{Cmd, Value};

use super::failure;
use super::server::Connection;

/// Commands in order, each with a check of its reply. They carry the scripts' texts, so that the server knows the scripts
/// from then on, and the first requests need not send them.
#[derive(Default)]
pub(crate) struct Probe(Vec<(Cmd, ReplyCheck)>);

/// Returns the problem of a reply.
type ReplyCheck = Box<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

impl Probe {
    pub(crate) fn step(
        &mut self,
        command: Cmd,
        judge: impl Fn(&Value) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.0.push((command, Box::new(judge)));
    }

    /// A connection is ready when the scripts run and give the right replies. A `PING` is not enough: a replica, a full or a loading
    /// server, and a server whose user lacks a right, all answer it.
    ///
    /// # Errors
    /// The error of the first command that failed, in words for a log.
    pub(super) async fn run(&self, connection: &dyn Connection) -> Result<(), String> {
        for (command, judge) in &self.0 {
            let reply = connection.send(command.clone()).await.map_err(|error| failure::explain(&error))?;
            judge(&reply)?;
        }
        Ok(())
    }
}
