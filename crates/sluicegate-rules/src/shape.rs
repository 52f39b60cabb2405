//! The entries of a text in YAML: a mistake in the shape of one does not hide the mistakes in others.
//!
//! The parser ends at the first mistake. Its entry is then replaced by spaces, so that all others keep their places, and the text is parsed
//! again. A mistake that only shows because an entry is gone, such as a missing word, is not reported, and its entry goes as well.

use std::ops::Range;

use crate::at::Position;

/// A text with entries that are left out.
pub(crate) struct Entries {
    text: String,
    /// The bytes that are left out.
    left_out: Vec<Range<usize>>,
}

impl Entries {
    pub(crate) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), left_out: Vec::new() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The beginning of the mapping that has the word at this place.
    pub(crate) fn mapping(&self, place: Position) -> Option<Position> {
        let number = place.line.checked_sub(1)?;
        let (start, line) = self.lines().nth(number)?;
        let column = byte_of(line, place.column);
        if let Some(open) = self.open_bracket(start + column) {
            let (number, (start, line)) =
                self.lines().enumerate().take_while(|(_, (start, _))| *start <= open).last()?;
            let column = line[..open - start].chars().count() + 1;
            return Some(Position { line: number + 1, column, length: 1 });
        }
        let before: Vec<_> = self.lines().take(number).map(|(_, line)| line).collect();
        let (mut first, is_first) =
            (place, |line: &str| content_at(line) == column && line.trim_start() != "");
        if content_at(line) == column && line[..column].contains('-') {
            return Some(place);
        }
        for (number, line) in before.into_iter().enumerate().rev() {
            let indent = line.len() - line.trim_start().len();
            if is_first(line) {
                first = Position { line: number + 1, ..place };
            }
            if indent < column && !line.trim().is_empty() {
                break;
            }
        }
        Some(first)
    }

    /// Leaves out the entry at this place; or, if a word of it is missing, all entries beside it. Returns whether nothing in it was left
    /// out before; `None` if there is no more to leave out.
    pub(crate) fn leave_out(&mut self, place: Position, is_missing: bool) -> Option<bool> {
        let range = self.entry(place, is_missing)?;
        let blank: String =
            self.text[range.clone()].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        if blank == self.text[range.clone()] {
            return None;
        }
        let is_new = !self.left_out.iter().any(|known| known.start < range.end && range.start < known.end);
        // A character of several bytes becomes one space, so what was left out behind it moves.
        let shift = range.len() - blank.len();
        for known in self.left_out.iter_mut().filter(|known| known.start >= range.end) {
            *known = known.start - shift..known.end - shift;
        }
        self.left_out.push(range.start..range.end - shift);
        self.text.replace_range(range, &blank);
        Some(is_new)
    }

    /// The bytes of the entry at this place.
    fn entry(&self, place: Position, is_missing: bool) -> Option<Range<usize>> {
        let (line_start, line) = self.lines().nth(place.line.checked_sub(1)?)?;
        let column = byte_of(line, place.column);
        let at = line_start + column;
        if let Some(open) = self.open_bracket(at) {
            return Some(self.item_in_brackets(open, at));
        }
        let dashes = content_at(line);
        let is_first = column == dashes;
        let key = if is_missing { column } else { dashes.min(column) };
        let is_list = line[key..].trim_end().ends_with(':');
        let start = if is_missing && is_first { line.len() - line.trim_start().len() } else { key };
        Some(line_start + start..self.end_of_block(at, key, is_missing, is_list))
    }

    /// The end of a block that begins on the line of this byte: its lines are indented more than its key, and a list may begin below the
    /// key.
    fn end_of_block(&self, at: usize, key: usize, is_mapping: bool, is_list: bool) -> usize {
        let mut lines = self.lines().skip_while(|(start, line)| start + line.len() < at);
        let Some((first, line)) = lines.next() else { return at };
        let (mut code, mut depth) = (code(&self.text[first..]).peekable(), 0_i64);
        let mut end = first + line.len();
        for (start, line) in lines {
            while let Some((_, c)) = code.next_if(|(place, _)| first + place < start) {
                depth += i64::from(matches!(c, '{' | '[')) - i64::from(matches!(c, '}' | ']'));
            }
            let body = line.trim_start();
            let indent = line.len() - body.len();
            let goes_on = is_mapping && !body.starts_with("- ") || is_list && body.starts_with('-');
            if !(body.is_empty() || depth > 0 || indent > key || indent == key && goes_on) {
                break;
            }
            end = start + line.len();
        }
        end
    }

    /// The item in brackets that this byte is in, with the comma behind it.
    fn item_in_brackets(&self, open: usize, at: usize) -> Range<usize> {
        let (mut start, mut depth) = (open + 1, 0_usize);
        for (place, c) in code(&self.text[open + 1..]) {
            let place = open + 1 + place;
            match c {
                '{' | '[' => depth += 1,
                '}' | ']' if depth == 0 => return start..place,
                '}' | ']' => depth -= 1,
                ',' if depth == 0 && place >= at => return start..place + 1,
                ',' if depth == 0 => start = place + 1,
                _ => {}
            }
        }
        start..self.text.len()
    }

    /// The innermost bracket that is open before this byte.
    fn open_bracket(&self, at: usize) -> Option<usize> {
        let mut open = Vec::new();
        for (place, c) in code(&self.text).take_while(|(place, _)| *place < at) {
            match c {
                '{' | '[' => open.push(place),
                '}' | ']' => _ = open.pop(),
                _ => {}
            }
        }
        open.pop()
    }

    /// The lines, each with its first byte.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.split_inclusive('\n').scan(0, |start, line| {
            let first = *start;
            *start += line.len();
            Some((first, line.trim_end_matches(['\n', '\r'])))
        })
    }
}

/// The byte of a line at this column.
fn byte_of(line: &str, column: usize) -> usize {
    line.char_indices().nth(column.saturating_sub(1)).map_or(line.len(), |(at, _)| at)
}

/// The byte of a line behind its indentation and the dashes of lists.
fn content_at(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '-']).len()
}

/// The characters of a text that are neither in quotes nor in a comment.
fn code(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut is_comment, mut before, mut is_value) = (None, false, ' ', false);
    text.char_indices().filter(move |(_, c)| {
        let was_quoted = quote.is_some();
        match (quote, *c) {
            (_, '\n') => is_comment = false,
            _ if is_comment => return false,
            (None, '#') if before.is_whitespace() => is_comment = true,
            // An apostrophe inside a value is only a character.
            (None, '"' | '\'') if !is_value => quote = Some(*c),
            (Some(open), c) if c == open && before != '\\' => quote = None,
            _ => {}
        }
        is_value = match c {
            ' ' => is_value && !matches!(before, ':' | '-' | ','),
            '\n' | ',' | '[' | ']' | '{' | '}' => false,
            _ => true,
        };
        before = *c;
        !was_quoted && quote.is_none() && !is_comment
    })
}
