//! One thread reads lines, several take them apart, and the caller's thread decides them in the order of the log.
//!
//! ```text
//! reads (gzip, lines) --batch--> takes apart (1 to n threads) --asks--> decides and counts (the caller's thread)
//! ```
//!
//! Batches go to the readers in turn, and are taken from them in the same order: so the requests stay in the order of the log without
//! sorting, and figures do not depend on the number of threads. Each channel holds [`AHEAD`] batches, so that memory is bounded
//! and a slow thread slows the threads before it.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::counts::ReadCounts;
use crate::error::ReplayError;
use crate::read::lines::{Batches, LineBatch};
use crate::read::reader::{LineParser, ParsedBatch};

/// The number of batches that each thread may be ahead.
const AHEAD: usize = 2;

/// Takes all batches apart and hands on what each asks, in their order. `when` gives the time of a line.
///
/// `each` is called on this thread. There is at least one reader, and each has a thread of its own beside the one that reads the logs.
///
/// # Errors
/// When a log cannot be read: everything before the fault was handed on by then, and the caller drops it.
///
/// # Panics
/// When a reader or the reading of a log panics.
pub(crate) fn take_apart(
    mut batches: Batches,
    when: impl Fn(&[u8]) -> Option<u64> + Send,
    readers: Vec<LineParser>,
    mut each: impl FnMut(ParsedBatch),
) -> Result<ReadCounts, ReplayError> {
    thread::scope(|scope| {
        let (mut to_readers, mut from_readers, mut running) = (Vec::new(), Vec::new(), Vec::new());
        for reader in readers {
            let (batch, batches) = sync_channel(AHEAD);
            let (asked, all_asked) = sync_channel(AHEAD);
            to_readers.push(batch);
            from_readers.push(all_asked);
            running.push(scope.spawn(move || read(reader, &batches, &asked)));
        }
        let reading = scope.spawn(move || {
            for (number, reader) in (0_u64..).zip(to_readers.iter().cycle()) {
                let Some(next) = batches.next(&when)? else { break };
                if reader.send((number, next)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        // Batches go round, so the first reader without more has come to the end.
        for reader in from_readers.iter().cycle() {
            match reader.recv() {
                Ok(taken) => each(taken),
                Err(_) => break,
            }
        }
        drop(from_readers);
        let counts = running.into_iter().map(ended).reduce(ReadCounts::and).unwrap_or_default();
        ended(reading).map(|()| counts)
    })
}

/// The result of a thread. If it panics, so does the replay: its figures would lack the part of that thread.
fn ended<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The work of one reader, until there are no more batches or nobody wants its results.
fn read(
    mut reader: LineParser,
    batches: &Receiver<(u64, LineBatch)>,
    asked: &SyncSender<ParsedBatch>,
) -> ReadCounts {
    while let Ok((number, batch)) = batches.recv() {
        if asked.send(reader.batch(number, &batch)).is_err() {
            break;
        }
    }
    reader.counts
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use sluicegate_core::{MemoryStore, Policy};
    use sluicegate_tower::Limit;
    use sluicegate_tower::key::HeaderKey;
    use sluicegate_tower::limits::Limits;

    use super::*;
    use crate::read::format::Format;
    use crate::read::reader::ReadRange;
    use crate::read::rows::Rows;

    /// A panicking reader once left figures that came only from the other threads.
    #[test]
    fn a_reader_that_panics_ends_the_replay() {
        let limiter = Policy::gcra("p", "1/s").on(MemoryStore::new()).unwrap();
        let limit = Limit::new(limiter).key(HeaderKey::new("x-api-key").unwrap());
        let limits = Limits::new(limit.only_if(|_| panic!("a question that has no answer")));
        let line = "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n";
        let batches = Batches::new(vec![("log".to_owned(), Box::new(Cursor::new(line)))]).unwrap();
        let format: Format = "common".parse().unwrap();
        let reader =
            || LineParser::new(format.clone(), Rows::of(limits.clone(), &[], false).0, ReadRange::default());
        let readers = vec![reader(), reader()];
        let run =
            AssertUnwindSafe(|| take_apart(batches, |line| format.when(line), readers, |_| {}).map(|_| ()));
        assert!(catch_unwind(run).is_err());
    }
}
