//! Lines are read by one thread, taken apart by several, and decided by the one that asked: in the order of the log.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::error::ReplayError;
use crate::lines::{Batch, Batches};
use crate::order::Timed;
use crate::read::{Asked, Counts, Reader};

/// How many batches each thread may be ahead.
const AHEAD: usize = 2;

/// Takes all batches apart, the first of which was read already, and hands on what each asks, in their order.
pub(crate) fn take_apart(
    first: Batch,
    mut batches: Batches,
    readers: Vec<Reader>,
    mut each: impl FnMut(Vec<Timed<Asked>>),
) -> Result<Counts, ReplayError> {
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
            let mut batch = Some(first);
            for reader in to_readers.iter().cycle() {
                let Some(next) = batch.take() else { break };
                if reader.send(next).is_err() {
                    break;
                }
                batch = batches.next()?;
            }
            Ok(())
        });
        // Batches go round, so the first reader that has nothing more has come to the end.
        for reader in from_readers.iter().cycle() {
            match reader.recv() {
                Ok(asked) => each(asked),
                Err(_) => break,
            }
        }
        drop(from_readers);
        let counts = running.into_iter().filter_map(|reader| reader.join().ok());
        let counts = counts.reduce(Counts::and).unwrap_or_default();
        match reading.join() {
            Ok(read) => read.map(|()| counts),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read(mut reader: Reader, batches: &Receiver<Batch>, asked: &SyncSender<Vec<Timed<Asked>>>) -> Counts {
    while let Ok(batch) = batches.recv() {
        if asked.send(reader.batch(&batch)).is_err() {
            break;
        }
    }
    reader.counts
}
