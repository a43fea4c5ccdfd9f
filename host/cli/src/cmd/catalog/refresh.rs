//! `dstack catalog refresh`

use dstack_backend_catalog::Refreshed;

use super::Whose;
use crate::cx::Cx;
use crate::error::CliError;
use crate::prices;

pub(super) fn run(whose: &Whose, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let done: Refreshed = match whose.server(cx)? {
        Some(here) => here.client.ask("/api/x/catalog/refresh")?,
        None => {
            let now = cx.now();
            prices::local(cx)?.refresh(now, false)
        }
    };
    if whose.json {
        cx.ui.json(&done)?;
    } else {
        for (what, names) in [
            ("new", &done.updated),
            ("the newest already", &done.unchanged),
        ] {
            if !names.is_empty() {
                cx.ui.line(format!("{what}: {}", names.join(", ")))?;
            }
        }
        for (provider, error) in &done.failed {
            cx.ui
                .warn(&format!("{provider} stays as it was: {error}"))?;
        }
        if done == Refreshed::default() {
            cx.ui.line(
                "no source is published anywhere: name some in DSTACK_CATALOG_SOURCES of the server",
            )?;
        }
    }
    if done.failed.is_empty() {
        Ok(())
    } else {
        Err(CliError::Quiet)
    }
}
