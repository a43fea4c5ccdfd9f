//! Typed calls: a request of `dstack-backend-types` in, its reply out, with the deadline that its method has.

use crate::{backend::Backend, config::Deadlines, error::CallError};
use dstack_backend_types::{
    BackendError, InstanceOfferWithAvailability, JobProvisioningData, Method, SshKey, capability,
    methods::{
        self, ConfigWithCreds, CreateConfigRequest, CreateInstanceRequest, DescribeConfigRequest,
        GetOffersReply, GetOffersRequest, HealthReply, HealthRequest, PublicViewRequest,
        RunJobRequest, StoredConfig, TerminateInstanceRequest, UpdateProvisioningDataRequest,
        ValidateConfigRequest, WithCredsRequest,
    },
};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::sync::mpsc;

/// Chunks that may wait for their reader; then the plugin waits.
const CHUNKS: usize = 4;

impl Deadlines {
    /// The deadline of a method.
    pub fn of(&self, method: u32) -> Duration {
        match method {
            methods::GET_OFFERS => self.offers,
            methods::HEALTH => self.validate,
            methods::UPDATE_PROVISIONING_DATA | methods::IS_VOLUME_DETACHED => self.update,
            methods::TERMINATE_INSTANCE | methods::TERMINATE_COMPUTE_GROUP => self.terminate,
            _ => match capability::of_method(method) {
                Some(capability::CONFIGURATOR) => self.validate,
                Some(
                    capability::GATEWAY
                    | capability::GATEWAY_LOAD_BALANCER
                    | capability::RESOURCE_LISTING,
                ) => self.gateways,
                _ => self.create,
            },
        }
    }
}

impl Backend {
    /// Calls a method with its usual deadline.
    ///
    /// # Errors
    /// The plugin's error, or the host's: `unsupported` if the manifest lacks the capability, `timeout`, `unavailable`.
    pub async fn call<M: Method>(&self, request: &M) -> Result<M::Reply, CallError> {
        let deadline = self.slot.limits.deadlines.of(M::NUMBER);
        self.call_within(request, deadline).await
    }

