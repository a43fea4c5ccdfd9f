//! When runs with a schedule fire.

use dstack_api::config::Cron;
use jiff::Timestamp;

/// The earliest next time of any of the expressions after `now`; missed ones are skipped. `None` if there is none.
pub fn next(crons: &[Cron], now: Timestamp) -> Option<Timestamp> {
    crons.iter().filter_map(|cron| cron.next(now)).min()
}
