//! Jobs on one Redis Stream: [`Queue`].
//!
//! | part of the slot | holds |
//! |---|---|
//! | `stream` | id and sealed job of each that is not done; a consumer group keeps account of those in hand |
//! | `parked` | the same of those that failed too often |
//! | `job:<id>` | digest of the owner, `w`aiting, `p`arked or `d`one, and the sealed result; expires when it was done for a while |
//! | `once:<digest>` | the id and the fingerprint of the request with this `Idempotency-Key`; expires with the job |
//!
//! Each step is one script, so that it is done whole or not at all. All that a script has answered is as durable as the server's
//! `appendfsync`: with `always`, an accepted job survives each crash of the server; with `everysec`, all but those of the last seconds.
//!
//! # Rights
//! Beside those of the limits, for the same keys: `+xadd +xlen +xrange +xdel +xack +xpending +xclaim +xautoclaim +xreadgroup
//! +xgroup|create +pexpire`.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderName};
use sluicegate::error::ConfigErrorKind;
use sluicegate::redis::{HashSlot, RedisStore, Script};
use sluicegate::{ConfigError, Key, StoreError};

use super::job::{self, Job};
use super::seal::{Seal, hex, random};

macro_rules! scripts {
    ($($name:ident: $($file:literal),+;)+) => {
        $(static $name: LazyLock<Script> = LazyLock::new(|| Script::new(concat!($(include_str!($file)),+)));)+
    };
}

scripts! {
    ACCEPT: "lua/accept.lua";
    ASK: "lua/ask.lua";
    TAKE: "lua/parts.lua", "lua/take.lua";
    SETTLE: "lua/parts.lua", "lua/settle.lua";
    UNPARK: "lua/parts.lua", "lua/unpark.lua";
}

/// Before the second attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Settings of a queue, the same on each instance.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Jobs that are not done, the parked ones among them: more are refused.
    pub(crate) most: u64,
    /// Bytes of a body.
    pub(crate) most_body: usize,
    /// Header fields that are kept with a job; all others are dropped.
    pub(crate) kept: Vec<HeaderName>,
    /// How long its owner may ask for a job that is done.
    pub(crate) stays: Duration,
    /// How long a worker may be silent about a job before another one takes it over.
    pub(crate) lease: Duration,
    /// Attempts after which a job is parked.
    pub(crate) attempts: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            most: 10_000,
            most_body: 64 * 1024,
            kept: vec![CONTENT_TYPE],
            stays: Duration::from_secs(3_600),
            lease: Duration::from_secs(30),
            attempts: 5,
        }
    }
}

impl Settings {
    fn check(&self) -> Result<(), ConfigError> {
        let problem = if self.most == 0 {
            "a queue of at most 0 jobs: use 1 or more".to_owned()
        } else if self.attempts == 0 {
            "0 attempts: use 1 or more".to_owned()
        } else if self.lease < Duration::from_millis(100) {
            format!("a lease of {:?}: use 100 ms or more", self.lease)
        } else if self.stays < Duration::from_secs(1) {
            format!("a result that stays for {:?}: use 1 s or more", self.stays)
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Store, problem))
    }
}

/// Jobs that wait on one Redis, for workers on any instance.
#[derive(Debug)]
pub(crate) struct Queue {
    slot: HashSlot,
    seal: Seal,
    pub(crate) settings: Settings,
}

/// The answer to a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// It will be done; its owner may ask for it by this id of 128 random bits.
    Accepted(String),
    /// The request was accepted before, with the same `Idempotency-Key`.
    Repeated(String),
    /// Another request came with the same `Idempotency-Key`.
    Other,
    /// There is no room. Nothing is trimmed to make some.
    Full,
}

/// Where a job stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It waits, or is in hand.
    Waiting,
    /// It failed too often, and is set aside until somebody puts it back.
    Parked,
    /// It is done, with this result.
    Done(Vec<u8>),
}

/// A job in the hands of a worker.
#[derive(Debug)]
pub(crate) struct Taken {
    entry: String,
    attempt: u64,
    id: String,
    once: String,
    sealed: Vec<u8>,
}

