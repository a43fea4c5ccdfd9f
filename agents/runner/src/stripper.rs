//! Turns terminal output into log text: no escape sequences, overwritten text gone.
//!
//! Works on bytes and keeps characters whole: a piece never ends within a UTF-8 sequence, unless the job wrote a broken
//! one. Lines end in a bare line feed. A progress bar becomes its last state; if a part of a line had to be given out
//! before the job overwrote it, the new state begins with a carriage return, so that a terminal overwrites it too.

use std::time::{Duration, Instant};

/// Longest piece, in bytes; a bit more when a character would be cut.
const PIECE: usize = 32 * 1024;
/// An unfinished line is given out when nothing was written for this long.
const STILL: Duration = Duration::from_millis(500);
/// The same for finished lines: they do not change any more, and people watch them appear.
const LINES_STILL: Duration = Duration::from_millis(20);
/// An unfinished line is given out this long after its first byte at the latest.
const LATEST: Duration = Duration::from_secs(3);
/// The same for finished lines. Each time is an entry in memory, so it is not shorter.
const LINES_LATEST: Duration = Duration::from_millis(100);

/// Where in an escape sequence the input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    /// After ESC.
    Started,
    /// ESC and an intermediate byte: one more byte ends it.
    Intermediate,
    /// In a control sequence, `ESC [`.
    Control,
    /// In a string (title, hyperlink, image): ends with BEL or `ESC \`.
    Text,
    /// In a string, after ESC.
    Ending,
}

#[derive(Debug)]
pub(crate) struct Stripper {
    escape: Escape,
    /// Parameters of the control sequence.
    parameters: Vec<u8>,
    /// Finished lines.
    lines: Vec<u8>,
    /// The line in work.
    line: Vec<u8>,
    /// Offset in `line` at which the next character goes; `line.len()` mostly.
    cursor: usize,
    /// Bytes of a character that is not complete yet.
    partial: Vec<u8>,
    /// A part of the line in work has been given out already.
    is_continued: bool,
    /// The line in work begins at the first column again, over the part that has been given out.
    is_returned: bool,
    first: Option<Instant>,
    last: Instant,
}

