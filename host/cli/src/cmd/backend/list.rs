//! `dstack backend list`: every plugin file of the server with its state.

use dstack_api::plugins::{ListPluginsResponse, PluginInfo};

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::ui::Tone;

/// Digits of a hash that tell files apart.
const SHORT_HASH: usize = 12;

pub(super) fn run(
    project: &ProjectOption,
    is_verbose: bool,
    json: bool,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let here = cx.here(project.project.as_deref())?;
    let answer: ListPluginsResponse = here.client.ask("/api/x/plugins/list")?;
    if json {
        return cx.ui.json(&answer);
    }
    let rows: Vec<Vec<String>> = answer
        .plugins
        .iter()
        .map(|plugin| row(plugin, is_verbose, cx))
        .collect();
    let mut head = vec![
        "NAME",
        "VERSION",
        "SDK",
        "ISOLATION",
        "STATE",
        "CALLS",
        "ERRORS",
        "RESPAWNS",
        "CAPABILITIES",
        "HASH",
        "ERROR",
    ];
    if is_verbose {
        head.push("PATH");
    }
    let table = cx.ui.table(&head, &rows);
    cx.ui.line(table)
}

fn row(plugin: &PluginInfo, is_verbose: bool, cx: &Cx<'_>) -> Vec<String> {
    let tone = if plugin.reason.is_some() {
        Tone::Bad
    } else {
        Tone::Good
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut row = vec![
        plugin.name.clone(),
        text(&plugin.version),
        text(&plugin.sdk),
        text(&plugin.isolation),
        cx.ui.paint(tone, &plugin.state),
    ];
    match &plugin.load {
        Some(load) => {
            let mut calls = load.calls.to_string();
            if load.running + load.waiting > 0 {
                calls.push_str(&format!(" (+{})", load.running + load.waiting));
            }
            row.extend([calls, load.errors.to_string(), load.respawns.to_string()]);
        }
        None => row.extend([const { String::new() }; 3]),
    }
    row.push(plugin.capabilities.join(" "));
    let hash = plugin.sha256.as_deref().unwrap_or_default();
    let shown = if is_verbose {
        hash
    } else {
        hash.get(..SHORT_HASH).unwrap_or(hash)
    };
    row.extend([shown.to_owned(), text(&plugin.reason)]);
    if is_verbose {
        row.push(plugin.path.clone());
    }
    row
}
