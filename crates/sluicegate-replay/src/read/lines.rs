//! Reads the lines of logs in batches: plain or gzip, of bounded length, and with several logs the earlier ones first.
//!
//! # Bounds
//! A batch has about 128 KiB, or one line that is longer, of which at most twice [`LONGEST`] bytes are kept: memory stays bounded whatever
//! a file holds. Gzip is unpacked as it is read; several members one after the other, as rotated logs are put together, are one log.
//!
//! # Several logs
//! Two logs that overlap are merged batch by batch and not line by line, so that a thread hands on whole batches. Lines that this puts out
//! of order are at most two batches apart, and are put in order when requests are.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{io, thread};

use bytes::Bytes;
use flate2::bufread::GzDecoder;

use crate::outcome::ReadCounts;
use crate::read::reader::{LineParser, ParsedBatch};
use crate::replay::ReplayError;

/// A longer line is not kept, so it is not understood.
pub(crate) const LONGEST: usize = 256 * 1024;

/// The number of bytes that are read at once.
const BATCH: usize = 128 * 1024;

/// The number of lines that are tried to find the time of a batch, because the first one may be wrong.
const LOOKS: usize = 32;

/// Lines of a log that follow one another.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineBatch {
    /// The place of the log among all.
    pub(crate) log: usize,
    /// The number of lines of the log that come before it.
    before: u64,
    pub(crate) bytes: Bytes,
}

impl LineBatch {
    /// Each line with its number in its log: its place, without its end.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u64, Range<usize>)> {
        let (bytes, mut begin) = (&self.bytes[..], 0);
        let lines = std::iter::from_fn(move || {
            let rest = bytes.get(begin..).filter(|rest| !rest.is_empty())?;
            let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = rest[..length].strip_suffix(b"\r").map_or(length, <[u8]>::len);
            let place = begin..begin + line;
            begin += length + 1;
            Some(place)
        });
        (self.before + 1..).zip(lines)
    }
}

/// Reads logs, each as gzip if it begins like gzip.
///
/// Servers that share their traffic write a log each, and a server that rotates its log gives the older ones names that sort later. So the
/// log with the earliest next lines goes on.
pub(crate) struct Batches {
    logs: Vec<OpenLog>,
    /// The next batch of each log and its time, if it is known; logs that are over have none.
    next: Vec<(Option<u64>, LineBatch)>,
}

/// A log, as far as it was read.
struct OpenLog {
    place: usize,
    name: String,
    reader: Box<dyn BufRead + Send>,
    lines: u64,
    /// The beginning of the next line.
    rest: Vec<u8>,
}

impl Batches {
    /// Opens the logs and reads until each has something.
    pub(crate) fn new(logs: Vec<(String, Box<dyn Read + Send>)>) -> Result<Self, ReplayError> {
        let logs = logs.into_iter().enumerate().map(|(place, (name, log))| OpenLog::open(place, name, log));
        let mut batches = Self { logs: logs.collect::<Result<_, _>>()?, next: Vec::new() };
        for log in &mut batches.logs {
            let first = log.batch()?.map(|batch| (None, batch));
            batches.next.extend(first);
        }
        Ok(batches)
    }

    /// The beginning of each log that has one.
    pub(crate) fn first(&self) -> impl Iterator<Item = &LineBatch> {
        self.next.iter().map(|(_, batch)| batch)
    }

    /// The next batch, where `when` gives the time of a line of a log; `None` at the end of all logs.
    ///
    /// The time of a batch is the earliest of its first 32 lines. A batch without times counts as the earliest of all: its lines are not
    /// understood, and it does not matter when that is found. With one log no line is looked at.
    ///
    /// # Errors
    /// When a log cannot be read on.
    pub(crate) fn next(
        &mut self,
        when: impl Fn(usize, &[u8]) -> Option<u64>,
    ) -> Result<Option<LineBatch>, ReplayError> {
        if self.next.len() > 1 {
            for (time, batch) in self.next.iter_mut().filter(|(time, _)| time.is_none()) {
                let times = batch.lines().filter_map(|(_, line)| when(batch.log, &batch.bytes[line]));
                *time = Some(times.take(LOOKS).min().unwrap_or(0));
            }
        }
        let earliest = self.next.iter().enumerate().min_by_key(|(_, (time, _))| *time);
        let Some((place, _)) = earliest else { return Ok(None) };
        let log = self.next[place].1.log;
        Ok(Some(match self.logs[log].batch()? {
            Some(next) => std::mem::replace(&mut self.next[place], (None, next)).1,
            None => self.next.remove(place).1,
        }))
    }
}

