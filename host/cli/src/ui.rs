//! The only place of the client that prints.

use std::io::{self, BufRead, IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::error::CliError;

/// Colours of words, by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Went well.
    Good,
    /// Under way, or worth a look.
    Warn,
    /// Went wrong.
    Bad,
    /// Less important.
    Dim,
    /// As the terminal has it.
    Plain,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Dim => "\x1b[2m",
            Self::Plain => "",
        }
    }
}

/// The terminal, or what stands for it.
pub(crate) struct Ui {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    is_terminal: bool,
    has_colour: bool,
    width: Option<u16>,
    live_lines: usize,
}

impl std::fmt::Debug for Ui {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ui").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

impl Ui {
    /// Standard output and error of this process.
    pub(crate) fn standard(is_plain: bool) -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            is_terminal,
            has_colour: is_terminal && !is_plain,
            width: crossterm::terminal::size().ok().map(|(columns, _)| columns).filter(|_| is_terminal),
            live_lines: 0,
        }
    }

    /// Whether a person looks at the output.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// A line on standard output.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        writeln!(self.out, "{}", text.as_ref()).map_err(CliError::Output)
    }

    /// Bytes on standard output as they are: the log of a run.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.out.write_all(bytes).and_then(|()| self.out.flush()).map_err(CliError::Output)
    }

    /// One JSON document on standard output.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string(value)
            .map_err(|error| CliError::message(format!("the answer cannot be written as JSON: {error}")))?;
        self.line(text)
    }

    /// A line on standard error: what a script does not read.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        writeln!(self.err, "{}", text.as_ref()).map_err(CliError::Output)
    }

    /// Words in a colour, where colours are wanted.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        if self.has_colour && tone != Tone::Plain { format!("{}{text}\x1b[0m", tone.code()) } else { text.to_owned() }
    }

    /// A table without lines that fits the terminal.
    pub(crate) fn table(&self, head: &[&str], rows: &[Vec<String>]) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        match self.width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        if !head.is_empty() {
            table.set_header(head.iter().map(|name| format!(" {name}")).collect::<Vec<_>>());
        }
        for row in rows {
            table.add_row(row.iter().map(|cell| format!(" {cell}")).collect::<Vec<_>>());
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2)).set_cell_alignment(CellAlignment::Left);
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    /// Replaces what the last call drew, on a terminal; elsewhere draws nothing.
    pub(crate) fn live(&mut self, text: &str) -> Result<(), CliError> {
        if !self.is_terminal {
            return Ok(());
        }
        let mut frame = String::new();
        if self.live_lines > 0 {
            frame.push_str(&format!("\x1b[{}A\x1b[0J", self.live_lines));
        }
        frame.push_str(text);
        if !text.is_empty() {
            frame.push('\n');
        }
        let width = usize::from(self.width.unwrap_or(80)).max(1);
        self.live_lines = text.lines().map(|line| visible(line).div_ceil(width).max(1)).sum();
        self.out.write_all(frame.as_bytes()).and_then(|()| self.out.flush()).map_err(CliError::Output)
    }

    /// Keeps what `live` drew last and goes on below it.
    pub(crate) fn live_end(&mut self) {
        self.live_lines = 0;
    }

    /// Asks a question; without a terminal to answer on it is an error that names the option.
    pub(crate) fn confirm(&mut self, question: &str) -> Result<bool, CliError> {
        if !io::stdin().is_terminal() {
            return Err(CliError::message(format!(
                "{question} There is no terminal to answer on; pass -y to say yes"
            )));
        }
        loop {
            write!(self.out, "{question} [y/n]: ").and_then(|()| self.out.flush()).map_err(CliError::Output)?;
            let mut answer = String::new();
            if io::stdin().lock().read_line(&mut answer).map_err(CliError::Output)? == 0 {
                return Ok(false);
            }
            match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }
}

/// Columns that a line takes: escape sequences take none.
fn visible(line: &str) -> usize {
    let mut count = 0;
    let mut in_escape = false;
    for letter in line.chars() {
        match (in_escape, letter) {
            (false, '\x1b') => in_escape = true,
            (false, _) => count += 1,
            (true, letter) if letter.is_ascii_alphabetic() => in_escape = false,
            (true, _) => {}
        }
    }
    count
}
