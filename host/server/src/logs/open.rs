//! Which store the settings name, and whether it can be used.

use dstack_store::Store;

use super::cloudwatch::CloudWatchLogs;
use super::fluentbit::FluentBitLogs;
use super::google::GoogleLogs;
use super::{DatabaseLogs, FileLogs, LogError, LogStore, Logs};
use crate::outside::http::Http;
use crate::settings::{LogPlace, Settings};

/// Opens the store and asks it once: a wrong name and a missing right are told when the server starts.
///
/// # Errors
/// The provider refuses, or there is no login for it.
pub(crate) async fn open(store: &Store, settings: &Settings) -> Result<Logs, LogError> {
    let Some(place) = &settings.outside.logs else {
        // Files of this machine are no use to the other servers of a shared database.
        return Ok(if store.is_shared() && settings.logs_dir.is_none() {
            Logs::new(DatabaseLogs::new(store.clone()))
        } else {
            Logs::new(FileLogs::new(settings.logs_root()))
        });
    };
    let http = Http::new().await.map_err(LogError::outside("HTTP"))?;
    let outside = &settings.outside;
    match place {
        LogPlace::CloudWatch { group, region } => {
            let logs = CloudWatchLogs::new(http, &outside.aws, group, region.as_deref())?;
            let checked = logs.check_group().await;
            usable(logs, checked)
        }
        LogPlace::Google { project, endpoint } => {
            let logs = GoogleLogs::new(http, &outside.google, project, endpoint);
            let checked = logs.check().await;
            usable(logs, checked)
        }
        LogPlace::FluentBit(how) => {
            let logs = FluentBitLogs::new(http, how);
            let checked = logs.check().await;
            usable(logs, checked)
        }
    }
}

/// A provider that is out of reach just now is no reason not to start: what jobs write is kept by their runners until it is
/// taken.
fn usable(logs: impl LogStore + 'static, checked: Result<(), LogError>) -> Result<Logs, LogError> {
    match checked {
        Err(error @ LogError::Outside { is_gone: true, .. }) => {
            tracing::error!(%error, "logs cannot be stored until this is over");
        }
        other => other?,
    }
    Ok(Logs::new(logs))
}
