//! A measured figure beside its target and the reference's figure.

use std::fmt;

/// One line of the result. Smaller is better.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) target: f64,
    /// The reference's figure in the same unit, where one was taken.
    pub(crate) reference: Option<f64>,
}

impl Row {
    pub(crate) fn is_met(&self) -> bool {
        self.ours <= self.target
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |value: f64| format!("{value:.2} {}", self.unit);
        let reference = self.reference.map(figure).unwrap_or_default();
        let ratio = self
            .reference
            .map(|reference| format!("{:.0}x", reference / self.ours))
            .unwrap_or_default();
        let mark = if self.is_met() { "" } else { "  missed" };
        write!(
            f,
            "{:<44} {:>12} {:>12} {reference:>12} {ratio:>8}{mark}",
            self.what,
            figure(self.ours),
            figure(self.target)
        )
    }
}

/// The middle of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