    /// Calls a method with a deadline of its own.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_within<M: Method>(
        &self,
        request: &M,
        deadline: Duration,
    ) -> Result<M::Reply, CallError> {
        let bytes = self.encode(request)?;
        let reply = self.call_raw(M::NUMBER, bytes, deadline, None).await?;
        self.decode::<M, M::Reply>(&reply)
    }

    fn encode<M: Method>(&self, request: &M) -> Result<Vec<u8>, CallError> {
        if !self.slot.manifest.has(M::CAPABILITY) {
            let message = format!("the backend has no capability {}", M::CAPABILITY);
            return Err(self.error(M::NAME, BackendError::unsupported(message)));
        }
        serde_json::to_vec(request)
            .map_err(|e| self.error(M::NAME, BackendError::internal(e.to_string())))
    }

    fn decode<M: Method, T: serde::de::DeserializeOwned>(
        &self,
        reply: &[u8],
    ) -> Result<T, CallError> {
        serde_json::from_slice(reply).map_err(|e| {
            self.error(
                M::NAME,
                BackendError::internal(format!("a reply that is not understood: {e}")),
            )
        })
    }

    /// Offers, each chunk handed to `each` as soon as it is there.
    ///
    /// # Errors
    /// As [`call`](Self::call). Chunks before the error were handed over.
    pub async fn get_offers_in_chunks(
        &self,
        request: &GetOffersRequest,
        mut each: impl FnMut(Vec<InstanceOfferWithAvailability>),
    ) -> Result<(), CallError> {
        type M = GetOffersRequest;
        let bytes = self.encode(request)?;
        let deadline = self.slot.limits.deadlines.offers;
        let (sender, mut chunks) = mpsc::channel(CHUNKS);
        let call = self.call_raw(M::NUMBER, bytes, deadline, Some(sender));
        tokio::pin!(call);
        let last = loop {
            tokio::select! {
                biased;
                Some(chunk) = chunks.recv() => each(self.decode::<M, GetOffersReply>(&chunk)?.offers),
                last = &mut call => break last?,
            }
        };
        // The call is over, so what it emitted is in the channel.
        while let Ok(chunk) = chunks.try_recv() {
            each(self.decode::<M, GetOffersReply>(&chunk)?.offers);
        }
        each(self.decode::<M, GetOffersReply>(&last)?.offers);
        Ok(())
    }

    /// All offers, in the backend's own order.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn get_offers(
        &self,
        request: &GetOffersRequest,
    ) -> Result<Vec<InstanceOfferWithAvailability>, CallError> {
        let mut all = Vec::new();
        self.get_offers_in_chunks(request, |mut chunk| all.append(&mut chunk))
            .await?;
        Ok(all)
    }

    /// Makes a machine or container for a job.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn run_job(&self, request: &RunJobRequest) -> Result<JobProvisioningData, CallError> {
        Ok(self.call(request).await?.provisioning_data)
    }

    /// Makes a machine.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn create_instance(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<JobProvisioningData, CallError> {
        Ok(self.call(request).await?.provisioning_data)
    }

    /// Deletes a machine. Success if it is gone already.
    ///
    /// # Errors
    /// As [`call`](Self::call); `not_yet_terminated` means: call again in a few seconds.
    pub async fn terminate_instance(
        &self,
        instance_id: &str,
        region: &str,
        backend_data: Option<&str>,
    ) -> Result<(), CallError> {
        let request = TerminateInstanceRequest {
            instance_id: instance_id.to_owned(),
            region: region.to_owned(),
            backend_data: backend_data.map(str::to_owned),
        };
        self.call(&request).await.map(|_| ())
    }

    /// Asks for what was not known when the machine was made.
    ///
    /// # Errors
    /// As [`call`](Self::call); `provisioning` means that the attempt is over.
    pub async fn update_provisioning_data(
        &self,
        provisioning_data: JobProvisioningData,
        project_key: SshKey,
    ) -> Result<JobProvisioningData, CallError> {
        let request = UpdateProvisioningDataRequest {
            provisioning_data,
            project_key,
        };
        Ok(self.call(&request).await?.provisioning_data)
    }

    /// Whether the account can be reached.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn health(&self) -> Result<HealthReply, CallError> {
        self.call(&HealthRequest {}).await
    }
}

/// A backend's way with configurations; needs no opened backend.
#[derive(Debug, Clone)]
pub struct ConfiguratorHandle(pub(crate) Backend);

impl ConfiguratorHandle {
    /// Checks a configuration with its credentials.
    ///
    /// # Errors
    /// `auth` with `details.fields`, or `invalid` with the reason.
    pub async fn validate(
        &self,
        config: Map<String, Value>,
        default_creds_enabled: bool,
    ) -> Result<(), CallError> {
        let request = ValidateConfigRequest {
            config: ConfigWithCreds(config),
            default_creds_enabled,
        };
        self.0.call(&request).await.map(|_| ())
    }

    /// Turns a checked configuration into what is stored.
    ///
    /// # Errors
    /// As [`Backend::call`].
    pub async fn create(
        &self,
        project_name: &str,
        config: Map<String, Value>,
    ) -> Result<StoredConfig, CallError> {
        let request = CreateConfigRequest {
            project_name: project_name.to_owned(),
            config: ConfigWithCreds(config),
        };
        Ok(self.0.call(&request).await?.record)
    }

    /// The record without credentials.
    ///
    /// # Errors
    /// As [`Backend::call`].
    pub async fn public_view(&self, record: StoredConfig) -> Result<Map<String, Value>, CallError> {
        Ok(self.0.call(&PublicViewRequest { record }).await?.config)
    }

    /// The record as a configuration with credentials, which is also what a backend is opened with.
    ///
    /// # Errors
    /// As [`Backend::call`].
    pub async fn with_creds(&self, record: StoredConfig) -> Result<Map<String, Value>, CallError> {
        Ok(self.0.call(&WithCredsRequest { record }).await?.config.0)
    }

    /// The configuration's JSON schema; secret fields carry `writeOnly: true`.
    ///
    /// # Errors
    /// As [`Backend::call`].
    pub async fn describe(&self) -> Result<Value, CallError> {
        Ok(self.0.call(&DescribeConfigRequest {}).await?.schema)
    }
}