impl Stripper {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            escape: Escape::None,
            parameters: Vec::new(),
            lines: Vec::new(),
            line: Vec::new(),
            cursor: 0,
            partial: Vec::new(),
            is_continued: false,
            is_returned: false,
            first: None,
            last: now,
        }
    }

    /// Takes output; gives pieces to `out` as they are full.
    pub(crate) fn write(&mut self, bytes: &[u8], now: Instant, out: &mut impl FnMut(&[u8])) {
        self.last = now;
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match self.take_plain(rest) {
                0 => {
                    self.byte(byte);
                    after
                }
                taken => rest.get(taken..).unwrap_or_default(),
            };
            self.give_if_full(now, out);
        }
        if self.first.is_none() && self.has_text() {
            self.first = Some(now);
        }
    }

    /// Most output is plain text at the end of a line: takes such text in one go, with the line's end if that follows.
    /// Gives how many bytes it took.
    fn take_plain(&mut self, bytes: &[u8]) -> usize {
        let is_at_end = self.cursor == self.line.len();
        if self.escape != Escape::None || !self.partial.is_empty() || !is_at_end {
            return 0;
        }
        // Less than a piece is held here, or it would have been given out.
        let room = PIECE.saturating_sub(self.lines.len() + self.line.len());
        let len = plain_len(bytes.get(..room).unwrap_or(bytes));
        let (text, rest) = bytes.split_at(len);
        let end = match rest {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => 0,
        };
        if end > 0 && self.line.is_empty() && !self.is_returned {
            self.lines.extend_from_slice(text);
            self.lines.push(b'\n');
            self.is_continued = false;
        } else {
            self.line.extend_from_slice(text);
            self.cursor = self.line.len();
            if end > 0 {
                self.end_line();
            }
        }
        len + end
    }

    /// When [`Stripper::flush_due`] has something to do, if nothing is written before.
    pub(crate) fn next_flush(&self) -> Option<Instant> {
        let first = self.first?;
        let is_lines = !self.lines.is_empty();
        let (still, latest) = if is_lines {
            (LINES_STILL, LINES_LATEST)
        } else {
            (STILL, LATEST)
        };
        Some((self.last + still).min(first + latest))
    }

    /// Gives out what has waited long enough.
    pub(crate) fn flush_due(&mut self, now: Instant, out: &mut impl FnMut(&[u8])) {
        if self.next_flush().is_none_or(|due| due > now) {
            return;
        }
        self.give_lines(out);
        let started = self.first.unwrap_or(now);
        let is_due = now >= self.last + STILL || now >= started + LATEST;
        if is_due {
            self.give_line(out);
        }
        // What stays has waited since then, at most.
        self.first = (!self.line.is_empty() || !self.partial.is_empty()).then_some(started);
        if is_due && self.line.is_empty() && self.partial.is_empty() {
            self.first = None;
        }
    }

    /// Gives out everything: no more will come.
    pub(crate) fn finish(&mut self, out: &mut impl FnMut(&[u8])) {
        let partial = std::mem::take(&mut self.partial);
        self.put(&partial);
        let mut all = std::mem::take(&mut self.lines);
        self.give_line(&mut |line: &[u8]| all.extend_from_slice(line));
        if !all.is_empty() {
            out(&all);
        }
        self.first = None;
    }

    fn has_text(&self) -> bool {
        !(self.lines.is_empty() && self.line.is_empty() && self.partial.is_empty())
    }

    fn give_if_full(&mut self, now: Instant, out: &mut impl FnMut(&[u8])) {
        if self.lines.len() + self.line.len() < PIECE {
            return;
        }
        if self.lines.is_empty() {
            self.give_line(out);
        } else {
            self.give_lines(out);
        }
        self.first = self.has_text().then_some(now);
    }

    fn give_lines(&mut self, out: &mut impl FnMut(&[u8])) {
        if !self.lines.is_empty() {
            out(&self.lines);
            self.lines.clear();
        }
    }

    fn give_line(&mut self, out: &mut impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            self.mark_return();
            out(&self.line);
            self.line.clear();
            self.is_continued = true;
        }
    }

    /// The line in work goes out: in front of it the return that makes a terminal overwrite what it has of it.
    fn mark_return(&mut self) {
        self.cursor = 0;
        if std::mem::take(&mut self.is_returned) && !self.line.is_empty() {
            self.line.insert(0, b'\r');
        }
    }

    fn byte(&mut self, byte: u8) {
        match self.escape {
            Escape::None => self.plain(byte),
            Escape::Started => {
                self.escape = match byte {
                    b'[' => {
                        self.parameters.clear();
                        Escape::Control
                    }
                    b']' | b'P' | b'X' | b'^' | b'_' => Escape::Text,
                    0x20..=0x2f => Escape::Intermediate,
                    0x1b => Escape::Started,
                    _ => Escape::None,
                }
            }
            Escape::Intermediate => {
                if !(0x20..=0x2f).contains(&byte) {
                    self.escape = Escape::None;
                }
            }
            Escape::Control => match byte {
                0x20..=0x3f => self.parameters.push(byte),
                0x40..=0x7e => {
                    self.escape = Escape::None;
                    self.control(byte);
                }
                0x1b => self.escape = Escape::Started,
                // Control characters within a sequence act as if before it.
                b'\n' | b'\r' => {
                    self.escape = Escape::None;
                    self.plain(byte);
                }
                _ => {}
            },
            Escape::Text => match byte {
                0x07 | 0x18 | 0x1a => self.escape = Escape::None,
                0x1b => self.escape = Escape::Ending,
                _ => {}
            },
            Escape::Ending => {
                self.escape = Escape::None;
                if byte != b'\\' {
                    self.escape = Escape::Started;
                    self.byte(byte);
                }
            }
        }
    }

    fn plain(&mut self, byte: u8) {
        if !self.partial.is_empty() {
            self.partial.push(byte);
            match std::str::from_utf8(&self.partial) {
                Err(e) if e.error_len().is_none() => return,
                Err(_) => {
                    // Broken: what came before goes as it is, this byte may begin something new.
                    self.partial.pop();
                    let broken = std::mem::take(&mut self.partial);
                    self.put(&broken);
                }
                Ok(_) => {
                    let character = std::mem::take(&mut self.partial);
                    self.put(&character);
                    return;
                }
            }
        }
        match byte {
            0x1b => self.escape = Escape::Started,
            b'\n' => self.end_line(),
            b'\r' => self.move_to(0),
            0x08 => self.move_to(self.column().saturating_sub(1)),
            0x00 | 0x07 | 0x0e | 0x0f | 0x7f => {}
            0xc2..=0xf4 => self.partial.push(byte),
            _ => self.put(&[byte]),
        }
    }

    fn end_line(&mut self) {
        self.mark_return();
        self.lines.append(&mut self.line);
        self.lines.push(b'\n');
        self.is_continued = false;
    }

    /// Goes back to the first column.
    fn return_to_start(&mut self) {
        self.cursor = 0;
        if self.is_continued && !self.is_returned {
            // Only a part of the line is here: it goes as it is, and the line begins anew over all of it.
            self.lines.append(&mut self.line);
            self.is_returned = true;
        }
    }

    /// Writes one character at the cursor.
    fn put(&mut self, character: &[u8]) {
        if character.is_empty() {
            return;
        }
        let end = self.next_boundary(self.cursor);
        self.line
            .splice(self.cursor..end, character.iter().copied());
        self.cursor += character.len();
    }

    /// Acts on a control sequence that moves within the line or erases parts of it.
    fn control(&mut self, last: u8) {
        let digits: &[u8] = self
            .parameters
            .split(|b| *b == b';')
            .next()
            .unwrap_or_default();
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| text.parse::<usize>().ok());
        let column = self.column();
        match last {
            b'K' => match number.unwrap_or(0) {
                0 => self.line.truncate(self.cursor),
                2 => {
                    self.line.clear();
                    self.return_to_start();
                }
                _ => {}
            },
            b'G' => self.move_to(number.unwrap_or(1).saturating_sub(1)),
            b'C' => self.move_to(column.saturating_add(number.unwrap_or(1).max(1))),
            b'D' => self.move_to(column.saturating_sub(number.unwrap_or(1).max(1))),
            _ => {}
        }
    }

    /// Characters before the cursor.
    fn column(&self) -> usize {
        self.line
            .get(..self.cursor)
            .unwrap_or_default()
            .iter()
            .filter(|b| is_start(**b))
            .count()
    }

    /// Puts the cursor before character `column`; at the end if the line is shorter.
    fn move_to(&mut self, column: usize) {
        if column == 0 {
            self.return_to_start();
            return;
        }
        self.cursor = 0;
        for _ in 0..column {
            if self.cursor == self.line.len() {
                break;
            }
            self.cursor = self.next_boundary(self.cursor);
        }
    }

    /// The end of the character at `from`.
    fn next_boundary(&self, from: usize) -> usize {
        let rest = self.line.get(from + 1..).unwrap_or_default();
        let more = rest.iter().take_while(|b| !is_start(**b)).count();
        (from + 1 + more).min(self.line.len())
    }
}

/// Length of the printable ASCII text at the start. Whole steps are compared without a branch for each byte.
fn plain_len(bytes: &[u8]) -> usize {
    const STEP: usize = 16;
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte);
    let steps = bytes
        .chunks_exact(STEP)
        .take_while(|step| step.iter().fold(true, |all, byte| all & is_plain(byte)))
        .count();
    let rest = bytes.get(steps * STEP..).unwrap_or_default();
    steps * STEP + rest.iter().take_while(|byte| is_plain(byte)).count()
}

fn is_start(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

#[cfg(test)]
mod tests;
