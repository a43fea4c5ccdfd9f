//! A backend built in the days of 1.0. Frozen: see `../README.md`.

use frozen_backend_sdk::{
    Availability, Backend, BackendError, CreateInstanceReply, CreateInstanceRequest, Described, Done, ErrorKind,
    GetOffersReply, GetOffersRequest, HealthReply, InstanceType, JobProvisioningData, Now, Offer, Resources,
    TerminateInstanceRequest, host, methods,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const TEXT: &str = "{\"schema\":1,\"name\":\"frozen\",\"version\":\"1.0.0\",\"sdk\":\"1.0.0\",\"abi\":{\"major\":1,\"minor\":0},\"encodings\":[\"json\"],\"capabilities\":[\"create_instance\",\"privileged\"]}";

#[used]
#[unsafe(link_section = ".dstack.plugin")]
static MANIFEST: [u8; TEXT.len()] = {
    let (mut bytes, mut at) = ([0; TEXT.len()], 0);
    while at < bytes.len() {
        bytes[at] = TEXT.as_bytes()[at];
        at += 1;
    }
    bytes
};

struct Frozen {
    token: String,
}

fn run<Q: DeserializeOwned, A: Serialize>(
    request: &[u8],
    method: impl FnOnce(Q) -> Result<A, BackendError>,
) -> Option<Result<Vec<u8>, BackendError>> {
    let invalid = |error: serde_json::Error| BackendError::new(ErrorKind::Invalid, error.to_string());
    let answer = serde_json::from_slice(request).map_err(invalid).and_then(method);
    Some(answer.and_then(|answer| serde_json::to_vec(&answer).map_err(invalid)))
}

impl Backend for Frozen {
    fn manifest() -> &'static [u8] {
        &MANIFEST
    }

    fn open(config: Value) -> Result<Self, BackendError> {
        let token = config.get("token").and_then(Value::as_str);
        let token = token.ok_or_else(|| BackendError::new(ErrorKind::Invalid, "no token"))?;
        Ok(Self { token: token.to_owned() })
    }

    fn call(&self, method: u32, call_id: u64, request: &[u8]) -> Option<Result<Vec<u8>, BackendError>> {
        match method {
            methods::GET_OFFERS => run(request, |_: GetOffersRequest| {
                let instance = InstanceType {
                    name: "small".to_owned(),
                    resources: Resources { cpus: 2, memory_mib: 8192, spot: false },
                };
                let offer = Offer {
                    backend: "frozen".to_owned(),
                    instance,
                    region: "north".to_owned(),
                    price: 0.5,
                    backend_data: serde_json::Map::new(),
                    availability: Availability::Available,
                    availability_zones: None,
                    provisioning_timeout_s: None,
                };
                Ok(GetOffersReply { offers: vec![offer] })
            }),
            methods::CREATE_INSTANCE => run(request, |request: CreateInstanceRequest| {
                if request.offer.region != "north" {
                    return Err(BackendError::new(ErrorKind::NoCapacity, "only in the north"));
                }
                let reference = request.config.provider_ref.unwrap_or_default();
                Ok(CreateInstanceReply {
                    provisioning_data: JobProvisioningData {
                        backend: request.offer.backend,
                        instance_type: request.offer.instance,
                        instance_id: format!("i-{reference}"),
                        hostname: Some("203.0.113.1".to_owned()),
                        region: request.offer.region,
                        price: request.offer.price,
                        username: "root".to_owned(),
                        ssh_port: Some(22),
                        dockerized: true,
                    },
                })
            }),
            methods::TERMINATE_INSTANCE => run(request, |_: TerminateInstanceRequest| Ok(Done {})),
            methods::HEALTH => run(request, |_: Value| {
                let described: Described = serde_json::from_slice(&host(call_id, 0, b"null")?)
                    .map_err(|error| BackendError::new(ErrorKind::Internal, error.to_string()))?;
                let now: Now = serde_json::from_slice(&host(call_id, 5, b"null")?)
                    .map_err(|error| BackendError::new(ErrorKind::Internal, error.to_string()))?;
                let has_sleep = described.services.contains_key("7");
                let message = format!("{} {} {} {}", described.host_version, now.unix_micros > 0, has_sleep, self.token.len());
                Ok(HealthReply { message: Some(message) })
            }),
            methods::DESCRIBE_CONFIG => run(request, |_: Value| {
                Ok(json!({"schema": {"type": "object", "properties": {"token": {"type": "string", "writeOnly": true}}}}))
            }),
            _ => None,
        }
    }
}

frozen_backend_sdk::export_module!(frozen_backend_sdk::module::<Frozen>());
