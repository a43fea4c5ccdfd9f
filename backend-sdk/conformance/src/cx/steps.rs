//! Listing offers, making a machine, waiting for it, deleting it.

use std::time::Duration;

use dstack_backend_types::methods::{
    CreateInstanceRequest, DeleteResourceGroupRequest, GetOffersReply, GetOffersRequest,
    ListResourceGroupsRequest, RunJobRequest, TerminateInstanceRequest,
    UpdateProvisioningDataRequest,
};
use dstack_backend_types::{
    BackendError, CloudResource, ErrorKind, InstanceOfferWithAvailability, JobProvisioningData,
    Method, Requirements, ResourceGroup, ResourcesSpec, capability,
};

use super::{Cx, fail, show, show_error};
use crate::calls::Caller;
use crate::checks::Stop;
use crate::samples;

/// The host comes back after so long.
const PAUSE: Duration = Duration::from_secs(5);
const TERMINATIONS: u32 = 120;

/// What `get_offers` came to.
pub(crate) struct Listing {
    /// Sizes of the parts, the reply last.
    pub(crate) parts: Vec<usize>,
    pub(crate) offers: Vec<InstanceOfferWithAvailability>,
}

/// Whether a job was refused that brings a login to its image's registry: nothing else of it can be unsupported.
pub(crate) fn is_without_login<T>(answer: &Result<T, BackendError>) -> bool {
    matches!(answer, Err(error) if error.kind == ErrorKind::Unsupported)
}

