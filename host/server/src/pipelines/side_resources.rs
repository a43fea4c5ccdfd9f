//! Deletes what backends made beside machines that are gone: the entries of the ledger that nobody owns any more.

use std::collections::BTreeMap;

use dstack_backend_types::{BackendError, CloudResource, ErrorKind, ResourceGroup};
use dstack_store::DbError;
use dstack_store::side_resources::{self, LedgerEntry};
use jiff::SignedDuration;

use super::{Context, cleanup, turn};

/// Entries in one pass.
const BATCH: u32 = 256;
/// When entries of a living machine are looked at again.
const OWNED_AGAIN: SignedDuration = SignedDuration::from_mins(10);
/// When a backend is asked again to go on with what it has begun to delete.
const BEGUN_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// Works on what is due; how many entries are done with.
pub(super) async fn pass(cx: &Context) -> Result<usize, DbError> {
    let now = cx.now();
    let due = cx
        .store
        .read(move |tx| {
            let mut due = Vec::new();
            for entry in side_resources::due(tx, now, BATCH)? {
                let is_owned = side_resources::is_owned(tx, &entry.resource.provider_ref)?;
                due.push((entry, is_owned));
            }
            Ok(due)
        })
        .await?;
    let (owned, left): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, is_owned)| *is_owned);
    later(cx, entries(owned), OWNED_AGAIN, false).await?;
    let mut done = 0;
    for group in groups(entries(left)) {
        if !turn::take(cx, cleanup::TURN).await? {
            break;
        }
        done += end(cx, group).await?;
    }
    Ok(done)
}

fn entries(with_mark: Vec<(LedgerEntry, bool)>) -> Vec<LedgerEntry> {
    with_mark.into_iter().map(|(entry, _)| entry).collect()
}

/// Entries that are deleted by one call.
fn groups(entries: Vec<LedgerEntry>) -> Vec<Vec<LedgerEntry>> {
    let mut groups: BTreeMap<_, Vec<LedgerEntry>> = BTreeMap::new();
    for entry in entries {
        let key = (
            entry.project_id,
            entry.backend.as_str().to_owned(),
            entry.resource.region.clone(),
            entry.resource.provider_ref.clone(),
        );
        groups.entry(key).or_default().push(entry);
    }
    groups.into_values().collect()
}

/// The group as the backend is asked to delete it. Attributes come back in its data: kind to name to attributes.
fn order(entries: &[LedgerEntry]) -> Option<ResourceGroup> {
    let first = entries.first()?;
    let mut attributes: BTreeMap<&str, BTreeMap<&str, _>> = BTreeMap::new();
    for LedgerEntry { resource, .. } in entries {
        let of_kind = attributes.entry(&resource.kind).or_default();
        of_kind.insert(&resource.name, &resource.attributes);
    }
    let resources = entries.iter().map(|entry| CloudResource {
        kind: entry.resource.kind.clone(),
        id: entry
            .resource
            .id
            .clone()
            .unwrap_or_else(|| entry.resource.name.clone()),
        name: Some(entry.resource.name.clone()),
    });
    let oldest = entries.iter().map(|entry| entry.declared_at).min();
    Some(ResourceGroup {
        provider_ref: first.resource.provider_ref.clone(),
        region: first.resource.region.clone(),
        primary_id: None,
        created_at_us: oldest.map(jiff::Timestamp::as_microsecond),
        resources: resources.collect(),
        backend_data: serde_json::to_string(&attributes).ok(),
    })
}

async fn end(cx: &Context, entries: Vec<LedgerEntry>) -> Result<usize, DbError> {
    let (Some(first), Some(group)) = (entries.first(), order(&entries)) else {
        return Ok(0);
    };
    let ended = cx
        .clouds
        .delete_group(first.project_id, &first.backend, group)
        .await;
    let error = match ended {
        Ok(()) => return settle(cx, entries).await,
        Err(error) if error.kind == ErrorKind::NotFound && is_answer_of_backend(&error) => {
            return settle(cx, entries).await;
        }
        Err(error) => error,
    };
    if error.kind == ErrorKind::NotYetTerminated {
        later(cx, entries, BEGUN_AGAIN, true).await?;
        return Ok(0);
    }
    let wait = 5 << first.attempts.min(9);
    let (backend, provider_ref) = (first.backend.as_str(), &first.resource.provider_ref);
    tracing::warn!(
        backend,
        provider_ref,
        error = error.message,
        wait_s = wait,
        "what was made beside a machine could not be deleted yet"
    );
    later(cx, entries, SignedDuration::from_secs(wait), true).await?;
    Ok(0)
}

/// A backend that was taken from the project gives `not_found` too, and then nothing is known.
fn is_answer_of_backend(error: &BackendError) -> bool {
    !crate::clouds::is_no_backend(error)
}

async fn settle(cx: &Context, entries: Vec<LedgerEntry>) -> Result<usize, DbError> {
    let count = entries.len();
    cx.store
        .write(move |tx| {
            entries.iter().try_for_each(|entry| {
                let resource = &entry.resource;
                side_resources::settle(
                    tx,
                    entry.project_id,
                    &entry.backend,
                    &resource.provider_ref,
                    &resource.kind,
                    &resource.name,
                )
            })
        })
        .await?;
    Ok(count)
}

async fn later(
    cx: &Context,
    entries: Vec<LedgerEntry>,
    wait: SignedDuration,
    was_tried: bool,
) -> Result<(), DbError> {
    if entries.is_empty() {
        return Ok(());
    }
    let now = cx.now();
    let at = now.saturating_add(wait).unwrap_or(now);
    cx.store
        .write(move |tx| {
            entries
                .iter()
                .try_for_each(|entry| side_resources::later(tx, entry, at, was_tried))
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::{groups, order};
    use dstack_backend_types::{BackendType, services::SideResource};
    use dstack_engine::ids::ProjectId;
    use dstack_store::side_resources::LedgerEntry;
    use jiff::Timestamp;
    use serde_json::json;
    use uuid::Uuid;

    fn entry(provider_ref: &str, kind: &str, id: Option<&str>) -> LedgerEntry {
        LedgerEntry {
            project_id: ProjectId(Uuid::nil()),
            backend: BackendType::new("acme"),
            resource: SideResource {
                provider_ref: provider_ref.to_owned(),
                kind: kind.to_owned(),
                name: format!("{kind}-r{provider_ref}"),
                region: "north".to_owned(),
                id: id.map(str::to_owned),
                attributes: serde_json::from_value(json!({"zone": "a"})).unwrap(),
            },
            declared_at: Timestamp::UNIX_EPOCH,
            attempts: 0,
        }
    }

    #[test]
    fn what_belongs_together_is_deleted_by_one_call() {
        let all = vec![
            entry("one", "disk", Some("d-1")),
            entry("two", "disk", None),
            entry("one", "ip", None),
        ];
        let groups = groups(all);
        assert_eq!(groups.len(), 2);
        let group = order(&groups[0]).unwrap();
        assert_eq!(
            (group.provider_ref.as_str(), group.primary_id),
            ("one", None)
        );
        let ids: Vec<&str> = group.resources.iter().map(|it| it.id.as_str()).collect();
        // Without an id the name is what the backend has to find it by.
        assert_eq!(ids, ["d-1", "ip-rone"]);
        let data: serde_json::Value =
            serde_json::from_str(group.backend_data.as_deref().unwrap()).unwrap();
        assert_eq!(data["ip"]["ip-rone"]["zone"], "a");
    }
}
