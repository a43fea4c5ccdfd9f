//! Offers and instances.
//!
//! `SimpleCloud` is for providers whose instances have nothing beside them that outlives them. If disks, addresses or keys must
//! be made and deleted apart, implement `Compute`, `CreateInstance` and `ResourceListing` instead, and declare them to the
//! host's ledger before they are made.

//? vm
use dstack_backend_sdk::{boot::ShimSetup, host, prelude::*, rest::encode, serde_json::json};
//? container
use dstack_backend_sdk::boot::{ContainerSetup, RUNNER_SSH_PORT, container_agent_urls};
use dstack_backend_sdk::{prelude::*, rest::encode, serde_json::json};
//?

use crate::backend::__Name__Backend;
//? vm
use crate::client::{self, Server};
//? container
use crate::client::{self, Pod};
//?
use crate::offers;

// FILL-IN: paths, queries, paging and bodies of every call below.
impl SimpleCloud for __Name__Backend {
    fn offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply> {
        // FILL-IN: `DiskPolicy::configurable(min_gb, max_gb)` if the disk is chosen at creation.
        self.offers.fitting(request, DiskPolicy::Fixed, || {
            offers::all(&request.requirements, &self.config.regions)
        })
    }

    fn check_account(&self) -> Result<()> {
        client::check_account(&self.api)
    }

    //? vm
    fn instances(&self, provider_ref: Option<&str>) -> Result<Vec<Instance>> {
        let tag = provider_ref.map(|reference| format!("{}:{reference}", names::PROVIDER_REF_TAG));
        let call = self.api.get("/servers");
        let call = call.query("tag", tag.unwrap_or_default());
        let servers: Vec<Server> = call.all("/servers", &Paging::cursor("after", "/next"))?;
        Ok(servers.into_iter().map(Instance::from).collect())
    }

    fn instance(&self, id: &str, _region: &str) -> Result<Option<Instance>> {
        let server = self.api.get(format!("/servers/{}", encode(id)));
        Ok(server.found::<Server>()?.map(Instance::from))
    }

    fn make(&self, request: &CreateInstanceRequest) -> Result<Instance> {
        let (offer, config) = (&request.offer, &request.config);
        let arch = offer.instance.resources.cpu_arch;
        let keys = config.ssh_keys.iter().map(|key| key.public.clone());
        let setup = ShimSetup::new(
            host::agent_urls()?,
            arch.unwrap_or(CpuArchitecture::X86),
            keys.collect(),
        );
        // The tags carry `config.provider_ref`. Without tags at the provider: `names::instance_name_with_ref`.
        let server = self.api.post("/servers").json(&json!({
            "name": names::instance_name(config, names::MAX_NAME_LEN),
            "region": offer.region,
            "plan": offer.instance.name,
            "user_data": setup.user_data(),
            "tags": tags::of_instance(config, &self.config.tags),
        }));
        Ok(server.fetch::<Server>()?.into())
    }

    fn delete(&self, id: &str, _region: &str) -> Result<()> {
        self.api.delete(format!("/servers/{}", encode(id))).gone()
    }
    //? container
    fn instances(&self, _provider_ref: Option<&str>) -> Result<Vec<Instance>> {
        let paging = Paging::cursor("after", "/next");
        let pods: Vec<Pod> = self.api.get("/pods").all("/pods", &paging)?;
        Ok(pods.into_iter().map(Instance::from).collect())
    }

    fn instance(&self, id: &str, _region: &str) -> Result<Option<Instance>> {
        let pod = self.api.get(format!("/pods/{}", encode(id)));
        Ok(pod.found::<Pod>()?.map(Instance::from))
    }

    fn run(&self, request: &RunJobRequest) -> Result<RunJobReply> {
        let (offer, job) = (&request.offer, &request.job);
        let arch = offer.instance.resources.cpu_arch;
        let mut keys = vec![request.project_key.public.trim().to_owned()];
        keys.extend_from_slice(&request.extra_authorized_keys);
        let setup = ContainerSetup::new(
            container_agent_urls()?,
            arch.unwrap_or(CpuArchitecture::X86),
            keys,
        );
        let body = json!({
            "name": names::job_name_with_ref(&request.run, job, names::MAX_NAME_LEN),
            "region": offer.region,
            "plan": offer.instance.name,
            "image": job.image_name,
            "registry": job.registry_auth,
            "user": "root",
            "command": ["/bin/sh", "-c", setup.script()],
            "ports": [RUNNER_SSH_PORT],
        });
        let pod = self.api.post("/pods").json(&body);
        run_container(self, request, || Ok(pod.fetch::<Pod>()?.into()))
    }

    fn delete(&self, id: &str, _region: &str) -> Result<()> {
        self.api.delete(format!("/pods/{}", encode(id))).gone()
    }
    //?
}