impl OpenLog {
    /// A log of which nothing was handed on yet.
    ///
    /// # Errors
    /// When its first bytes cannot be read.
    fn open(place: usize, name: String, log: Box<dyn Read + Send>) -> Result<Self, ReplayError> {
        // A large read bypasses the buffer, so it only serves the first bytes.
        let mut plain = BufReader::with_capacity(BATCH / 2, log);
        let begin = plain.fill_buf().map_err(|error| ReplayError::reading(&name, 0, error))?;
        let named = PACKED.iter().find(|(magic, _)| begin.starts_with(magic));
        if let Some((_, kind)) = named {
            return Err(ReplayError::new(format!(
                "{name}: it is {kind}, which is not read: pipe its text in, with - for the log"
            )));
        }
        if begin.starts_with(BYTE_ORDER_MARK) {
            plain.consume(BYTE_ORDER_MARK.len());
        } else if begin.starts_with(&[0x1f, 0x8b]) {
            let reader =
                Box::new(BufReader::with_capacity(BATCH / 2, GzipMembers(Some(GzDecoder::new(plain)))));
            return Ok(Self { place, name, reader, lines: 0, rest: Vec::new() });
        }
        Ok(Self { place, name, reader: Box::new(plain), lines: 0, rest: Vec::new() })
    }

    /// The next lines; `None` at the end.
    fn batch(&mut self) -> Result<Option<LineBatch>, ReplayError> {
        let mut bytes = Vec::with_capacity(self.rest.len() + BATCH);
        bytes.append(&mut self.rest);
        let is_over = loop {
            let begin = bytes.len();
            if self.read(&mut bytes)? == 0 {
                break true;
            }
            if let Some(end) = memchr::memrchr(b'\n', &bytes[begin..]) {
                self.rest = bytes.split_off(begin + end + 1);
                break false;
            }
            if bytes.len() > LONGEST {
                self.reader.skip_until(b'\n').map_err(|error| self.error(error))?;
                break false;
            }
        };
        if is_over && bytes.is_empty() {
            return Ok(None);
        }
        let before = self.lines;
        let ends = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        self.lines += ends + u64::from(bytes.last() != Some(&b'\n'));
        Ok(Some(LineBatch { log: self.place, before, bytes: bytes.into() }))
    }

    /// Reads more of the log behind these bytes, and returns the number of bytes: 0 when the log is over.
    fn read(&mut self, bytes: &mut Vec<u8>) -> Result<usize, ReplayError> {
        let begin = bytes.len();
        (&mut self.reader).take(BATCH as u64).read_to_end(bytes).map_err(|error| {
            self.lines += memchr::memchr_iter(b'\n', &bytes[begin..]).count() as u64;
            self.error(error)
        })
    }

    /// The error of a read, with the log and the number of its lines that were read before.
    fn error(&self, error: io::Error) -> ReplayError {
        ReplayError::reading(&self.name, self.lines, error)
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The beginnings of files that are packed or encoded in a way that is not read.
const PACKED: [(&[u8], &str); 7] = [
    (b"BZh", "packed by bzip2 (bzcat)"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd (zstdcat)"),
    (b"\xfd7zXZ\0", "packed by xz (xzcat)"),
    (b"\x04\x22\x4d\x18", "packed by lz4 (lz4cat)"),
    (b"PK\x03\x04", "a zip archive (unzip -p)"),
    (b"\xff\xfe", "UTF-16 (iconv -f UTF-16)"),
    (b"\xfe\xff", "UTF-16 (iconv -f UTF-16)"),
];

/// The members of a gzip file, one after the other. Zeros behind a member pad it, as tapes and some tools do.
struct GzipMembers(Option<GzDecoder<BufReader<Box<dyn Read + Send>>>>);

impl Read for GzipMembers {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(bytes)?;
            if read > 0 || bytes.is_empty() {
                return Ok(read);
            }
            let Some(mut packed) = self.0.take().map(GzDecoder::into_inner) else { break };
            loop {
                let rest = packed.fill_buf()?;
                let zeros = rest.iter().take_while(|byte| **byte == 0).count();
                match rest.len() {
                    0 => return Ok(0),
                    length if zeros == length => packed.consume(zeros),
                    _ => break packed.consume(zeros),
                }
            }
            self.0 = Some(GzDecoder::new(packed));
        }
        Ok(0)
    }
}

// One thread reads lines, several take them apart, and the caller's thread decides them in the order of the log.
//
// ```text
// reads (gzip, lines) --batch--> takes apart (1 to n threads) --asks--> decides and counts (the caller's thread)
// ```
//
// Batches go to the readers in turn, and are taken from them in the same order: so the requests stay in the order of the log without
// sorting, and figures do not depend on the number of threads. Each channel holds [`AHEAD`] batches, so that memory is bounded
// and a slow thread slows the threads before it.

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
    when: impl Fn(usize, &[u8]) -> Option<u64> + Send,
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
    use std::io::{Cursor, Write as _};

    use flate2::write::GzEncoder;

    use super::*;

    type Lines = Vec<(usize, u64, String)>;

    /// All lines with their log and number, where each line says when it was.
    fn of(logs: impl IntoIterator<Item = Vec<u8>>) -> Lines {
        let logs = logs.into_iter().map(|log| ("log".to_owned(), Box::new(Cursor::new(log)) as _));
        let mut batches = Batches::new(logs.collect()).unwrap();
        let mut all = Vec::new();
        let when = |_, line: &[u8]| std::str::from_utf8(line).ok()?.parse().ok();
        while let Some(batch) = batches.next(when).unwrap() {
            let text = |line: Range<usize>| String::from_utf8(batch.bytes[line].to_vec()).unwrap();
            all.extend(batch.lines().map(|(number, line)| (batch.log, number, text(line))));
        }
        all
    }

