//! `dstack backend verify`: a folder against its `plugins.lock`.

use std::path::Path;

use serde_json::Value;

use crate::cx::Cx;
use crate::error::CliError;
use crate::ui::Tone;

/// Exit code 1 if anything is wrong.
pub(super) fn run(folder: &Path, json: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let found = cx.local.verify(folder).map_err(CliError::Message)?;
    let all = found.as_array().cloned().unwrap_or_default();
    if json {
        cx.ui.json(&found)?;
    } else if all.is_empty() {
        cx.ui.line(format!("{}: no plugins", folder.display()))?;
    } else {
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows: Vec<Vec<String>> = all
            .iter()
            .map(|row| {
                let (tone, word) = match row["problem"].as_str() {
                    None => (Tone::Good, "ok"),
                    Some(problem) => (Tone::Bad, problem),
                };
                let path = text(row, "path");
                let file = Path::new(&path).file_name().unwrap_or_default();
                vec![
                    text(row, "name"),
                    text(row, "version"),
                    file.to_string_lossy().into_owned(),
                    cx.ui.paint(tone, word),
                ]
            })
            .collect();
        let table = cx.ui.table(&["NAME", "VERSION", "FILE", "RESULT"], &rows);
        cx.ui.line(table)?;
    }
    if all.iter().any(|row| !row["problem"].is_null()) {
        return Err(CliError::Quiet);
    }
    Ok(())
}
