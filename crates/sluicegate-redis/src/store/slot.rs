//! Scripts of the application on the store's connection: [`HashSlot`], [`Script`].

use std::borrow::Cow;
use std::sync::Arc;

use redis::{Cmd, ToRedisArgs, Value};
use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use tokio::runtime::Handle;

use super::client::RedisClient;
use crate::connection::{ScriptName, part_of};

/// Keys in one hash slot of Redis, for scripts of your own that run on the store's connection under its deadline.
///
/// A slot has a name and a key, as a bucket has a policy and a key, and its keys in Redis are its parts. On a Cluster all
/// parts are in one hash slot, so a script may use several of them. No bucket has the name of such a part.
///
/// ```no_run
/// use sluicegate_redis::{RedisStore, Script};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379")?;
/// let tickets = store.slot("tickets", "gala")?;
/// let draw = Script::new("return {redis.call('INCR', KEYS[1]), ARGV[1]}");
/// // The key `rl:3:tickets:{<hash of gala>}:drawn`.
/// let reply = tickets.run(&draw, &["drawn"], &[b"row 7"]).await?;
/// assert_eq!(reply, [b"1".to_vec(), b"row 7".to_vec()]);
/// # Ok(())
/// # }
/// ```
///
/// # When not to use it
/// For slow work: Redis runs one script at a time, and decisions of limits wait behind it.
///
/// # Rights
/// The user in Redis needs the rights for the commands in the script in addition to those of the [crate](crate#rights).
#[derive(Clone)]
pub struct HashSlot {
    client: Arc<RedisClient>,
    /// The beginning of its names, up to the part.
    stem: String,
    /// The hash slot on a Cluster.
    number: u16,
}

impl HashSlot {
    pub(super) fn new(client: Arc<RedisClient>, stem: String, number: u16) -> Self {
        Self { client, stem, number }
    }

    /// The tokio runtime in which its scripts run, and in which the connection of its store lives.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] when that has ended, and the caller is on none.
    #[doc(hidden)]
    pub fn runtime(&self) -> Result<Handle, StoreError> {
        self.client.runtime()
    }

    /// Runs a script with these parts of the slot as its `KEYS`, and its arguments, in one call.
    ///
    /// The reply is a list of strings: a string is a list of one, a number its digits, nil nothing, and within a list the empty
    /// string. Write the text of the script so that it may run again, or not at all.
    ///
    /// # Errors
    /// As for a decision: [`StoreErrorKind::Unavailable`] without a connection, at once, and if the script fails;
    /// [`StoreErrorKind::Timeout`] after the store's deadline; [`StoreErrorKind::Protocol`] for any other reply. The
    /// error says whether the script [may have run](StoreError::may_have_spent).
    ///
    /// # Cancel safety
    /// The call starts when this is called, and continues whether or not its future is polled or dropped.
    pub fn run(
        &self,
        script: &Script,
        parts: &[&str],
        arguments: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, StoreError>> + Send + use<> {
        let keys: Vec<String> = parts.iter().map(|part| self.key_name(part)).collect();
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|argument| argument.to_vec()).collect();
        let (script, part) = (script.clone(), part_of(self.number));
        let (connection, deadline) = (Arc::clone(&self.client.connection), self.client.deadline());
        let run = async move {
            let command = |name| script.command(name, &keys, &arguments);
            let reply = connection.send(part, command, deadline).await?;
            strings(reply).ok_or_else(|| {
                let problem = "the reply of the script is not a list of strings and numbers";
                StoreError::with_source(StoreErrorKind::Protocol, problem)
            })
        };
        let task = self.client.runtime().map(|runtime| runtime.spawn(run));
        async { task?.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable))) }
    }

    /// The time of the store's own [clock](crate::RedisStoreBuilder::clock) in microseconds, if it has one: a script that needs the
    /// time uses this time, or else the server's.
    pub fn clock_us(&self) -> Option<u64> {
        self.client.clock_us()
    }

    /// The name of a part in Redis, to inspect it or to delete it by hand.
    pub fn key_name(&self, part: &str) -> String {
        format!("{}:{part}", self.stem)
    }
}

sluicegate_core::debug_as!(HashSlot { stem });

/// A script in Lua, sent by its digest, or as text to a server that does not know it.
#[derive(Clone)]
pub struct Script {
    text: Cow<'static, str>,
    digest: Arc<str>,
}

impl Script {
    /// A script with this text. Make it once, because its digest is computed here.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let digest = redis::Script::new(&text).get_hash().into();
        Self { text, digest }
    }

    /// The command that calls the script, and the script's name in the command.
    pub(super) fn named(&self, name: ScriptName) -> [&str; 2] {
        match name {
            ScriptName::Digest => ["EVALSHA", &self.digest],
            ScriptName::Text => ["EVAL", &self.text],
        }
    }

    pub(super) fn command(&self, name: ScriptName, keys: &[impl ToRedisArgs], arguments: &[Vec<u8>]) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg(&self.named(name)).arg(keys.len()).arg(keys).arg(arguments);
        cmd
    }
}

sluicegate_core::debug_as!(Script { digest });

fn strings(reply: Value) -> Option<Vec<Vec<u8>>> {
    match reply {
        Value::Nil => Some(Vec::new()),
        Value::Array(items) => items.into_iter().map(string).collect(),
        single => string(single).map(|string| vec![string]),
    }
}

fn string(reply: Value) -> Option<Vec<u8>> {
    match reply {
        Value::Nil => Some(Vec::new()),
        Value::BulkString(bytes) => Some(bytes),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        Value::Okay => Some(b"OK".to_vec()),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_a_list_of_strings_or_none_of_ours() {
        let bulk = |text: &str| Value::BulkString(text.into());
        for (reply, expected) in [
            (Value::Nil, Some(vec![])),
            (Value::Int(-7), Some(vec!["-7"])),
            (Value::Okay, Some(vec!["OK"])),
            (Value::Array(vec![bulk("a"), Value::Nil, Value::Int(1)]), Some(vec!["a", "", "1"])),
            (Value::Array(vec![Value::Array(vec![])]), None),
            (Value::Double(0.5), None),
        ] {
            let shown = format!("{reply:?}");
            let expected =
                expected.map(|list: Vec<&str>| list.into_iter().map(Vec::from).collect::<Vec<_>>());
            assert_eq!(strings(reply), expected, "{shown}");
        }
    }
}
