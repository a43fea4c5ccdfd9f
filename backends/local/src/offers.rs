//! This machine as an offer.

use crate::config::Runtime;
use dstack_backend_sdk::BackendError;
use dstack_backend_sdk::types::{
    BackendType, CpuArchitecture, Disk, Gpu, InstanceAvailability, InstanceOffer,
    InstanceOfferWithAvailability, InstanceType, Requirements, Resources,
    gpus::nvidia_model,
    matching,
    services::{MachineFacts, MachineGpu},
};

/// Region and type of the one machine.
pub(crate) const NAME: &str = "local";
/// What configurations ask for unless they say something; meant for cloud disks, which can be made to measure.
const UNASKED_DISK_GB: f64 = 100.0;

/// What a job would run in. `can_have_image` tells whether Docker has its image, or can get it; it is asked only if an
/// engine answers.
pub(crate) fn runs_in(
    facts: &MachineFacts,
    runtime: Runtime,
    can_have_image: impl FnOnce() -> Result<bool, BackendError>,
) -> Result<Runtime, BackendError> {
    Ok(match runtime {
        Runtime::Auto if facts.has_docker && can_have_image()? => Runtime::Docker,
        Runtime::Auto => Runtime::Process,
        fixed => fixed,
    })
}

/// The offer. `backend_data.runtime` says what the job would run in now.
pub(crate) fn offer(facts: &MachineFacts, runs_in: Runtime) -> InstanceOfferWithAvailability {
    let is_usable = facts.has_agents && (runs_in != Runtime::Docker || facts.has_docker);
    let resources = Resources {
        cpus: facts.cpus,
        memory_mib: facts.memory_mib,
        gpus: facts.gpus.iter().map(gpu).collect(),
        spot: false,
        disk: Disk {
            size_mib: facts.disk_mib,
        },
        cpu_arch: Some(if facts.cpu_arch == "arm" {
            CpuArchitecture::Arm
        } else {
            CpuArchitecture::X86
        }),
        description: String::new(),
    };
    let offer = InstanceOffer {
        backend: BackendType::LOCAL,
        instance: InstanceType {
            name: NAME.to_owned(),
            resources,
        },
        region: NAME.to_owned(),
        price: 0.0,
        backend_data: [("runtime".to_owned(), runs_in.as_str().into())]
            .into_iter()
            .collect(),
    };
    let availability = if is_usable {
        InstanceAvailability::Available
    } else {
        InstanceAvailability::NotAvailable
    };
    InstanceOfferWithAvailability::new(offer, availability)
}

fn gpu(found: &MachineGpu) -> Gpu {
    Gpu {
        name: nvidia_model(&found.name),
        memory_mib: found.memory_mib,
        vendor: None,
    }
}

/// Whether the machine fits. Its disk is shared with everything else on it, so only a wish above the default is looked at.
pub(crate) fn fits(offer: &InstanceOfferWithAvailability, requirements: &Requirements) -> bool {
    if requirements.reservation.is_some() || !matching::matches_without_disk(offer, requirements) {
        return false;
    }
    let asked_gb = requirements
        .resources
        .disk
        .as_ref()
        .and_then(|disk| disk.size.min)
        .map_or(0.0, |min| min.0);
    let asked_mib = asked_gb * 1024.0;
    #[allow(clippy::cast_precision_loss, reason = "disks have fewer than 2^52 MiB")]
    let has_mib = offer.instance.resources.disk.size_mib as f64;
    asked_gb <= UNASKED_DISK_GB || asked_mib <= has_mib
}

#[cfg(test)]
mod tests {
    use super::{Runtime, fits, offer, runs_in};
    use dstack_backend_sdk::types::{
        InstanceAvailability, Requirements,
        resources::{DiskSpec, ResourcesSpec},
        services::{MachineFacts, MachineGpu},
    };

    fn facts() -> MachineFacts {
        MachineFacts {
            cpus: 4,
            memory_mib: 16_384,
            disk_mib: 40 * 1024,
            has_agents: true,
            ..MachineFacts::default()
        }
    }

    #[test]
    fn auto_takes_docker_only_if_an_engine_can_have_the_image() {
        for (has_docker, has_image, runtime, word, is_available) in [
            (false, true, Runtime::Auto, "process", true),
            (true, true, Runtime::Auto, "docker", true),
            (true, false, Runtime::Auto, "process", true),
            (true, true, Runtime::Process, "process", true),
            (true, false, Runtime::Docker, "docker", true),
            (false, true, Runtime::Docker, "docker", false),
        ] {
            let facts = MachineFacts {
                has_docker,
                ..facts()
            };
            let offer = offer(&facts, runs_in(&facts, runtime, || Ok(has_image)).unwrap());
            assert_eq!(offer.backend_data["runtime"], word);
            assert_eq!(
                offer.availability == InstanceAvailability::Available,
                is_available,
                "{runtime:?} {has_docker}"
            );
        }
    }

    #[test]
    fn without_agents_it_is_not_available() {
        let offer = offer(
            &MachineFacts {
                has_agents: false,
                ..facts()
            },
            Runtime::Process,
        );
        assert_eq!(offer.availability, InstanceAvailability::NotAvailable);
    }

    #[test]
    fn the_default_disk_is_not_asked_of_a_small_machine_but_more_is() {
        let offer = offer(&facts(), Runtime::Process);
        assert!(fits(&offer, &Requirements::of(ResourcesSpec::default())));
        let more = ResourcesSpec {
            disk: Some(DiskSpec::at_least(200.0)),
            ..ResourcesSpec::default()
        };
        assert!(!fits(&offer, &Requirements::of(more)));
    }

    #[test]
    fn gpus_are_named_by_their_model() {
        let found = MachineGpu {
            vendor: "nvidia".to_owned(),
            name: "NVIDIA A100-SXM4-40GB".to_owned(),
            memory_mib: 40_960,
        };
        let offer = offer(
            &MachineFacts {
                gpus: vec![found],
                ..facts()
            },
            Runtime::Process,
        );
        assert_eq!(offer.instance.resources.gpus[0].name, "A100");
    }
}
