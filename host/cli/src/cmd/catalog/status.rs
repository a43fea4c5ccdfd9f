//! `dstack catalog status`

use dstack_backend_catalog::ProviderStatus;

use super::Whose;
use crate::cx::Cx;
use crate::error::CliError;
use crate::{prices, view};

pub(super) fn run(whose: &Whose, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let status: Vec<ProviderStatus> = match whose.server(cx)? {
        Some(here) => here.client.ask("/api/x/catalog/status")?,
        None => prices::local(cx)?.status(),
    };
    if whose.json {
        return cx.ui.json(&status);
    }
    let now = cx.now();
    let table = view::prices::status(&cx.ui, &status, now);
    cx.ui.line(table)
}
