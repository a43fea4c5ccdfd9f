//! The version of the person's editor, so that its server part is in the dev environment before it connects.

use std::process::{Command, Stdio};

use dstack_api::config::{Ide, RunConfiguration};

use crate::cx::Cx;
use crate::error::CliError;
use crate::ui::Tone;

/// Asks the editor for its version if the configuration names none.
pub(super) fn detect(
    configuration: &mut RunConfiguration,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let RunConfiguration::DevEnvironment(dev) = configuration else {
        return Ok(());
    };
    let Some(ide) = dev.ide.filter(|_| dev.version.is_none()) else {
        return Ok(());
    };
    let program = match ide {
        Ide::Vscode => "code",
        Ide::Cursor => "cursor",
        Ide::Windsurf => "windsurf",
        // It brings its own server.
        Ide::Zed => return Ok(()),
    };
    dev.version = ask(program, cx).and_then(|text| version(ide, &text));
    if dev.version.is_none() {
        let text = format!(
            "The version of {program} on this machine is not known (`{program} --version`), so its server is installed \
             when it connects; `version` in the file names one."
        );
        let text = cx.ui.paint_note(Tone::Dim, &text);
        cx.ui.note(text)?;
    }
    Ok(())
}

fn ask(program: &str, cx: &Cx<'_>) -> Option<String> {
    let path = cx.vars.get("PATH")?;
    let file = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())?;
    let output = Command::new(file)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// What names the server of an editor: the commit in the second line; of Windsurf with the number before it.
fn version(ide: Ide, text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    let number = lines.next()?;
    let commit = lines.next()?;
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    match ide {
        _ if !is_commit => None,
        Ide::Windsurf => is_number.then(|| format!("{number}@{commit}")),
        Ide::Vscode | Ide::Cursor | Ide::Zed => Some(commit.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_in_the_second_line() {
        let text = "1.99.3\n17baf841131aa23349f217ca7c570c76ee87b957\nx64\n";
        let commit = "17baf841131aa23349f217ca7c570c76ee87b957";
        assert_eq!(version(Ide::Vscode, text).as_deref(), Some(commit));
        assert_eq!(
            version(Ide::Windsurf, text).unwrap(),
            format!("1.99.3@{commit}")
        );
        for odd in [
            "",
            "1.99.3",
            "1.99.3\nnot a commit\n",
            "1.99.3\n$(reboot)\n",
        ] {
            assert_eq!(version(Ide::Cursor, odd), None, "{odd}");
        }
    }
}
