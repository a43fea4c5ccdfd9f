//! Configurations that several tests use.

use crate::Runtime;

/// A task's configuration; `lines` are shell commands.
#[must_use]
pub fn task(name: &str, runtime: Runtime, lines: &[&str]) -> String {
    let mut text = format!(
        "type: task\nname: {name}\nresources:\n  cpu: x86:1..\n  memory: 100MB..\n  disk: 1GB..\n"
    );
    if runtime == Runtime::Docker {
        text.push_str("image: dstack-test/small:1\nuser: root\n");
    }
    text.push_str("commands:\n");
    for line in lines {
        text.push_str(&format!("- |\n  {line}\n"));
    }
    text
}