impl Cx<'_> {
    /// Offers for these requirements, parts and reply together.
    pub(crate) fn list(
        &self,
        caller: &Caller,
        requirements: Requirements,
    ) -> Result<Listing, BackendError> {
        let request = GetOffersRequest {
            requirements,
            full_offers: false,
            unallocated_resources: false,
            image: None,
        };
        let bytes =
            serde_json::to_vec(&request).map_err(|e| BackendError::internal(e.to_string()))?;
        let mut ended = caller.raw(GetOffersRequest::NUMBER, bytes);
        let parts = std::mem::take(&mut ended.parts);
        let last = ended.result()?;
        let mut listing = Listing {
            parts: Vec::new(),
            offers: Vec::new(),
        };
        for part in parts.iter().chain([&last]) {
            let reply: GetOffersReply = serde_json::from_slice(part).map_err(|error| {
                BackendError::internal(format!("offers that are not understood: {error}"))
            })?;
            listing.parts.push(reply.offers.len());
            listing.offers.extend(reply.offers);
        }
        Ok(listing)
    }

    /// Everything there is.
    pub(crate) fn all_offers(
        &self,
        caller: &Caller,
    ) -> Result<Vec<InstanceOfferWithAvailability>, Stop> {
        let listed = self.list(caller, Requirements::of(ResourcesSpec::unconstrained()));
        match listed {
            Ok(listing) => Ok(listing.offers),
            Err(error) if error.kind == ErrorKind::NoCatalog => {
                Err(Stop::Skip(format!("no offers: {}", error.message)))
            }
            Err(error) => Err(fail(
                "offers",
                show_error(&error),
                "`get_offers` answers for any requirements; give the suite a provider, a catalog or a recording",
            )),
        }
    }

    /// An offer to take: the cheapest that can be had, with a disk as jobs ask for one.
    pub(crate) fn pick(&self, caller: &Caller) -> Result<InstanceOfferWithAvailability, Stop> {
        let mut usual = Requirements::of(ResourcesSpec::unconstrained());
        usual.resources.disk = ResourcesSpec::default().disk;
        let offers = match self.list(caller, usual) {
            Ok(listing) if !listing.offers.is_empty() => listing.offers,
            _ => self.all_offers(caller)?,
        };
        offers
            .into_iter()
            .filter(|offer| offer.availability.is_available())
            .min_by(|a, b| a.price.total_cmp(&b.price))
            .ok_or_else(|| Stop::Skip("the provider offers nothing that can be had".to_owned()))
    }

    /// Makes a machine, by `create_instance` if the plugin has it, else by `run_job`. It goes at the end of the check.
    pub(crate) fn make(
        &self,
        caller: &Caller,
        offer: &InstanceOfferWithAvailability,
        provider_ref: &str,
    ) -> Result<JobProvisioningData, BackendError> {
        let data = if self.has(capability::CREATE_INSTANCE) {
            let request = CreateInstanceRequest {
                offer: offer.clone(),
                config: samples::instance_config(provider_ref),
                placement_group: None,
            };
            caller.call(&request)?.provisioning_data
        } else {
            self.start(caller, self.job(offer, provider_ref))?
        };
        self.made.borrow_mut().push((caller.clone(), data.clone()));
        Ok(data)
    }

    /// Finds what a call made whose answer was lost, so that it goes at the end of the check.
    pub(crate) fn recover(
        &self,
        caller: &Caller,
        offer: &InstanceOfferWithAvailability,
        provider_ref: &str,
    ) {
        // Checks of their own look at whether this works.
        drop(self.make(caller, offer, provider_ref));
    }

    /// Starts a job; where the provider has no login to registries, one whose image needs none, from then on.
    pub(crate) fn start(
        &self,
        caller: &Caller,
        mut request: RunJobRequest,
    ) -> Result<JobProvisioningData, BackendError> {
        let first = caller.call(&request);
        if request.job.registry_auth.is_none() || !is_without_login(&first) {
            return first.map(|reply| reply.provisioning_data);
        }
        request.job.registry_auth = None;
        self.has_no_login.set(true);
        caller.call(&request).map(|reply| reply.provisioning_data)
    }

    /// A job on this offer.
    pub(crate) fn job(
        &self,
        offer: &InstanceOfferWithAvailability,
        provider_ref: &str,
    ) -> RunJobRequest {
        let mut job = samples::job(provider_ref, 0, 1);
        if self.has_no_login.get() {
            job.registry_auth = None;
        }
        RunJobRequest {
            run: samples::run(),
            job,
            offer: offer.clone(),
            project_key: samples::key(),
            volumes: Vec::new(),
            placement_group: None,
            extra_authorized_keys: vec![samples::USER_KEY.to_owned()],
        }
    }

    /// A machine, or the end of the check.
    pub(crate) fn must_make(
        &self,
        caller: &Caller,
        provider_ref: &str,
    ) -> Result<JobProvisioningData, Stop> {
        let offer = self.pick(caller)?;
        self.make(caller, &offer, provider_ref).map_err(|error| {
            fail(
                format!("a machine of type {} in {}", offer.instance.name, offer.region),
                show_error(&error),
                "the offers that `get_offers` calls available can be created; see the exchange for what the provider said",
            )
        })
    }

    /// One look.
    pub(crate) fn look(
        &self,
        caller: &Caller,
        data: &JobProvisioningData,
    ) -> Result<JobProvisioningData, BackendError> {
        let request = UpdateProvisioningDataRequest {
            provisioning_data: data.clone(),
            project_key: samples::key(),
        };
        Ok(caller.call(&request)?.provisioning_data)
    }

    /// Looks until there is an address, as a host does, at most as long as the plugin says that its machines take.
    pub(crate) fn complete(
        &self,
        caller: &Caller,
        data: &JobProvisioningData,
    ) -> Result<JobProvisioningData, Stop> {
        let limit = Duration::from_secs(self.plan.manifest.provisioning_timeout_s.unwrap_or(600));
        let mut data = data.clone();
        let mut waited = Duration::ZERO;
        loop {
            if data.hostname.as_ref().is_some_and(|name| !name.is_empty())
                && data.ssh_port.is_some()
            {
                return Ok(data);
            }
            if waited > limit {
                return Err(fail(
                    format!(
                        "host name and SSH port within {} s of virtual time",
                        limit.as_secs()
                    ),
                    format!("hostname {:?}, ssh_port {:?}", data.hostname, data.ssh_port),
                    "set both in `update_provisioning_data` as soon as the provider tells the address, or raise `provisioning_timeout_s`",
                ));
            }
            data = self.look(caller, &data).map_err(|error| {
                fail(
                    "the same data while there is no news, then the address",
                    show_error(&error),
                    "`update_provisioning_data` fails only if the machine will never be ready",
                )
            })?;
            self.session.advance(PAUSE);
            waited += PAUSE;
        }
    }

    /// Deletes a machine as a host does: again and again while it answers `not_yet_terminated`. How often it was asked.
    pub(crate) fn terminate(
        &self,
        caller: &Caller,
        data: &JobProvisioningData,
    ) -> Result<u32, Stop> {
        let request = TerminateInstanceRequest {
            instance_id: data.instance_id.clone(),
            region: data.region.clone(),
            backend_data: data.backend_data.clone(),
        };
        self.until_gone(caller, &request, "the machine")
    }

    /// Repeats a deletion until it is done.
    pub(crate) fn until_gone<M: Method>(
        &self,
        caller: &Caller,
        request: &M,
        what: &str,
    ) -> Result<u32, Stop> {
        for times in 1..=TERMINATIONS {
            let answer = caller.call(request);
            match &answer {
                Ok(_) => return Ok(times),
                Err(error) if error.kind == ErrorKind::NotYetTerminated => {
                    self.session.advance(PAUSE)
                }
                Err(error) if error.kind == ErrorKind::PlacementGroupInUse => {
                    self.session.advance(PAUSE)
                }
                Err(_) => {
                    return Err(fail(
                        format!("{what} gone, or `not_yet_terminated`"),
                        format!("{} answers {}", M::NAME, show(&answer)),
                        "answer success once the provider confirmed it or does not know it, `not_yet_terminated` while it is under way",
                    ));
                }
            }
        }
        Err(fail(
            format!("{what} gone after {TERMINATIONS} calls, 5 s apart"),
            format!("{} still answers `not_yet_terminated`", M::NAME),
            "answer success as soon as the provider confirms",
        ))
    }

    /// The group of a reference, if the plugin lists one.
    pub(crate) fn group_of(
        &self,
        caller: &Caller,
        provider_ref: &str,
    ) -> Result<Option<ResourceGroup>, BackendError> {
        let listed = caller.call(&ListResourceGroupsRequest::default())?;
        Ok(listed
            .groups
            .into_iter()
            .find(|group| group.provider_ref == provider_ref))
    }

    /// Deletes what was declared for a reference and not settled, as a host does when the machine is gone or was never made.
    pub(crate) fn clean_up(&self, caller: &Caller, provider_ref: &str) -> Result<(), Stop> {
        let mine: Vec<_> = self
            .session
            .declared()
            .into_iter()
            .filter(|resource| resource.provider_ref == provider_ref)
            .collect();
        if mine.is_empty() {
            return Ok(());
        }
        if !self.has(capability::RESOURCE_LISTING) {
            return Err(fail(
                "nothing declared to the ledger without the capability `resource_listing`",
                format!("{} entries", mine.len()),
                "implement `ResourceListing`: the host deletes what is left by `delete_resource_group`",
            ));
        }
        let group = ResourceGroup {
            provider_ref: provider_ref.to_owned(),
            region: mine
                .first()
                .map(|resource| resource.region.clone())
                .unwrap_or_default(),
            primary_id: None,
            created_at_us: None,
            resources: mine
                .into_iter()
                .map(|resource| CloudResource {
                    kind: resource.kind,
                    id: resource.id.unwrap_or_else(|| resource.name.clone()),
                    name: Some(resource.name),
                })
                .collect(),
            backend_data: None,
        };
        self.until_gone(
            caller,
            &DeleteResourceGroupRequest { group },
            "what was declared to the ledger",
        )?;
        self.session.forget_declared(provider_ref);
        Ok(())
    }
}
