//! Offers and machines. A machine has a disk beside it, which outlives it unless it is deleted.

use dstack_backend_sdk::capabilities::CreateInstance;
use dstack_backend_sdk::host::{self, ledger};
use dstack_backend_sdk::types::methods::{
    CreateInstanceReply, CreateInstanceRequest, Done, GetOffersReply, GetOffersRequest,
    HealthReply, HealthRequest, RunJobReply, RunJobRequest, TerminateInstanceRequest,
    UpdateProvisioningDataReply, UpdateProvisioningDataRequest,
};
use dstack_backend_sdk::types::services::SideResource;
use dstack_backend_sdk::types::{
    InstanceConfiguration, InstanceOfferWithAvailability, JobProvisioningData, matching,
};
use dstack_backend_sdk::{Backend, BackendError, Compute, names, run_job_on_new_instance};
use serde_json::{Value, from_value, json};

use crate::cloud::{Cloud, Disk, Machine};
use crate::config::{Config, Defect, WrongConfigurator};

/// One account.
#[derive(Debug)]
pub struct Wrong {
    pub(crate) cloud: Cloud,
}

impl Backend for Wrong {
    type Configurator = WrongConfigurator;

    fn new(config: Config) -> Result<Self, BackendError> {
        config.refuses()?;
        Ok(Self {
            cloud: Cloud::new(&config),
        })
    }
}

impl Wrong {
    fn offer(&self, item: &Value) -> Option<InstanceOfferWithAvailability> {
        let mut memory = item.get("memory_gib")?.as_u64()? * 1024;
        let mut gpus = item.get("gpus")?.clone();
        let mut price = item.get("price")?.as_f64()?;
        if self.cloud.has(Defect::GibMemory) {
            memory /= 1024;
        }
        if self.cloud.has(Defect::NegativePrice) {
            price = -price;
        }
        if self.cloud.has(Defect::VendorGpuName) {
            for gpu in gpus.as_array_mut()? {
                gpu["name"] = json!(format!("NVIDIA {}-SXM4-80GB", gpu["name"].as_str()?));
            }
        }
        from_value(json!({
            "backend": "wrong",
            "instance": {"name": item.get("name")?, "resources": {
                "cpus": item.get("cpus")?, "memory_mib": memory, "gpus": gpus,
                "disk": {"size_mib": 204_800}, "cpu_arch": "x86",
            }},
            "region": item.get("region")?, "price": price, "availability": "available",
        }))
        .ok()
    }

    fn disk_of(config: &InstanceConfiguration, region: &str) -> SideResource {
        let provider_ref = config.provider_ref.clone().unwrap_or_default();
        SideResource {
            kind: "disk".to_owned(),
            name: format!("dstack-disk-r{provider_ref}"),
            region: region.to_owned(),
            provider_ref,
            ..SideResource::default()
        }
    }

    /// The disk of a machine that is to be made.
    fn make_disk(
        &self,
        config: &InstanceConfiguration,
        region: &str,
    ) -> Result<Disk, BackendError> {
        let side = Self::disk_of(config, region);
        let is_late = self.cloud.has(Defect::LedgerAfter);
        if !is_late && !self.cloud.has(Defect::ForgetsDisk) {
            ledger::declare(&side)?;
        }
        let known: Vec<Disk> = self
            .cloud
            .list(&format!("/v1/disks?reference={}", side.provider_ref))?;
        let disk = match known.into_iter().next() {
            Some(disk) => disk,
            None => {
                let body =
                    json!({"name": side.name, "reference": side.provider_ref, "region": region});
                self.cloud.post("/v1/disks", &body)?
            }
        };
        if is_late {
            ledger::declare(&side)?;
        }
        Ok(disk)
    }

    pub(crate) fn machine(&self, id: &str) -> Result<Option<Machine>, BackendError> {
        self.cloud.find(&format!("/v1/machines/{id}"))
    }
}

