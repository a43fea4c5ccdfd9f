//! The table: one line a check, then what failed at length.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Failure, Outcome, Report};

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";
/// Narrower terminals get lines that wrap.
const MIN_WIDTH: usize = 40;

struct Paint(bool);

impl Paint {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.0 {
            format!("{code}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }
}

/// Text without what would move the cursor or colour the terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect()
}

/// At most so many columns, with a mark if something is missing.
fn cut(text: &str, columns: usize) -> String {
    let text = plain(text).replace('\n', " ");
    if text.width() <= columns {
        return text;
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// Lines of at most so many columns, broken at spaces where possible.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in plain(text).lines() {
        let mut current = String::new();
        for word in line.split(' ') {
            if !current.is_empty() && current.width() + 1 + word.width() > columns {
                lines.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        lines.push(current);
    }
    lines
}

fn padded(text: &str, columns: usize) -> String {
    let missing = columns.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(missing))
}

pub(super) fn render(report: &Report, width: usize, is_coloured: bool) -> String {
    let paint = Paint(is_coloured);
    let width = width.max(MIN_WIDTH);
    let mut out = format!(
        "{} {} ({})\n\n",
        paint.paint(BOLD, &plain(&report.plugin)),
        plain(&report.version),
        report.isolation.replace('_', " ")
    );
    let ids = report
        .results
        .iter()
        .map(|result| result.id.width())
        .max()
        .unwrap_or(0);
    let ids = ids.min(width / 2);
    // Mark, two spaces, id, two spaces, text, time.
    let room = width.saturating_sub(4 + 2 + ids + 2 + 9);
    for result in &report.results {
        let (mark, text) = match &result.outcome {
            Outcome::Passed => (paint.paint(GREEN, "pass"), cut(&result.title, room)),
            Outcome::Failed(_) => (paint.paint(RED, "FAIL"), cut(&result.title, room)),
            Outcome::Skipped { reason } => (
                paint.paint(DIM, "skip"),
                paint.paint(DIM, &cut(reason, room)),
            ),
        };
        let time = format!("{:>6} ms", result.took_ms);
        let painted = if matches!(result.outcome, Outcome::Skipped { .. }) {
            String::new()
        } else {
            let gap = room.saturating_sub(cut(&result.title, room).width());
            format!("{}{}", " ".repeat(gap), paint.paint(DIM, &time))
        };
        let line = format!(
            "{mark}  {}  {text}{painted}",
            padded(&cut(&result.id, ids), ids)
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
    for (result, failure) in report.failures() {
        out.push('\n');
        out.push_str(&paint.paint(RED, &format!("FAIL {}", result.id)));
        out.push_str(&format!(
            "  {}\n",
            cut(&result.title, width.saturating_sub(7 + result.id.width()))
        ));
        out.push_str(&details(&result.why, failure, width, &paint));
    }
    for note in &report.notes {
        out.push_str(&format!(
            "\nnote: {}\n",
            wrap(note, width.saturating_sub(6)).join("\n      ")
        ));
    }
    let (passed, failed, skipped) = report.counts();
    let word = if failed == 0 {
        paint.paint(GREEN, "passed")
    } else {
        paint.paint(RED, "failed")
    };
    out.push_str(&format!(
        "\n{word}: {passed} passed, {failed} failed, {skipped} skipped\n"
    ));
    out
}

fn details(why: &str, failure: &Failure, width: usize, paint: &Paint) -> String {
    let mut out = String::new();
    let parts = [
        ("expected", failure.expected.as_str()),
        ("seen", failure.seen.as_str()),
        ("remedy", failure.remedy.as_str()),
        ("why", why),
    ];
    for (name, text) in parts {
        let lines = wrap(text, width.saturating_sub(12));
        let label = paint.paint(DIM, &format!("{name:>9}"));
        out.push_str(&format!(
            " {label}  {}\n",
            lines.join(&format!("\n{}", " ".repeat(12)))
        ));
    }
    for (number, line) in failure.exchange.iter().enumerate() {
        let label = if number == 0 { "exchange" } else { "" };
        let label = paint.paint(DIM, &format!("{label:>9}"));
        out.push_str(&format!(
            " {label}  {}\n",
            cut(line, width.saturating_sub(12))
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use crate::report::{CheckResult, Failure, Outcome, Report};

    fn report() -> Report {
        let result = |id: &str, outcome| CheckResult {
            id: id.to_owned(),
            title: "A title that says what is checked, at some length and then some more"
                .to_owned(),
            why: "it matters".to_owned(),
            outcome,
            took_ms: 12,
        };
        Report {
            plugin: "acme".to_owned(),
            version: "1.0.0".to_owned(),
            isolation: "in_process".to_owned(),
            results: vec![
                result("a.one", Outcome::Passed),
                result(
                    "a.two",
                    Outcome::Failed(Failure {
                        expected: "one machine".to_owned(),
                        seen: "two\x1b[31m machines".to_owned(),
                        remedy: "look before you make one".to_owned(),
                        exchange: vec!["POST /servers -> 201".to_owned()],
                    }),
                ),
                result(
                    "b.three",
                    Outcome::Skipped {
                        reason: "no capability `volumes`".to_owned(),
                    },
                ),
            ],
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_table_fits_and_says_what_to_do() {
        let text = report().table(60, false);
        assert!(text.lines().all(|line| line.width() <= 60), "{text}");
        for part in [
            "pass  a.one",
            "FAIL  a.two",
            "skip  b.three",
            "no capability `volumes`",
            "one machine",
            "look before you make one",
            "POST /servers -> 201",
            "failed: 1 passed, 1 failed, 1 skipped",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(
            !text.contains('\x1b'),
            "no colours, not even those of the plugin"
        );
        assert!(report().table(60, true).contains("\x1b[31mFAIL"));
    }

    #[test]
    fn the_json_form_is_read_back() {
        let text = serde_json::to_string(&report()).unwrap();
        assert!(
            text.contains(r#""result":"skipped","reason":"no capability `volumes`""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
    }
}