    fn all(log: Vec<u8>) -> Vec<(u64, usize)> {
        of([log]).into_iter().map(|(_, number, line)| (number, line.len())).collect()
    }

    #[test]
    fn the_last_line_needs_no_end_and_an_empty_log_has_none() {
        assert_eq!(all(Vec::new()), []);
        assert_eq!(all(b"ab\r\n\ncde".to_vec()), [(1, 2), (2, 0), (3, 3)]);
        let long: String = (0..100_000).map(|line| format!("{line}\n")).collect();
        let expected = (1..=100_000).map(|line| (line, (line - 1).to_string().len())).collect::<Vec<_>>();
        assert_eq!(all(long.into_bytes()), expected);
    }

    #[test]
    fn gzip_is_read_as_it_is_also_in_several_members() {
        let pack = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let two = [pack(b"one\ntw"), pack(b"o\n")].concat();
        assert_eq!(all(two), [(1, 3), (2, 3)]);
    }

    #[test]
    fn a_long_line_is_cut_off_and_the_next_one_read() {
        let long = [vec![b'x'; 1 << 20], b"\nnext\n".to_vec()].concat();
        let lines = all(long);
        assert!(lines[0].1 > LONGEST && lines[0].1 < 2 * LONGEST);
        assert_eq!(lines[1..], [(2, 4)]);
        let longest = [vec![b'x'; LONGEST], b"\n".to_vec(), vec![b'y'; LONGEST + 1], b"\n".to_vec()].concat();
        assert_eq!(all(longest), [(1, LONGEST), (2, LONGEST + 1)]);
        assert_eq!(all(vec![b'x'; 1 << 20]).len(), 1, "also without an end");
    }

    #[test]
    fn a_wrong_time_at_the_head_of_a_batch_does_not_make_its_log_late() {
        let log = |head: &str, lines: std::ops::Range<u64>| -> Vec<u8> {
            (head.to_owned() + &lines.map(|line| format!("{line:06}\n")).collect::<String>()).into_bytes()
        };
        let lines = of([log("", 1_000..2_000), log("4070908800000000\n", 0..1_000)]);
        assert_eq!(lines[0], (1, 1, "4070908800000000".to_owned()));
        assert!(lines[1..].iter().map(|(.., line)| line).is_sorted());
    }

    #[test]
    fn of_several_logs_the_earliest_lines_come_first_and_each_counts_its_own() {
        let log = |lines: std::ops::Range<u64>| -> Vec<u8> {
            lines.map(|line| format!("{line:06}\n")).collect::<String>().into_bytes()
        };
        // The newest log comes first, as a shell lists them, and one is empty.
        let lines = of([log(80_000..90_000), Vec::new(), log(0..50_000), log(50_000..80_000)]);
        assert!(lines.iter().map(|(.., line)| line).is_sorted() && lines.len() == 90_000);
        assert_eq!((lines[0].0, lines[0].1), (2, 1));
        assert_eq!(lines[89_999], (0, 10_000, "089999".to_owned()));
        // Two servers that share the traffic: neither is more than a batch ahead.
        let shared = of([log(0..100_000), log(0..100_000)]);
        let mut ahead = [0_u64; 2];
        for (log, number, _) in shared {
            ahead[log] = number;
            assert!(ahead[0].abs_diff(ahead[1]) <= 2 * BATCH as u64 / 7);
        }
    }
}

#[cfg(test)]
mod pool_tests {
    use std::io::Cursor;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use sluicegate_core::{MemoryStore, Policy};
    use sluicegate_tower::Limit;
    use sluicegate_tower::key::HeaderKey;
    use sluicegate_tower::limits::Limits;

    use super::*;
    use crate::read::Rows;
    use crate::read::format::Format;
    use crate::read::reader::{LogFormat, ReadRange};

    /// A panicking reader once left figures that came only from the other threads.
    #[test]
    fn a_reader_that_panics_ends_the_replay() {
        let limiter = Policy::gcra("p", "1/s").on(MemoryStore::new()).unwrap();
        let limit = Limit::new(limiter).key(HeaderKey::new("x-api-key").unwrap());
        let limits = Limits::new(limit.only_if(|_| panic!("a question that has no answer")));
        let line = "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n";
        let batches = Batches::new(vec![("log".to_owned(), Box::new(Cursor::new(line)))]).unwrap();
        let format: Format = "common".parse().unwrap();
        let formats = [Some(LogFormat { wrapping: Default::default(), format })];
        let reader = || {
            LineParser::new(
                formats.clone().into(),
                Rows::of(limits.clone(), &[], false).0,
                ReadRange::default(),
            )
        };
        let readers = vec![reader(), reader()];
        let run = AssertUnwindSafe(|| take_apart(batches, |_, _| None, readers, |_| {}).map(|_| ()));
        assert!(catch_unwind(run).is_err());
    }
}
