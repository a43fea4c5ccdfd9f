//! The only place of the client that prints.

mod table;

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::mpsc;
use std::time::Duration;

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

/// Input and output, with what is known about the other end.
pub struct Terminal {
    /// Results.
    pub out: Box<dyn Write>,
    /// Messages for people.
    pub err: Box<dyn Write>,
    /// Answers to questions, and `-f -`.
    pub input: Box<dyn BufRead + Send>,
    /// Whether a person looks at `out`: live views and colours.
    pub is_terminal: bool,
    /// Whether a person looks at `err`.
    pub is_terminal_err: bool,
    /// Whether a person can answer on `input`.
    pub can_answer: bool,
    /// Columns of `out`, if it is a terminal.
    pub width: Option<u16>,
}

impl Terminal {
    /// Those of this process.
    #[must_use]
    pub fn standard() -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            input: Box::new(io::BufReader::new(io::stdin())),
            is_terminal,
            is_terminal_err: io::stderr().is_terminal(),
            can_answer: io::stdin().is_terminal(),
            width: crossterm::terminal::size()
                .ok()
                .map(|(columns, _)| columns)
                // Terminals that do not know their size say 0.
                .filter(|&columns| is_terminal && columns > 0),
        }
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal")
            .field("is_terminal", &self.is_terminal)
            .finish_non_exhaustive()
    }
}

/// The terminal, or what stands for it.
pub(crate) struct Ui {
    terminal: Terminal,
    is_plain: bool,
    live_lines: usize,
}

impl Ui {
    pub(crate) fn new(terminal: Terminal, is_plain: bool) -> Self {
        Self {
            terminal,
            is_plain,
            live_lines: 0,
        }
    }

    /// Whether a person looks at the output.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal.is_terminal
    }

    /// A line on standard output.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        writeln!(self.terminal.out, "{}", text.as_ref()).map_err(CliError::Output)
    }

    /// Bytes on standard output as they are: the log of a run.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.live_end();
        self.terminal
            .out
            .write_all(bytes)
            .and_then(|()| self.terminal.out.flush())
            .map_err(CliError::Output)
    }

    /// One JSON document on standard output.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string(value).map_err(|error| {
            CliError::message(format!("the answer cannot be written as JSON: {error}"))
        })?;
        self.line(text)
    }

    /// A line on standard error: what a script does not read.
    pub(crate) fn note(&mut self, text: impl AsRef<str>) -> Result<(), CliError> {
        writeln!(self.terminal.err, "{}", text.as_ref()).map_err(CliError::Output)
    }

    /// Words in a colour, where colours are wanted.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        painted(self.terminal.is_terminal && !self.is_plain, tone, text)
    }

    /// The same for standard error.
    pub(crate) fn paint_note(&self, tone: Tone, text: &str) -> String {
        painted(self.terminal.is_terminal_err && !self.is_plain, tone, text)
    }

    /// A warning on standard error.
    pub(crate) fn warn(&mut self, text: &str) -> Result<(), CliError> {
        let text = self.paint_note(Tone::Warn, text);
        self.note(text)
    }

    /// Help, or a complaint about arguments, where each belongs.
    pub(crate) fn usage(&mut self, error: &clap::Error) -> Result<(), CliError> {
        let text = error.render();
        let is_complaint = error.use_stderr();
        let is_terminal = if is_complaint {
            self.terminal.is_terminal_err
        } else {
            self.terminal.is_terminal
        };
        let text = if is_terminal && !self.is_plain {
            text.ansi().to_string()
        } else {
            text.to_string()
        };
        let target = if is_complaint {
            &mut self.terminal.err
        } else {
            &mut self.terminal.out
        };
        target.write_all(text.as_bytes()).map_err(CliError::Output)
    }

    /// A table without lines that fits the terminal.
    pub(crate) fn table(&self, head: &[&str], rows: &[Vec<String>]) -> String {
        table::lines(head, rows, self.terminal.width).join("\n")
    }

    /// Replaces what the last call drew, on a terminal; elsewhere draws nothing.
    pub(crate) fn live(&mut self, text: &str) -> Result<(), CliError> {
        if !self.terminal.is_terminal {
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
        let width = usize::from(self.terminal.width.unwrap_or(80)).max(1);
        self.live_lines = text
            .lines()
            .map(|line| visible(line).div_ceil(width).max(1))
            .sum();
        self.terminal
            .out
            .write_all(frame.as_bytes())
            .and_then(|()| self.terminal.out.flush())
            .map_err(CliError::Output)
    }

    /// Keeps what `live` drew last and goes on below it.
    pub(crate) fn live_end(&mut self) {
        self.live_lines = 0;
    }

    /// Whether a person is there to answer.
    pub(crate) const fn can_ask(&self) -> bool {
        self.terminal.can_answer
    }

    /// Asks a question; without a terminal to answer on it is an error that names the option.
    pub(crate) fn confirm(&mut self, question: &str) -> Result<bool, CliError> {
        if !self.terminal.can_answer {
            return Err(CliError::message(format!(
                "{question} There is no terminal to answer on; pass -y to say yes"
            )));
        }
        loop {
            self.ask(question)?;
            let mut answer = String::new();
            if self
                .terminal
                .input
                .read_line(&mut answer)
                .map_err(CliError::Output)?
                == 0
            {
                return Ok(false);
            }
            if let Some(answer) = yes_or_no(&answer) {
                return Ok(answer);
            }
        }
    }

    /// Asks a question that a further Ctrl+C ends, as a no. Nothing can be asked afterwards.
    pub(crate) fn confirm_last(
        &mut self,
        question: &str,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<bool, CliError> {
        if !self.terminal.can_answer {
            return Ok(false);
        }
        self.ask(question)?;
        let mut input = std::mem::replace(&mut self.terminal.input, Box::new(io::empty()));
        self.terminal.can_answer = false;
        let (send, answers) = mpsc::channel();
        // The read cannot be ended from here: the thread is left behind and ends with the process.
        std::thread::spawn(move || {
            let mut line = String::new();
            while input.read_line(&mut line).is_ok_and(|count| count > 0) {
                if send.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        while !is_interrupted() {
            match answers.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => match yes_or_no(&line) {
                    Some(answer) => return Ok(answer),
                    None => self.ask(question)?,
                },
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
        self.line("")?;
        Ok(false)
    }

    fn ask(&mut self, question: &str) -> Result<(), CliError> {
        let out = &mut self.terminal.out;
        write!(out, "{question} [y/n]: ")
            .and_then(|()| out.flush())
            .map_err(CliError::Output)
    }

    /// Standard input to its end, or as much of it, as bytes.
    pub(crate) fn read_input_bytes(&mut self, most_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut input = (&mut self.terminal.input).take(most_bytes);
        input.read_to_end(&mut bytes).map(|_| bytes)
    }

    /// Standard input to its end, or as much of it.
    pub(crate) fn read_input(&mut self, most_bytes: u64) -> io::Result<String> {
        let mut text = String::new();
        let mut input = (&mut self.terminal.input).take(most_bytes);
        input.read_to_string(&mut text).map(|_| text)
    }
}

fn yes_or_no(answer: &str) -> Option<bool> {
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(true),
        "n" | "no" => Some(false),
        _ => None,
    }
}

fn painted(has_colour: bool, tone: Tone, text: &str) -> String {
    if has_colour && tone != Tone::Plain {
        format!("{}{text}\x1b[0m", tone.code())
    } else {
        text.to_owned()
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