impl Compute for Wrong {
    fn get_offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        let items: Vec<Value> = self.cloud.list("/v1/types")?;
        let mut offers: Vec<_> = items.iter().filter_map(|item| self.offer(item)).collect();
        if !self.cloud.has(Defect::UnfilteredOffers) {
            offers.retain(|offer| matching::matches(offer, &request.requirements));
        }
        offers.sort_by(|a, b| a.price.total_cmp(&b.price));
        if self.cloud.has(Defect::UnsortedOffers) {
            offers.reverse();
        }
        if self.cloud.has(Defect::DoubleOffers) {
            host::emit(&GetOffersReply {
                offers: offers.clone(),
            })?;
        }
        Ok(GetOffersReply { offers })
    }

    fn run_job(&self, request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        run_job_on_new_instance(self, request)
    }

    fn terminate_instance(&self, request: &TerminateInstanceRequest) -> Result<Done, BackendError> {
        let id = &request.instance_id;
        if self.cloud.has(Defect::TerminateLies) {
            // No error is an error.
            drop(self.cloud.get("/v1/account"));
            return Ok(Done {});
        }
        if let Some(machine) = self.machine(id)? {
            if machine.state != "deleting" {
                self.cloud.delete(&format!("/v1/machines/{id}"))?;
            }
            return Err(BackendError::not_yet_terminated(format!(
                "{id} is shutting down"
            )));
        }
        let Some(disk) = &request.backend_data else {
            return Ok(Done {});
        };
        if self.cloud.has(Defect::ForgetsDisk) {
            return Ok(Done {});
        }
        let was_there = self.cloud.delete(&format!("/v1/disks/{disk}"))?;
        if !was_there && self.cloud.has(Defect::UnknownIsAnError) {
            return Err(BackendError::not_found("no such machine"));
        }
        Ok(Done {})
    }

    fn update_provisioning_data(
        &self,
        request: &UpdateProvisioningDataRequest,
    ) -> Result<UpdateProvisioningDataReply, BackendError> {
        let mut data = request.provisioning_data.clone();
        let Some(machine) = self.machine(&data.instance_id)? else {
            if self.cloud.has(Defect::GoneIsStarting) {
                return Ok(UpdateProvisioningDataReply {
                    provisioning_data: data,
                });
            }
            return Err(BackendError::provisioning("the machine is gone"));
        };
        if machine.state == "failed" && !self.cloud.has(Defect::IgnoresLateFailure) {
            return Err(BackendError::provisioning(
                "the provider could not start the machine",
            ));
        }
        if let Some(address) = machine.address
            && !self.cloud.has(Defect::NeverReady)
        {
            data.hostname = Some(address);
            data.ssh_port = Some(22);
        }
        if self.cloud.has(Defect::ChangesId) && data.hostname.is_some() {
            data.instance_id.push('x');
        }
        Ok(UpdateProvisioningDataReply {
            provisioning_data: data,
        })
    }

    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        if self.cloud.has(Defect::Abort) {
            std::process::abort();
        }
        self.cloud.get("/v1/account")?;
        Ok(HealthReply::default())
    }
}

impl CreateInstance for Wrong {
    fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<CreateInstanceReply, BackendError> {
        let (offer, config) = (&request.offer, &request.config);
        let reference = config.provider_ref.clone().unwrap_or_default();
        let known: Vec<Machine> = if self.cloud.has(Defect::NotIdempotent) {
            Vec::new()
        } else if self.cloud.has(Defect::FirstMachine) {
            self.cloud.list("/v1/machines")?
        } else {
            self.cloud
                .list(&format!("/v1/machines?reference={reference}"))?
        };
        let machine = match known.into_iter().next() {
            Some(machine) => machine,
            None => {
                let disk = self.make_disk(config, &offer.region)?;
                let told = if self.cloud.has(Defect::NoReference) {
                    ""
                } else {
                    reference.as_str()
                };
                self.cloud.post(
                    "/v1/machines",
                    &json!({
                        "name": names::instance_name_with_ref(config, names::MAX_NAME_LEN),
                        "reference": told, "type": offer.instance.name, "region": offer.region,
                        "disk": disk.id,
                    }),
                )?
            }
        };
        let region = if self.cloud.has(Defect::WrongRegion) {
            "elsewhere"
        } else {
            offer.region.as_str()
        };
        let data: JobProvisioningData = from_value(json!({
            "backend": offer.backend, "instance_type": offer.instance, "instance_id": machine.id,
            "region": region, "price": offer.price, "username": "ubuntu", "dockerized": true,
            "backend_data": machine.disk,
        }))
        .map_err(|error| BackendError::internal(error.to_string()))?;
        Ok(CreateInstanceReply {
            provisioning_data: data,
        })
    }
}
