//! Looks through the accounts of all projects for what carries one of our references and belongs to nothing any more.
//!
//! The cleanup queue and the ledger know what may have been left; this pass finds what nobody knew of: after a restored
//! backup, a lost database, a bug. A region that could not be listed as a whole is left alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::methods::{DeleteResourceGroupRequest, ListResourceGroupsRequest};
use dstack_backend_types::{BackendType, ErrorKind, ResourceGroup, capability};
use dstack_engine::ids::ProjectId;
use dstack_store::{DbError, backends, side_resources};
use jiff::{SignedDuration, Timestamp};

use super::Context;
use crate::clouds::call;

/// When a group was first seen whose provider tells no time, by backend and reference.
type Seen = HashMap<(String, String), Timestamp>;

/// Runs until the server stops, or not at all without an interval.
pub(super) async fn run(cx: Arc<Context>) {
    let Some(interval) = cx.settings.orphan_interval else {
        return;
    };
    let mut seen = Seen::new();
    while cx.tasks.rest(interval).await {
        match pass(&cx, &mut seen).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "deleted what no row of this server owns"),
            Err(error) => tracing::error!(%error, "cannot look for what nobody owns"),
        }
    }
}

/// One look at all accounts; how many groups were deleted, or have begun to be.
async fn pass(cx: &Context, seen: &mut Seen) -> Result<usize, DbError> {
    let all = cx.store.read(backends::all).await?;
    let all: BTreeSet<ProjectId> = all.into_iter().map(|row| row.project_id).collect();
    let mut listed = Vec::new();
    for project in all {
        for able in cx.clouds.backends(project).await {
            let groups = list(cx, project, &able.name).await;
            listed.extend(
                groups
                    .into_iter()
                    .map(|group| (project, able.name.clone(), group)),
            );
        }
    }
    let now = cx.now();
    let known: std::collections::HashSet<_> = listed.iter().map(|it| key(&it.1, &it.2)).collect();
    seen.retain(|key, _| known.contains(key));
    let mut deleted = 0;
    for (project, backend, group) in listed {
        let since = match group.created_at_us {
            Some(micros) => Timestamp::from_microsecond(micros).unwrap_or(now),
            None => *seen.entry(key(&backend, &group)).or_insert(now),
        };
        if !is_old(since, now, cx.settings.orphan_age) {
            continue;
        }
        // Asked last, so that a row written meanwhile counts.
        let reference = group.provider_ref.clone();
        let is_owned =
            move |tx: &mut dyn dstack_store::Tx| side_resources::is_owned(tx, &reference);
        if !cx.store.read(is_owned).await? && delete(cx, project, &backend, group).await {
            deleted += 1;
        }
    }
    Ok(deleted)
}

fn key(backend: &BackendType, group: &ResourceGroup) -> (String, String) {
    (backend.as_str().to_owned(), group.provider_ref.clone())
}

fn is_old(since: Timestamp, now: Timestamp, age: Duration) -> bool {
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    now.duration_since(since) >= age
}

/// The groups of the regions that could be listed as a whole.
async fn list(cx: &Context, project: ProjectId, backend: &BackendType) -> Vec<ResourceGroup> {
    let opened = match cx.clouds.open(project, backend).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::debug!(
                backend = backend.as_str(),
                error = error.message,
                "its account is not looked through"
            );
            return Vec::new();
        }
    };
    if !opened.manifest().has(capability::RESOURCE_LISTING) {
        return Vec::new();
    }
    let listed = opened.call(&ListResourceGroupsRequest::default()).await;
    let mut reply = match listed {
        Ok(reply) => reply,
        Err(error) => {
            tracing::warn!(backend = backend.as_str(), %error, "its resources cannot be listed");
            return Vec::new();
        }
    };
    for failure in &reply.failures {
        tracing::warn!(
            backend = backend.as_str(),
            region = failure.region,
            error = failure.message,
            "a region cannot be listed as a whole, so nothing is deleted there"
        );
    }
    let failures = std::mem::take(&mut reply.failures);
    let failed = |group: &ResourceGroup| failures.iter().any(|it| it.region == group.region);
    reply.groups.retain(|group| !failed(group));
    reply.groups
}

/// Whether the deletion was taken on.
async fn delete(
    cx: &Context,
    project: ProjectId,
    backend: &BackendType,
    group: ResourceGroup,
) -> bool {
    let (reference, region) = (group.provider_ref.clone(), group.region.clone());
    let order = DeleteResourceGroupRequest { group };
    match call(&*cx.clouds, project, backend, &order).await {
        Ok(_) => {}
        // The next pass goes on with it.
        Err(error) if error.kind == ErrorKind::NotYetTerminated => {}
        Err(error) => {
            tracing::warn!(
                backend = backend.as_str(),
                region,
                provider_ref = reference,
                error = error.message,
                "what nobody owns could not be deleted"
            );
            return false;
        }
    }
    tracing::warn!(
        backend = backend.as_str(),
        region,
        provider_ref = reference,
        "no row owns what was found at the provider; it is deleted"
    );
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::is_old;

    #[test]
    fn a_group_is_left_alone_until_it_has_its_age() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let age = Duration::from_secs(900);
        assert!(!is_old(at(0), at(899), age));
        assert!(is_old(at(0), at(900), age));
        assert!(!is_old(at(1000), at(0), age), "a clock that is ahead");
    }
}
