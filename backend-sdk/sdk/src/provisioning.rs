//! What a backend returns of something it has just made, with everything that is mostly the same filled in.
//!
//! ```
//! # use dstack_backend_sdk::types::{InstanceOfferWithAvailability, JobProvisioningData};
//! use dstack_backend_sdk::provisioning;
//! fn made(offer: &InstanceOfferWithAvailability, id: &str) -> JobProvisioningData {
//!     JobProvisioningData {
//!         internal_ip: Some("10.0.0.7".to_owned()),
//!         ..provisioning::machine(offer, id, "ubuntu")
//!     }
//! }
//! # let _ = made;
//! ```

use dstack_backend_types::{
    BackendError, BackendType, CloudResource, InstanceOfferWithAvailability, JobProvisioningData,
    ResourceGroup, VolumeProvisioningData,
};

/// A machine without an address yet, on which the shim will run; `user` may log in by SSH at port 22. The first zone of the offer
/// is taken as the machine's.
pub fn machine(
    offer: &InstanceOfferWithAvailability,
    instance_id: impl Into<String>,
    user: &str,
) -> JobProvisioningData {
    let mut zones = offer.availability_zones.iter().flatten();
    JobProvisioningData {
        backend: offer.backend.clone(),
        base_backend: None,
        instance_type: offer.instance.clone(),
        instance_id: instance_id.into(),
        hostname: None,
        internal_ip: None,
        public_ip_enabled: true,
        instance_network: None,
        region: offer.region.clone(),
        availability_zone: zones.next().cloned(),
        reservation: None,
        price: offer.price,
        username: user.to_owned(),
        ssh_port: Some(22),
        dockerized: true,
        ssh_proxy: None,
        backend_data: None,
        gpu_driver: None,
    }
}

/// A container without an address yet, whose entry point is the runner. Its SSH port is the provider's to say.
pub fn container(
    offer: &InstanceOfferWithAvailability,
    instance_id: impl Into<String>,
) -> JobProvisioningData {
    JobProvisioningData {
        ssh_port: None,
        dockerized: false,
        ..machine(offer, instance_id, "root")
    }
}

/// A network volume that is attached to and detached from running machines.
pub fn volume(backend: &str, volume_id: impl Into<String>) -> VolumeProvisioningData {
    VolumeProvisioningData {
        backend: Some(BackendType::new(backend.to_owned())),
        volume_id: volume_id.into(),
        size_gb: None,
        availability_zone: None,
        price: None,
        attachable: true,
        detachable: true,
        backend_data: None,
    }
}

/// Makes something once: `find` looks for what an earlier call with this reference has made, only without it `make` makes it.
///
/// The host repeats a call whose answer was lost, with the same `provider_ref`; without a reference nothing can be found.
///
/// # Errors
/// Those of `find` and `make`.
pub fn once<T>(
    provider_ref: Option<&str>,
    find: impl FnOnce(&str) -> Result<Option<T>, BackendError>,
    make: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    match provider_ref.map(find).transpose()?.flatten() {
        Some(found) => Ok(found),
        None => make(),
    }
}

/// An instance of the account, for a listing of groups. Nothing was made beside it.
pub fn group(
    provider_ref: impl Into<String>,
    region: impl Into<String>,
    instance_id: impl Into<String>,
) -> ResourceGroup {
    let id: String = instance_id.into();
    ResourceGroup {
        provider_ref: provider_ref.into(),
        region: region.into(),
        primary_id: Some(id.clone()),
        created_at_us: None,
        resources: vec![CloudResource {
            kind: "instance".to_owned(),
            id,
            name: None,
        }],
        backend_data: None,
    }
}

/// The error of a deletion that goes on: the host calls again in a few seconds.
pub fn still_there(what: &str) -> BackendError {
    BackendError::not_yet_terminated(format!("{what} is being deleted"))
}

#[cfg(test)]
mod tests {
    use super::once;
    use dstack_backend_types::BackendError;

    #[test]
    fn what_was_made_is_not_made_again() {
        let found = |_: &str| Ok(Some("old"));
        let make = || Ok("new");
        assert_eq!(once(Some("r"), found, make).unwrap(), "old");
        assert_eq!(once(Some("r"), |_| Ok(None), make).unwrap(), "new");
        assert_eq!(once(None, found, make).unwrap(), "new");
        let failed = |_: &str| Err(BackendError::internal("unknown"));
        assert!(
            once(Some("r"), failed, make).is_err(),
            "unsure is not unmade"
        );
    }
}
