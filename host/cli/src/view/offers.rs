//! The table of offers.

use dstack_backend_types::{InstanceAvailability, InstanceOfferWithAvailability};

use super::values;
use crate::ui::{Tone, Ui};

/// Offers as a table, with what was left out below it.
pub(crate) fn table(
    ui: &Ui,
    offers: &[InstanceOfferWithAvailability],
    total: u64,
    max_price: Option<f64>,
) -> String {
    let mut rows: Vec<Vec<String>> = offers
        .iter()
        .enumerate()
        .map(|(at, offer)| row(ui, at + 1, offer))
        .collect();
    let shown = u64::try_from(offers.len()).unwrap_or(u64::MAX);
    if total > shown {
        rows.push(vec![String::new(), "...".to_owned()]);
    }
    let mut text = ui.table(
        &["#", "BACKEND", "RESOURCES", "INSTANCE TYPE", "PRICE", ""],
        &rows,
    );
    if total > shown {
        let max = max_price
            .map(|price| format!(", {} max", values::price(price)))
            .unwrap_or_default();
        text.push_str(&format!("\n Shown {shown} of {total} offers{max}"));
    }
    text
}

fn row(ui: &Ui, number: usize, offer: &InstanceOfferWithAvailability) -> Vec<String> {
    let blocks = if offer.total_blocks > 1 {
        format!(" ({}/{})", offer.blocks, offer.total_blocks)
    } else {
        String::new()
    };
    vec![
        number.to_string(),
        values::backend(&offer.backend, &offer.region),
        values::resources(&offer.instance.resources),
        format!("{}{blocks}", offer.instance.name),
        values::price(offer.price),
        availability(ui, offer.availability),
    ]
}

fn availability(ui: &Ui, availability: InstanceAvailability) -> String {
    let tone = match availability {
        InstanceAvailability::Unknown | InstanceAvailability::Available => return String::new(),
        InstanceAvailability::Idle => Tone::Good,
        InstanceAvailability::Busy => Tone::Warn,
        InstanceAvailability::NotAvailable
        | InstanceAvailability::NoQuota
        | InstanceAvailability::NoBalance => Tone::Bad,
    };
    ui.paint(tone, &availability.as_str().replace('_', " "))
}
