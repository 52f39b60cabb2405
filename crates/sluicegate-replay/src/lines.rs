//! The lines of logs, one after the other: plain or gzip, of bounded length.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use crate::error::ReplayError;

/// A longer line is not kept, and so not understood.
pub(crate) const LONGEST: usize = 256 * 1024;

/// How many bytes make a batch, but for its last line.
const BATCH: usize = 128 * 1024;

/// Lines that stand one after the other.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The number of the first.
    first: u64,
    bytes: Vec<u8>,
    /// Where each ends, and whether it is all of the line.
    ends: Vec<(usize, bool)>,
}

impl Batch {
    /// Each line with its number; `Err` with the beginning of one that is too long.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u64, Result<&[u8], &[u8]>)> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        (self.first..).zip(begins.zip(&self.ends)).map(|(number, (begin, (end, is_whole)))| {
            let line = &self.bytes[begin..*end];
            (number, if *is_whole { Ok(line) } else { Err(line) })
        })
    }
}

/// Reads logs one after the other, each as gzip if it begins as that does.
pub(crate) struct Batches {
    /// Each with its name; the next one is the last.
    logs: Vec<(String, Box<dyn Read + Send>)>,
    current: Option<Current>,
    lines: u64,
}

/// The log that is read.
struct Current {
    name: String,
    log: Box<dyn BufRead + Send>,
    /// How many of its lines were read.
    lines: u64,
}

impl Batches {
    pub(crate) fn new(mut logs: Vec<(String, Box<dyn Read + Send>)>) -> Self {
        logs.reverse();
        Self { logs, current: None, lines: 0 }
    }

    /// The next batch; nothing at the end of the last log.
    pub(crate) fn next(&mut self) -> Result<Option<Batch>, ReplayError> {
        let mut batch = Batch { first: self.lines + 1, ..Batch::default() };
        while batch.bytes.len() < BATCH {
            if self.current.is_none() {
                let Some((name, log)) = self.logs.pop() else { break };
                let log = open(log).map_err(|error| ReplayError::reading(&name, 0, error))?;
                self.current = Some(Current { name, log, lines: 0 });
            }
            let Some(Current { name, log, lines }) = &mut self.current else { break };
            match line(log, &mut batch.bytes).map_err(|error| ReplayError::reading(name, *lines, error))? {
                None => self.current = None,
                Some(is_whole) => {
                    *lines += 1;
                    batch.ends.push((batch.bytes.len(), is_whole));
                    self.lines += 1;
                }
            }
        }
        Ok((!batch.ends.is_empty()).then_some(batch))
    }
}

fn open(log: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    const SIZE: usize = 256 * 1024;
    let mut plain = BufReader::with_capacity(SIZE, log);
    let is_gzip = plain.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(match is_gzip {
        true => Box::new(BufReader::with_capacity(SIZE, MultiGzDecoder::new(plain))),
        false => Box::new(plain),
    })
}

/// Reads the next line behind what is there, without its end, and says whether it is all of it; nothing at the end.
fn line(log: &mut (dyn BufRead + Send), bytes: &mut Vec<u8>) -> io::Result<Option<bool>> {
    let begin = bytes.len();
    let most = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
    let read = log.take(most).read_until(b'\n', bytes)?;
    if read == 0 {
        return Ok(None);
    }
    let has_end = bytes.last() == Some(&b'\n');
    if read > LONGEST && !has_end {
        log.skip_until(b'\n')?;
        return Ok(Some(false));
    }
    if has_end {
        bytes.pop();
        if bytes.len() > begin && bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(Some(true))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use flate2::write::GzEncoder;

    use super::*;

    fn all(log: Vec<u8>) -> Vec<(u64, usize, bool)> {
        let mut batches = Batches::new(vec![("log".to_owned(), Box::new(Cursor::new(log)))]);
        let mut all = Vec::new();
        while let Some(batch) = batches.next().unwrap() {
            let lines = batch.lines().map(|(number, line)| match line {
                Ok(line) => (number, line.len(), true),
                Err(begin) => (number, begin.len(), false),
            });
            all.extend(lines);
        }
        all
    }

    #[test]
    fn the_last_line_needs_no_end_and_an_empty_log_has_none() {
        assert_eq!(all(Vec::new()), []);
        assert_eq!(all(b"ab\r\n\ncde".to_vec()), [(1, 2, true), (2, 0, true), (3, 3, true)]);
    }

    #[test]
    fn gzip_is_read_as_it_is_also_in_several_members() {
        let pack = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let two = [pack(b"one\ntw"), pack(b"o\n")].concat();
        assert_eq!(all(two), [(1, 3, true), (2, 3, true)]);
    }

    #[test]
    fn a_long_line_is_left_out_and_the_next_one_read() {
        let long = [vec![b'x'; 1 << 20], b"\nnext\n".to_vec()].concat();
        assert_eq!(all(long), [(1, LONGEST + 1, false), (2, 4, true)]);
        let longest = [vec![b'x'; LONGEST], b"\n".to_vec()].concat();
        assert_eq!(all(longest), [(1, LONGEST, true)]);
    }

    #[test]
    fn logs_are_read_one_after_the_other_and_lines_numbered_through() {
        let logs = ["a\nb", "", "c\n"];
        let logs = logs.map(|log| ("log".to_owned(), Box::new(Cursor::new(log)) as Box<dyn Read + Send>));
        let mut batches = Batches::new(logs.into());
        let batch = batches.next().unwrap().unwrap();
        let lines: Vec<_> = batch.lines().collect();
        assert_eq!(lines, [(1, Ok(&b"a"[..])), (2, Ok(b"b")), (3, Ok(b"c"))]);
        assert!(batches.next().unwrap().is_none());
    }
}
