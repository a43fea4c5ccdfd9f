//! Errors with their place in a file.

use std::fmt;

use dstack_backend_types::reading::Path;

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
}

impl Located {
    pub(super) fn at(mark: Mark, message: String) -> Self {
        Self {
            line: mark.line,
            column: mark.column,
            path: Path::default(),
            message,
        }
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.path.0.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
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
        let mut out = String::new();
        for (problem, excerpt) in self.problems.iter().zip(&self.excerpts) {
            out.push_str(&format!("{}:{problem}\n", self.file));
            excerpt.render(problem.line, &mut out);
        }
        out
    }
}

/// The lines of a text as YAML counts them: a carriage return alone ends one, too.
fn lines(text: &str) -> impl Iterator<Item = &str> {
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
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let before = shown.chars().take(place - skipped);
        let indent = before.map(|c| if is_wide(c) { 2 } else { 1 }).sum();
        Self { shown, indent }
    }

    fn render(&self, line: usize, out: &mut String) {
        if self.shown.trim().is_empty() {
            return;
        }
        let number = line.to_string();
        let (gap, indent) = (" ".repeat(number.len()), " ".repeat(self.indent));
        out.push_str(&format!(" {number} | {}\n {gap} | {indent}^\n", self.shown));
    }
}

/// Whether terminals give a character two columns: East Asian scripts, most pictographs.
fn is_wide(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{115F}' | '\u{2E80}'..='\u{303E}' | '\u{3041}'..='\u{A4CF}' | '\u{AC00}'..='\u{D7A3}'
        | '\u{F900}'..='\u{FAFF}' | '\u{FE30}'..='\u{FE6F}' | '\u{FF00}'..='\u{FF60}' | '\u{FFE0}'..='\u{FFE6}'
        | '\u{1F300}'..='\u{1F64F}' | '\u{1F680}'..='\u{1F6FF}' | '\u{1F900}'..='\u{1F9FF}' | '\u{20000}'..='\u{3FFFD}')
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