impl Queue {
    /// The queue of this name.
    ///
    /// # Errors
    /// When a setting cannot work, or the name cannot be one in Redis.
    pub(crate) fn new(
        store: &RedisStore,
        name: &str,
        seal: Seal,
        settings: Settings,
    ) -> Result<Self, ConfigError> {
        settings.check()?;
        Ok(Self { slot: store.slot("deferred", name)?, seal, settings })
    }

    /// Takes a request in. With an idempotency key, the same request is the same job, for as long as the job is known.
    ///
    /// # Errors
    /// When Redis does not answer. Then it may have been accepted all the same: with an idempotency key, it can be sent again.
    pub(crate) async fn accept(
        &self,
        owner: &Key,
        idempotency_key: Option<&str>,
        request: &Request<Bytes>,
    ) -> Result<Acceptance, StoreError> {
        let (id, job) = (hex(&random::<16>()), job::encode(request));
        // By the other secret as well, in case that an instance which has it as its own has taken the request in.
        let by_both = |purpose, parts: &[&[u8]]| {
            [self.seal.digest(purpose, parts), self.seal.other_digest(purpose, parts)]
        };
        let once = idempotency_key.map(|key| by_both("once", &[owner.as_bytes(), key.as_bytes()]));
        let prints = once.map(|_| by_both("print", &[&job]));
        let [print, other_print] = prints
            .as_ref()
            .map_or_else(Default::default, |prints| prints.each_ref().map(<[_; 16]>::as_slice));
        let [once, other_once] = once.map_or_else(Default::default, |once| once.map(|once| hex(&once)));
        let (most, sealed) = (self.settings.most.to_string(), self.seal.seal(&format!("job {id}"), &job));
        let arguments = [
            most.as_bytes(),
            id.as_bytes(),
            print,
            &self.owner(owner),
            once.as_bytes(),
            &sealed,
            other_print,
        ];
        let [once, other_once] = [&once, &other_once].map(|once| once_or_job(once, &id));
        let parts = ["stream", "parked", &once, &job_part(&id), &other_once];
        let reply = self.slot.run(&ACCEPT, &parts, &arguments).await?;
        let mut reply = reply.into_iter().map(text);
        let word = reply.next().unwrap_or_default();
        Ok(match (&*word, reply.next()) {
            ("accepted", Some(id)) => Acceptance::Accepted(id),
            ("repeated", Some(id)) => Acceptance::Repeated(id),
            ("other", _) => Acceptance::Other,
            _ => Acceptance::Full,
        })
    }

