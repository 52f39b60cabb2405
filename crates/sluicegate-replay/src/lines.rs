//! The lines of logs, one after the other: plain or gzip, of bounded length.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// A longer line is not kept, and so not understood.
pub(crate) const LONGEST: usize = 256 * 1024;

/// Reads line by line.
pub(crate) struct Lines {
    reader: Box<dyn BufRead + Send>,
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// It is in the buffer, without its end.
    Whole,
    /// Its beginning is in the buffer.
    TooLong,
}

impl Lines {
    /// Reads a log, as gzip if it begins as that does.
    pub(crate) fn new(log: impl Read + Send + 'static) -> io::Result<Self> {
        const SIZE: usize = 256 * 1024;
        let mut plain = BufReader::with_capacity(SIZE, log);
        let is_gzip = plain.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn BufRead + Send> = match is_gzip {
            true => Box::new(BufReader::with_capacity(SIZE, MultiGzDecoder::new(plain))),
            false => Box::new(plain),
        };
        Ok(Self { reader })
    }

    /// Reads the next line into an empty buffer; nothing at the end.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Line>> {
        line.clear();
        let most = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
        if self.reader.by_ref().take(most).read_until(b'\n', line)? == 0 {
            return Ok(None);
        }
        if line.len() > LONGEST && !line.ends_with(b"\n") {
            self.reader.skip_until(b'\n')?;
            return Ok(Some(Line::TooLong));
        }
        let end =
            line.strip_suffix(b"\n").map_or(&**line, |line| line.strip_suffix(b"\r").unwrap_or(line)).len();
        line.truncate(end);
        Ok(Some(Line::Whole))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use flate2::write::GzEncoder;

    use super::*;

    fn all(log: Vec<u8>) -> Vec<(usize, Line)> {
        let (mut lines, mut line) = (Lines::new(Cursor::new(log)).unwrap(), Vec::new());
        std::iter::from_fn(|| lines.next(&mut line).unwrap().map(|kind| (line.len(), kind))).collect()
    }

    #[test]
    fn the_last_line_needs_no_end_and_an_empty_log_has_none() {
        assert_eq!(all(Vec::new()), []);
        assert_eq!(all(b"ab\r\n\ncde".to_vec()), [(2, Line::Whole), (0, Line::Whole), (3, Line::Whole)]);
    }

    #[test]
    fn gzip_is_read_as_it_is_also_in_several_members() {
        let pack = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let two = [pack(b"one\ntw"), pack(b"o\n")].concat();
        assert_eq!(all(two), [(3, Line::Whole), (3, Line::Whole)]);
    }

    #[test]
    fn a_long_line_is_left_out_and_the_next_one_read() {
        let long = [vec![b'x'; 1 << 20], b"\nnext\n".to_vec()].concat();
        assert_eq!(all(long), [(LONGEST + 1, Line::TooLong), (4, Line::Whole)]);
        let longest = [vec![b'x'; LONGEST], b"\n".to_vec()].concat();
        assert_eq!(all(longest), [(LONGEST, Line::Whole)]);
    }
}
