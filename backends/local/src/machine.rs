//! An instance here: one shim with a home of its own.

use crate::{config::Runtime, offers};
use dstack_backend_sdk::{
    BackendError, ErrorKind,
    host::{self, machine as this_machine},
    types::{
        BackendType, InstanceConfiguration, InstanceOfferWithAvailability, JobProvisioningData,
        listing::{CloudResource, ResourceGroup},
        methods::Done,
        services::{FoundShim, ShimState},
    },
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A shim answers within a fraction of this; what takes longer is found by the next look.
const FIRST_LOOK: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// Before the reference in the id of an instance, which is the name of its home too.
const PREFIX: &str = "local-";
const ADDRESS: &str = "127.0.0.1";

/// `backend_data` of a local instance: how the host reaches the shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalData {
    /// The shim's state folder.
    pub home: String,
    /// Its Unix socket.
    pub socket: String,
    /// The shim's `--runtime`.
    pub runtime: String,
}

/// Starts the shim. The same `provider_ref` gives the same home, so a repeated call finds the first one's shim.
pub(crate) fn create(
    offer: &InstanceOfferWithAvailability,
    config: &InstanceConfiguration,
    runtime: Runtime,
) -> Result<JobProvisioningData, BackendError> {
    let instance_id = match &config.provider_ref {
        Some(reference) => instance_id(reference),
        None => instance_id(&random_name()?),
    };
    check(&instance_id)?;
    // Not the offer's word: the machine may be kept for jobs with other images than the first one's.
    let runtime = runtime.as_str().to_owned();
    let shim = started(&instance_id, &runtime)?;
    let data = LocalData {
        home: shim.home.clone(),
        socket: shim.socket.clone(),
        runtime,
    };
    let data = serde_json::to_string(&data).map_err(|e| BackendError::internal(e.to_string()))?;
    Ok(with_address(
        JobProvisioningData {
            backend: BackendType::LOCAL,
            base_backend: None,
            instance_type: offer.instance.clone(),
            instance_id,
            hostname: None,
            internal_ip: None,
            public_ip_enabled: false,
            instance_network: None,
            region: offer.region.clone(),
            availability_zone: None,
            reservation: None,
            price: offer.price,
            username: "root".to_owned(),
            ssh_port: None,
            // No machine to log in to: clients go straight to the job's own sshd, where there is one.
            dockerized: false,
            ssh_proxy: None,
            backend_data: Some(data),
            gpu_driver: None,
        },
        &shim,
    ))
}

/// Sets the address as soon as the shim answers. One whose keeper died, or that a reboot ended, is started again and
/// finds its tasks.
pub(crate) fn update(data: JobProvisioningData) -> Result<JobProvisioningData, BackendError> {
    check(&data.instance_id)?;
    let mut shim = this_machine::find_shim(&data.instance_id)?;
    if !shim.is_running {
        let notes = data.backend_data.as_deref().unwrap_or_default();
        let known: LocalData = serde_json::from_str(notes)
            .map_err(|error| BackendError::provisioning(format!("backend_data: {error}")))?;
        shim = started(&data.instance_id, &known.runtime)?;
    }
    Ok(with_address(data, &shim))
}

/// Starts a shim, or finds the one that runs, and waits a moment for its first answer.
fn started(instance_id: &str, runtime: &str) -> Result<ShimState, BackendError> {
    let flags = vec!["--runtime".to_owned(), runtime.to_owned()];
    let mut shim = this_machine::start_shim(instance_id, flags)?;
    for _ in 0..FIRST_LOOK.as_millis() / PAUSE.as_millis() {
        if shim.is_ready {
            break;
        }
        host::sleep(PAUSE)?;
        shim = this_machine::find_shim(instance_id)?;
    }
    Ok(shim)
}

/// Ends the shim and everything it runs.
pub(crate) fn terminate(instance_id: &str) -> Result<Done, BackendError> {
    check(instance_id)?;
    this_machine::stop_shim(instance_id)?;
    Ok(Done {})
}

pub(crate) fn instance_id(provider_ref: &str) -> String {
    format!("{PREFIX}{provider_ref}")
}

/// A home as a group; `None` if no instance of ours can have it.
pub(crate) fn group(shim: FoundShim) -> Option<ResourceGroup> {
    check(&shim.name).ok()?;
    let provider_ref = shim.name.strip_prefix(PREFIX)?.to_owned();
    let instance = CloudResource {
        kind: "instance".to_owned(),
        id: shim.name.clone(),
        name: None,
    };
    Some(ResourceGroup {
        provider_ref,
        region: offers::NAME.to_owned(),
        primary_id: Some(shim.name),
        created_at_us: shim.created_at_us,
        resources: vec![instance],
        backend_data: None,
    })
}

fn with_address(mut data: JobProvisioningData, shim: &ShimState) -> JobProvisioningData {
    if shim.is_ready {
        data.hostname = Some(ADDRESS.to_owned());
        data.internal_ip = Some(ADDRESS.to_owned());
        data.ssh_port = Some(10022);
    }
    data
}

/// The id names a folder, so it must be nothing but a name.
fn check(instance_id: &str) -> Result<(), BackendError> {
    let is_name = instance_id.strip_prefix(PREFIX).is_some_and(|rest| {
        (1..=64).contains(&rest.len())
            && rest
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    });
    if is_name {
        return Ok(());
    }
    Err(BackendError::new(
        ErrorKind::Invalid,
        format!("{instance_id:?} is no id of a local instance"),
    ))
}

fn random_name() -> Result<String, BackendError> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz012345";
    let bytes = host::random(16)?;
    Ok(bytes
        .iter()
        .filter_map(|byte| LETTERS.get(usize::from(byte % 32)))
        .map(|letter| char::from(*letter))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn only_names_are_ids() {
        assert!(check("local-0123456789abcdef").is_ok());
        for id in [
            "local-",
            "local-../x",
            "/etc",
            "local-A",
            "local",
            "remote-1",
        ] {
            assert!(check(id).is_err(), "{id}");
        }
    }
}
