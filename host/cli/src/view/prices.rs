//! Prices of the catalog.

use dstack_backend_catalog::{Found, ProviderStatus};
use dstack_backend_types::{BackendType, InstanceOfferWithAvailability as Offer};
use jiff::Timestamp;

use super::values;
use crate::prices::origin;
use crate::ui::Ui;

/// Where the rows of each provider are from.
pub(crate) fn status(ui: &Ui, all: &[ProviderStatus], now: Timestamp) -> String {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let age = match (&one.as_of, one.fetched_at) {
                (Some(date), _) => date.clone(),
                (None, Some(time)) => values::ago(time, now),
                (None, None) => "-".to_owned(),
            };
            let skipped = match one.bad_rows {
                0 => String::new(),
                count => format!(" ({count} unusable)"),
            };
            vec![
                one.provider.clone(),
                format!("{}{skipped}", one.rows),
                one.locations.to_string(),
                one.version.clone().unwrap_or_else(|| "-".to_owned()),
                age,
                one.checked_at
                    .map_or_else(|| "-".to_owned(), |time| values::ago(time, now)),
                one.source.clone().unwrap_or_else(|| "-".to_owned()),
                one.error.clone().unwrap_or_default(),
            ]
        })
        .collect();
    ui.table(
        &[
            "PROVIDER",
            "ROWS",
            "LOCATIONS",
            "VERSION",
            "PRICES",
            "CHECKED",
            "SOURCE",
            "ERROR",
        ],
        &rows,
    )
}

/// Rows of a search.
pub(crate) fn rows(ui: &Ui, found: &Found) -> String {
    let cells = found.items.iter().map(|one| {
        let instance = one.item.instance();
        let flags = one.item.flags.join(" ");
        vec![
            values::backend(&BackendType::new(one.provider.clone()), &one.item.location),
            values::resources(&instance.resources),
            instance.name,
            values::price(one.item.price),
            flags,
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let mut text = ui.table(
        &["PROVIDER", "RESOURCES", "INSTANCE TYPE", "PRICE", ""],
        &cells,
    );
    text.push_str(&shown(found));
    text
}

/// What of a catalog fits a run, below the offers of what is set up.
pub(crate) fn offers(ui: &Ui, offers: &[Offer], found: &Found) -> String {
    let cells: Vec<Vec<String>> = offers
        .iter()
        .enumerate()
        .map(|(at, offer)| {
            vec![
                (at + 1).to_string(),
                values::backend(&offer.backend, &offer.region),
                values::resources(&offer.instance.resources),
                offer.instance.name.clone(),
                values::price(offer.price),
            ]
        })
        .collect();
    let mut text = ui.table(
        &["#", "BACKEND", "RESOURCES", "INSTANCE TYPE", "PRICE"],
        &cells,
    );
    text.push_str(&shown(found));
    text
}

fn shown(found: &Found) -> String {
    let max = found
        .max_price
        .map(|price| format!(", {} max", values::price(price)))
        .unwrap_or_default();
    let count = match (found.items.len(), found.total) {
        (shown, total) if shown < total => format!("Shown {shown} of {total}{max}; "),
        _ => String::new(),
    };
    format!("\n {count}{}", origin(found))
}

/// An error with what led to it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(&format!(": {next}"));
        source = next.source();
    }
    text
}