    /// Where a job of this owner stands; none if the owner has no such job, or no longer.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn ask(&self, owner: &Key, id: &str) -> Result<Option<Standing>, StoreError> {
        let is_id = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_id {
            return Ok(None);
        }
        let reply = self.slot.run(&ASK, &[&job_part(id)], &[]).await?;
        let record = reply.first().and_then(|record| record.split_first_chunk::<16>());
        let other = self.seal.other_digest("owner", &[owner.as_bytes()]);
        let is_owner = |found: &[u8; 16]| *found == self.owner(owner) || *found == other;
        let Some((_, rest)) = record.filter(|(found, _)| is_owner(found)) else {
            return Ok(None);
        };
        Ok(match rest.split_first() {
            Some((b'w', _)) => Some(Standing::Waiting),
            Some((b'p', _)) => Some(Standing::Parked),
            Some((b'd', sealed)) => self.seal.open(&format!("result {id}"), sealed).map(Standing::Done),
            _ => None,
        })
    }

    /// Hands out the next job, or one that its worker has let go of; none if there is none now. Each worker has a cursor of
    /// its own, [`Cursor::default`] at first.
    ///
    /// # Errors
    /// When Redis does not answer. If it has handed one out all the same, that one is taken over when its lease is over.
    pub(crate) async fn take(&self, cursor: &mut Cursor) -> Result<Option<Taken>, StoreError> {
        let Settings { lease, attempts, .. } = &self.settings;
        let arguments = [lease.as_millis().to_string(), attempts.to_string(), std::mem::take(&mut cursor.0)];
        let reply = self
            .slot
            .run(&TAKE, &["stream", "parked", "job:"], &arguments.each_ref().map(|a| a.as_bytes()))
            .await?;
        let mut reply = reply.into_iter();
        cursor.0 = reply.next().map(text).unwrap_or_default();
        let fields: Vec<_> = reply.collect();
        let Ok([entry, attempt, id, once, sealed]) = <[_; 5]>::try_from(fields) else { return Ok(None) };
        let [entry, attempt, id, once] = [entry, attempt, id, once].map(text);
        Ok(Some(Taken { entry, attempt: attempt.parse().unwrap_or(u64::MAX), id, once, sealed }))
    }

    /// What was taken, opened; none if it was not sealed by this application.
    pub(crate) fn open(&self, taken: &Taken) -> Option<Job> {
        let plain = self.seal.open(&format!("job {}", taken.id), &taken.sealed)?;
        Some(Job { id: taken.id.clone(), attempt: taken.attempt, request: job::decode(&plain)? })
    }

    /// Begins the lease of a job anew. False if it is in other hands by now.
    ///
    /// # Errors
    /// When Redis does not answer, here and below.
    pub(crate) async fn hold(&self, taken: &Taken) -> Result<bool, StoreError> {
        self.settle(taken, "hold", &[]).await
    }

    /// The job is done, and this is its result. False if it is in other hands by now, or done before: then this result is dropped.
    pub(crate) async fn finish(&self, taken: &Taken, result: &[u8]) -> Result<bool, StoreError> {
        let stays = self.settings.stays.as_millis().to_string();
        let sealed = self.seal.seal(&format!("result {}", taken.id), result);
        self.settle(taken, "done", &[stays.as_bytes(), &sealed]).await
    }

    /// The job has failed. After its last attempt it is parked; before, it is handed out again after a pause, which doubles from one
    /// attempt to the next, up to the lease.
    pub(crate) async fn fail(&self, taken: &Taken) -> Result<bool, StoreError> {
        let Settings { lease, attempts, .. } = self.settings;
        if taken.attempt >= attempts {
            return self.settle(taken, "park", &[]).await;
        }
        let doublings = u32::try_from(taken.attempt - 1).unwrap_or(u32::MAX).min(16);
        let pause = lease.min(FIRST_PAUSE * 2_u32.pow(doublings));
        self.settle(taken, "again", &[(lease - pause).as_millis().to_string().as_bytes()]).await
    }

    /// Puts this many parked jobs back at the end of the stream, as if they were new, and says how many there were.
    pub(crate) async fn unpark(&self, most: u64) -> Result<u64, StoreError> {
        let reply =
            self.slot.run(&UNPARK, &["stream", "parked", "job:"], &[most.to_string().as_bytes()]).await?;
        Ok(reply.into_iter().next().and_then(|count| text(count).parse().ok()).unwrap_or(0))
    }

    async fn settle(&self, taken: &Taken, word: &str, more: &[&[u8]]) -> Result<bool, StoreError> {
        let Taken { entry, attempt, id, once, .. } = taken;
        let attempt = attempt.to_string();
        let arguments = [&[entry.as_bytes(), attempt.as_bytes(), word.as_bytes()], more].concat();
        let parts = ["stream", "parked", &job_part(id), &once_or_job(once, id)];
        Ok(self.slot.run(&SETTLE, &parts, &arguments).await? == [b"ours"])
    }

    fn owner(&self, owner: &Key) -> [u8; 16] {
        self.seal.digest("owner", &[owner.as_bytes()])
    }
}

/// Up to where a worker has looked for jobs that were let go of.
#[derive(Debug)]
pub(crate) struct Cursor(String);

impl Default for Cursor {
    fn default() -> Self {
        Self("0-0".to_owned())
    }
}

fn job_part(id: &str) -> String {
    format!("job:{id}")
}

/// Scripts name a key that they need not touch rather than none, so that the others keep their places.
fn once_or_job(once: &str, id: &str) -> String {
    if once.is_empty() { job_part(id) } else { format!("once:{once}") }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}
