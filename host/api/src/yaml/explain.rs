//! What a person can do: remedies for broken YAML, and for keys and words that mean something else than they look like.

use dstack_backend_types::reading::{Kind, Path, Problem, Step};
use serde_json::Value;

use super::report::{Located, lines};

/// Adds the remedy to what the YAML parser says, and moves it to the tab if a tab is the reason.
pub(super) fn broken(text: &str, mut problem: Located) -> Located {
    if problem.message.contains(" tab") {
        move_to_tab(text, &mut problem);
    }
    if let Some(remedy) = remedy(text, &problem) {
        problem.message = format!("{}; {remedy}", problem.message.trim_end_matches('.'));
        problem.help = Some(remedy);
    }
    problem
}

/// The parser stops behind the tab, or at the end of the line before.
fn move_to_tab(text: &str, problem: &mut Located) {
    let near = lines(text).enumerate().skip(problem.line - 1).take(2);
    for (index, line) in near {
        let blank = line.chars().take_while(|c| matches!(c, ' ' | '\t'));
        if let Some(column) = blank.into_iter().position(|c| c == '\t') {
            (problem.line, problem.column) = (index + 1, column + 1);
            return;
        }
    }
}

fn remedy(text: &str, problem: &Located) -> Option<String> {
    let said = |words: &str| problem.message.contains(words);
    let here = lines(text).nth(problem.line - 1).unwrap_or_default();
    let fixed = if said(" tab") {
        "indent with blanks only"
    } else if said("mapping values are not allowed") || said("simple key expected") {
        return Some(about_colon(text, here, problem));
    } else if said("did not find expected key") || said("did not find expected '-'") {
        "begin all lines of one list or mapping in the same column"
    } else if said("did not find expected ','") || said("illegal placement of ':'") {
        "close the bracket or brace that was opened before"
    } else if said("recursion limit") {
        "the file is nested too deep"
    } else if said("unknown anchor") || said("anchor or alias") || said("unexpected character") {
        let start = here.chars().nth(problem.column - 1)?;
        return Some(format!("put text that starts with `{start}` in quotes"));
    } else if problem.message.starts_with("the tag !") {
        "put text that starts with `!` in quotes"
    } else {
        return None;
    };
    Some(fixed.to_owned())
}

/// The parser sees a colon too much, or misses one. Mostly the line before or this one is without the blank or the colon.
fn about_colon(text: &str, here: &str, problem: &Located) -> String {
    let is_written = |(_, line): &(usize, &str)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    };
    let before = lines(text).enumerate().take(problem.line - 1);
    let before = before.filter(is_written).last();
    let start: String = here.chars().take(problem.column - 1).collect();
    let start = start.trim_start().trim_start_matches("- ");
    if start.contains(": ") {
        return "put text with a colon and a blank in quotes".to_owned();
    }
    for (index, line) in [before, Some((problem.line - 1, here))]
        .into_iter()
        .flatten()
    {
        let number = index + 1;
        match line.trim().split_once(':') {
            Some((key, rest))
                if is_word(key) && !rest.is_empty() && !rest.starts_with([' ', '\t']) =>
            {
                return format!("write a blank after the colon in line {number}");
            }
            None if !line.trim_start().starts_with(['-', '#']) => {
                return format!("line {number} has no colon: write `key: value`");
            }
            _ => {}
        }
    }
    let indent = |line: &str| line.chars().take_while(|c| *c == ' ').count();
    match before {
        Some((index, line)) if indent(here) > indent(line) => format!(
            "line {} has a value already: begin this line in the same column",
            index + 1
        ),
        _ => {
            "put text with a colon in quotes, and begin all keys of one mapping in the same column"
                .to_owned()
        }
    }
}

fn is_word(text: &str) -> bool {
    let text = text.trim_start_matches("- ");
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
}

/// Says where a key belongs that is known, but elsewhere.
pub(super) fn misplaced(mut problem: Problem, root: &Value) -> Problem {
    let (Kind::UnknownKey { nearest }, [Step::Key(key)]) =
        (&problem.kind, problem.path.0.as_slice())
    else {
        return problem;
    };
    let place = match (root["type"].as_str().unwrap_or_default(), key.as_str()) {
        (
            "task" | "service" | "dev-environment" | "fleet",
            "cpu" | "gpu" | "memory" | "disk" | "shm_size",
        ) => "put it below `resources`",
        ("fleet", "hosts" | "user" | "identity_file" | "network" | "proxy_jump") => {
            "put it below `ssh_config`"
        }
        ("dev-environment", "commands") => "a dev environment has `init`",
        ("task", "replicas") => "a task has `nodes`",
        ("service", "nodes") => "a service has `replicas`",
        ("task" | "service" | "dev-environment" | "fleet", "spot") => "write `spot_policy: spot`",
        _ => return problem,
    };
    if nearest.is_none() {
        problem.message = format!("{}; {place}", problem.message);
    }
    problem
}

/// An empty file is no wrong value.
pub(super) fn empty(mut problem: Problem, root: &Value) -> Problem {
    if root.is_null() && problem.path == Path::default() {
        let expected = problem.message.trim_end_matches(", got null");
        problem.message = format!("there is nothing in the file; {expected}");
    }
    problem
}

/// A value that YAML reads otherwise than it looks is probably wrong for just that reason.
pub(super) fn misread(mut problem: Located, warnings: &[Located]) -> Located {
    let same = |warning: &&Located| {
        (warning.line, warning.column) == (problem.line, problem.column)
            && warning.message.contains(" in YAML (")
    };
    if let Some(warning) = warnings.iter().find(same) {
        problem.message = format!("{}: {}", problem.message, warning.message);
    }
    problem
}
