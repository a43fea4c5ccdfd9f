//! Files that no honest person writes: each must be read, or refused with a clear error, quickly and in little memory.

use dstack_api::config::{Configuration, Mode};
use dstack_api::yaml::{self, YamlErrors};

/// A file by its name, and how to make it.
pub type Case = (&'static str, fn() -> Vec<u8>);

/// About what a file may have at most.
const FULL: usize = 500_000;

fn filled(head: &str, part: &str, tail: &str) -> Vec<u8> {
    let count = (FULL - head.len() - tail.len()) / part.len();
    format!("{head}{}{tail}", part.repeat(count)).into_bytes()
}

fn numbered(head: &str, count: usize, part: impl Fn(usize) -> String, tail: &str) -> Vec<u8> {
    let parts: String = (0..count).map(part).collect();
    format!("{head}{parts}{tail}").into_bytes()
}

/// Each level names the one before ten times.
fn laughs() -> Vec<u8> {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = level - 1;
        let aliases = vec![format!("*a{before}"); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    text.into_bytes()
}

/// A list in a list, and so on, each with an anchor that keeps a copy.
fn anchors_in_anchors() -> Vec<u8> {
    let open: String = (0..60).map(|i| format!("&a{i} [")).collect();
    let leaves = "x, ".repeat(60_000);
    format!("a: {open}{leaves}{}", "]".repeat(60)).into_bytes()
}

/// Lines that go ever deeper, as far as they fit.
fn staircase(item: &str) -> Vec<u8> {
    let mut text = String::new();
    let mut depth = 0;
    while text.len() < FULL - 4000 {
        text.push_str(&" ".repeat(depth));
        text.push_str(item);
        text.push('\n');
        depth += 2;
    }
    text.into_bytes()
}

/// A configuration with a list under one key that is as long as a list may be.
fn long_list(kind: &str, key: &str, item: &str) -> Vec<u8> {
    let head = format!("type: {kind}\ncommands: [x]\n{key}: [");
    numbered(&head, 90_000, |_| format!("{item}, "), "]\n")
}

/// Every file.
pub const CASES: &[Case] = &[
    ("empty", Vec::new),
    ("only comments", || filled("", "# nothing\n", "")),
    ("a list at the top", || b"- a\n- b\n".to_vec()),
    ("a text at the top", || b"type task".to_vec()),
    ("broken", || {
        b"type: task\ncommands: [a, b\nname: x }\n".to_vec()
    }),
    ("tab as indentation", || {
        b"type: task\nresources:\n\tgpu: 1\n".to_vec()
    }),
    ("anchors and merges", || {
        b"type: task\nresources: &r {cpu: 4}\ncommands: &c [x]\nsetup: *c\nretry:\n  <<: {duration: 1h}\n".to_vec()
    }),
    ("10 MB", || "name: x\n".repeat(1_250_000).into_bytes()),
    ("10 MB in one line", || "x".repeat(10_000_000).into_bytes()),
    ("10,000 lists deep", || "[".repeat(10_000).into_bytes()),
    ("10,000 mappings deep", || {
        "{a: ".repeat(10_000).into_bytes()
    }),
    ("10,000 lists deep in one block line", || {
        "- ".repeat(10_000).into_bytes()
    }),
    ("10,000 questions deep", || "? ".repeat(10_000).into_bytes()),
    ("10,000 closed lists deep", || {
        format!("a: {}{}", "[".repeat(10_000), "]".repeat(10_000)).into_bytes()
    }),
    ("a staircase of mappings", || staircase("a:")),
    ("a staircase of lists", || staircase("-")),
    ("a million open lists", || filled("", "[", "")),
    ("a million closing brackets", || filled("", "]", "")),
    ("billion laughs", laughs),
    ("a long text a thousand times", || {
        let text = "x".repeat(500_000);
        format!("a: &a {text}\nb: [{}]\n", "*a, ".repeat(1000)).into_bytes()
    }),
    ("a big list a hundred thousand times", || {
        let list = "x, ".repeat(1000);
        filled(&format!("a: &a [{list}]\nb: ["), "*a, ", "]\n")
    }),
    ("a big mapping merged again and again", || {
        let map: String = (0..5000).map(|i| format!("k{i}: v, ")).collect();
        filled(&format!("a: &a {{{map}}}\nb:\n"), "  <<: *a\n", "")
    }),
    ("merges of merges", || {
        numbered(
            "a0: &a0 {x0: 1}\n",
            5000,
            |i| format!("a{}: &a{} {{<<: *a{i}, x{}: 1}}\n", i + 1, i + 1, i + 1),
            "",
        )
    }),
    ("anchors in anchors", anchors_in_anchors),
    ("many anchors", || {
        numbered("a:\n", 80_000, |i| format!("- &a{i} x\n"), "")
    }),
    ("an alias in its own anchor", || {
        b"a: &a [*a, *a]\n".to_vec()
    }),
    ("a huge command", || {
        filled("type: task\ncommands: [\"", "x", "\"]\n")
    }),
    ("a huge block", || {
        filled("type: task\ncommands:\n  - |\n", "    echo hello\n", "")
    }),
    ("a huge folded block", || {
        filled("type: task\ncommands:\n  - >\n", "    a\n\n", "")
    }),
    ("a million escapes", || {
        filled("type: task\ncommands: [\"", "\\x41", "\"]\n")
    }),
    ("a million line breaks in quotes", || {
        filled("type: task\ncommands: [\"", "a\n  ", "\"]\n")
    }),
    ("an open quote", || filled("type: task\nname: \"", "x ", "")),
    ("a huge number", || filled("type: task\nnodes: ", "1", "\n")),
    ("a huge decimal number", || {
        filled("type: task\nmax_price: 0.", "1", "\n")
    }),
    ("a huge base 60 number", || {
        filled("type: task\nnodes: 1", ":1", "\n")
    }),
    ("a huge number of underscores", || {
        filled("type: task\nnodes: 1", "_", "\n")
    }),
    ("a huge range", || {
        filled("type: task\nresources: {cpu: \"1", "..1", "\"}\n")
    }),
    ("a huge GPU", || {
        filled("type: task\nresources: {gpu: \"H100", ":a", "\"}\n")
    }),
    ("a huge list of GPUs", || {
        filled("type: task\nresources: {gpu: \"H100", ",a", "\"}\n")
    }),
    ("a huge duration", || {
        filled("type: task\nmax_duration: \"", "1", "h\"\n")
    }),
    ("a huge cron", || {
        filled("type: task\nschedule: {cron: \"0", ",0", " * * * *\"}\n")
    }),
    ("a huge path", || {
        filled(
            "type: task\ncommands: [x]\nvolumes: [\"a:/",
            "a/../",
            "\"]\n",
        )
    }),
    ("a huge key", || {
        filled("type: task\n? \"", "k", "\"\n: 1\n")
    }),
    ("many references", || {
        filled("type: task\ncommands: [\"", "${{ run.args }}", "\"]\n")
    }),
    ("many open references", || {
        filled("type: task\ncommands: [\"", "${{ ", "\"]\n")
    }),
    ("many unknown keys", || {
        numbered("type: task\n", 45_000, |i| format!("key{i}: 1\n"), "")
    }),
    ("many unknown keys in one line", || {
        numbered("{type: task", 45_000, |i| format!(", k{i}: 1"), "}")
    }),
    ("the same key again and again", || {
        filled("type: task\n", "name: x\n", "")
    }),
    ("many variables", || {
        numbered(
            "type: task\ncommands: [x]\nenv:\n",
            48_000,
            |i| format!("  V{i}: x\n"),
            "",
        )
    }),
    ("many bad variables", || {
        numbered(
            "type: task\ncommands: [x]\nenv:\n",
            48_000,
            |i| format!("  V{i}:\n"),
            "",
        )
    }),
    ("many listed variables", || {
        numbered(
            "type: task\ncommands: [x]\nenv:\n",
            90_000,
            |i| format!("- V{i}\n"),
            "",
        )
    }),
    ("many tags", || {
        numbered(
            "type: task\ncommands: [x]\ntags:\n",
            48_000,
            |i| format!("  t{i}: x\n"),
            "",
        )
    }),
    ("many unknown backends", || {
        long_list("task", "backends", "aw")
    }),
    ("many regions", || long_list("task", "regions", "r")),
    ("many fleets", || long_list("task", "fleets", "f")),
    ("many instances", || long_list("task", "instances", "i")),
    ("many ports", || long_list("task", "ports", "80")),
    ("many volumes", || long_list("task", "volumes", "a:/b")),
    ("many files", || long_list("task", "files", "a")),
    ("many commands", || {
        long_list("dev-environment", "init", "a")
    }),
    ("many numbers in base 60", || {
        long_list("task", "setup", "1:1")
    }),
    ("many crons", || {
        filled(
            "type: task\ncommands: [x]\nschedule:\n  cron: [",
            "0 0 30 2 *, ",
            "]\n",
        )
    }),
    ("many groups", || {
        filled("type: task\ngroups: [", "{commands: [x]}, ", "]\n")
    }),
    ("many replica groups", || {
        filled(
            "type: service\nport: 80\ngroups: [",
            "{replicas: 1, commands: [x]}, ",
            "]\n",
        )
    }),
    ("many probes", || {
        numbered(
            "type: service\nport: 80\ncommands: [x]\nprobes: [",
            12_000,
            |i| format!("{{type: http, url: /{i}}}, "),
            "]\n",
        )
    }),
    ("many rate limits", || {
        numbered(
            "type: service\nport: 80\ncommands: [x]\nrate_limits: [",
            16_000,
            |i| format!("{{prefix: /{i}, rps: 1}}, "),
            "]\n",
        )
    }),
    ("many options of backends", || {
        numbered(
            "type: task\ncommands: [x]\nbackend_options: [",
            16_000,
            |i| format!("{{type: b{i}}}, "),
            "]\n",
        )
    }),
    ("many hosts", || {
        numbered(
            "type: fleet\nssh_config:\n  user: u\n  identity_file: k\n  hosts: [",
            60_000,
            |i| format!("h{i}, "),
            "]\n",
        )
    }),
    ("nodes beyond number", || {
        b"type: task\ncommands: [x]\ngroups: [{nodes: 4294967295, commands: [x]}, {nodes: 4294967295, commands: [x]}]\n".to_vec()
    }),
    ("many documents", || filled("", "--- a\n", "")),
    ("many directives", || {
        numbered("", 50_000, |i| format!("%TAG !a{i}! tag:x\n"), "--- a\n")
    }),
    ("many tags of YAML", || filled("a: [", "!!str x, ", "]\n")),
    ("a foreign tag", || {
        b"type: !!python/object:os.system task\n".to_vec()
    }),
    ("null bytes", || b"type: task\nname: a\0b\n".to_vec()),
    ("only null bytes", || vec![0; FULL]),
    ("not UTF-8", || b"type: task\nname: \xc3\xa9\xff\n".to_vec()),
    ("UTF-16", || {
        "\u{feff}type: task"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect()
    }),
    ("a byte order mark", || {
        "\u{feff}type: task\ncommands: [x]\n".as_bytes().to_vec()
    }),
    ("a byte order mark inside", || {
        "type: task\n\u{feff}name: x\n".as_bytes().to_vec()
    }),
    ("control characters", || {
        b"type: task\nname: \x1b[31m\n".to_vec()
    }),
    ("carriage returns only", || {
        b"type: task\rcommand: x\r".to_vec()
    }),
    ("wide characters", || {
        "type: task\nname: 日本語 🦀 é\nбad: {ключ: 1}\n"
            .as_bytes()
            .to_vec()
    }),
];

/// Reads a file like `dstack config check` does.
///
/// # Errors
/// What a person is told.
pub fn read(bytes: &[u8]) -> Result<Configuration, YamlErrors> {
    let text = yaml::decode("hostile.yml", bytes)?;
    let parsed = yaml::parse::<Configuration>("hostile.yml", text, Mode::Strict)?;
    Ok(parsed.value)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{CASES, read};

    /// All that a process with the file, its tree and its configuration may have in memory.
    const MOST_KB: u64 = 64 * 1024;
    const CASE: &str = "DSTACK_TEST_HOSTILE";

    /// The most memory this process ever had, in kB.
    fn peak_kb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Reads one file, in a process of its own.
    fn one(name: &str) {
        let (_, make) = CASES.iter().find(|(known, _)| *known == name).unwrap();
        let told = match read(&make()) {
            Ok(_) => "accepted".to_owned(),
            Err(errors) => {
                assert!(!errors.problems.is_empty());
                assert!(errors.problems.iter().all(|p| !p.message.is_empty()));
                let text = errors.render();
                assert!(text.len() < 60_000, "{} bytes of errors", text.len());
                text.lines().next().unwrap_or_default().to_owned()
            }
        };
        println!("\nPEAK {} {told}", peak_kb());
    }

    fn run(name: &str) -> Result<(u64, String), String> {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "hostile::tests::hostile_files_are_harmless",
                "--exact",
                "--nocapture",
            ])
            .env(CASE, name)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("PEAK "));
        let parts = line.and_then(|line| line.split_once(' '));
        match parts {
            Some((kb, told)) if output.status.success() => {
                Ok((kb.parse().unwrap(), told.to_owned()))
            }
            _ => Err(format!(
                "{}: {text}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }

    #[test]
    fn hostile_files_are_harmless() {
        #[expect(
            clippy::disallowed_methods,
            reason = "by it this process tells its children which file is meant"
        )]
        if let Ok(name) = std::env::var(CASE) {
            return one(&name);
        }
        let wrong = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((name, _)) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                let why = match run(name) {
                    Ok((kb, told)) if kb > MOST_KB => format!("{name}: {kb} kB, {told}"),
                    Ok((kb, told)) => {
                        println!("{name}: {kb} kB, {told}");
                        continue;
                    }
                    Err(why) => format!("{name}: {why}"),
                };
                wrong.lock().unwrap().push(why);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(work);
            }
        });
        let wrong = wrong.into_inner().unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
