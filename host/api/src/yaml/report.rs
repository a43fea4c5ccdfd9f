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
    /// The lines the problems are on.
    excerpts: Vec<String>,
}

impl YamlErrors {
    pub(super) fn new(file: &str, text: &str, mut problems: Vec<Located>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        let lines: Vec<_> = text.lines().collect();
        let excerpt = |problem: &Located| {
            lines
                .get(problem.line.saturating_sub(1))
                .map_or_else(String::new, |line| (*line).to_owned())
        };
        let excerpts = problems.iter().map(excerpt).collect();
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
            render(&self.file, problem, excerpt, &mut out);
        }
        out
    }
}

/// Longest line that is shown whole.
const WIDTH: usize = 100;

fn render(file: &str, problem: &Located, line: &str, out: &mut String) {
    out.push_str(&format!("{file}:{problem}\n"));
    if line.trim().is_empty() {
        return;
    }
    // A long line is shown around the place only; tabs would shift the caret.
    let place = problem.column.saturating_sub(1);
    let skipped = if place < WIDTH { 0 } else { place - WIDTH / 2 };
    let shown = line.chars().skip(skipped).take(WIDTH);
    let shown: String = shown.map(|c| if c == '\t' { ' ' } else { c }).collect();
    let number = problem.line.to_string();
    let (gap, indent) = (" ".repeat(number.len()), " ".repeat(place - skipped));
    out.push_str(&format!(" {number} | {shown}\n {gap} | {indent}^\n"));
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
