//! Errors with their place in a file.

use std::fmt;

use dstack_backend_types::reading::Path;
use unicode_width::UnicodeWidthStr;

use super::tree::Mark;

/// A message about a place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Steps to the value; empty if there is no value yet, or for rules of the whole document.
    pub path: Path,
    /// What is wrong and what would be right.
    pub message: String,
    /// What to do, where it can be told in few words.
    pub help: Option<String>,
}

impl Located {
    pub(super) fn at(mark: Mark, message: String) -> Self {
        Self {
            line: mark.line,
            column: mark.column,
            path: Path::default(),
            message,
            help: None,
        }
    }
}

impl Located {
    /// Line, column and path, with the colon and the blank before the message.
    fn place(&self) -> String {
        let place = format!("{}:{}: ", self.line, self.column);
        if self.path.0.is_empty() {
            return place;
        }
        format!("{place}{}: ", Shortened(&self.path.to_string(), 200))
    }

    fn shown_message(&self) -> String {
        Shortened(&self.message, 500).to_string()
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())?;
        f.write_str(&self.shown_message())
    }
}

/// A part of a rendered problem, for colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// File, line, column and path.
    Place,
    /// What is wrong.
    Message,
    /// The number of the line and what separates it.
    Frame,
    /// The caret under the place.
    Caret,
}

/// A text cut after so many characters: a key may be as long as a file. What cannot be seen is shown escaped, since it
/// could break lines, move the cursor, or turn the text around.
struct Shortened<'t>(&'t str, usize);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, c) in self.0.chars().enumerate() {
            if index == self.1 {
                return f.write_str("…");
            }
            if c.is_control() || is_invisible(c) {
                write!(f, "{}", c.escape_debug())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Everything wrong with a file, at least one problem. `Display` has one line a problem, [`YamlErrors::render`] excerpts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct YamlErrors {
    /// The file's name as the person wrote it.
    pub file: String,
    /// The problems, in the order of their places.
    pub problems: Vec<Located>,
    /// What the problems' lines look like around the problems.
    excerpts: Vec<Excerpt>,
}

impl YamlErrors {
    pub(super) fn new(file: &str, text: &str, mut problems: Vec<Located>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        let mut lines = lines(text).enumerate();
        let mut current = lines.next();
        let mut excerpts = Vec::with_capacity(problems.len());
        for problem in &problems {
            while current.is_some_and(|(index, _)| index + 1 < problem.line) {
                current = lines.next();
            }
            let line = current.filter(|(index, _)| index + 1 == problem.line);
            excerpts.push(Excerpt::new(
                line.map_or("", |(_, line)| line),
                problem.column,
            ));
        }
        Self {
            file: file.to_owned(),
            problems,
            excerpts,
        }
    }

    /// The problems as text for a terminal: place, message, the line and a caret below it.
    pub fn render(&self) -> String {
        self.render_with(|_, text| text.to_owned())
    }

    /// The same with each part painted: `paint` gets no text with a line break.
    pub fn render_with(&self, paint: impl Fn(Part, &str) -> String) -> String {
        let mut out = String::new();
        for (problem, excerpt) in self.problems.iter().zip(&self.excerpts) {
            let place = format!("{}:{}", self.file, problem.place());
            out.push_str(&paint(Part::Place, &place));
            out.push_str(&paint(Part::Message, &problem.shown_message()));
            out.push('\n');
            excerpt.render(problem.line, &paint, &mut out);
        }
        out
    }
}

/// The lines of a text as YAML counts them: a carriage return alone ends one, too.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            return rest.take();
        };
        let (line, tail) = text.split_at(end);
        let tail = tail.strip_prefix("\r\n").or_else(|| tail.get(1..));
        rest = tail.filter(|tail| !tail.is_empty());
        Some(line)
    })
}

/// Longest line that is shown whole.
const WIDTH: usize = 100;

/// The part of a line around a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Excerpt {
    shown: String,
    /// Columns before the place that are shown.
    indent: usize,
}

impl Excerpt {
    /// A long line is shown around the place only; tabs would shift the caret, and what is invisible could do anything.
    fn new(line: &str, column: usize) -> Self {
        let place = column.saturating_sub(1);
        let skipped = if place < WIDTH { 0 } else { place - WIDTH / 2 };
        let shown = line.chars().skip(skipped).take(WIDTH);
        let shown: String = shown
            .map(|c| match c {
                c if c.is_control() => ' ',
                c if is_invisible(c) => '\u{FFFD}',
                c => c,
            })
            .collect();
        let before: String = shown.chars().take(place - skipped).collect();
        let indent = before.width();
        Self { shown, indent }
    }

    fn render(&self, line: usize, paint: impl Fn(Part, &str) -> String, out: &mut String) {
        if self.shown.trim().is_empty() {
            return;
        }
        let number = line.to_string();
        let (gap, indent) = (" ".repeat(number.len()), " ".repeat(self.indent));
        let frame = |start: &str| paint(Part::Frame, &format!(" {start} |"));
        let (first, second) = (frame(&number), frame(&gap));
        let caret = paint(Part::Caret, "^");
        out.push_str(&format!(
            "{first} {}\n{second} {indent}{caret}\n",
            self.shown
        ));
    }
}

/// Characters without a picture that join no others: they separate nothing visibly, or change the direction of writing.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

impl fmt::Display for YamlErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:{problem}", self.file)?;
        }
        Ok(())
    }
}
