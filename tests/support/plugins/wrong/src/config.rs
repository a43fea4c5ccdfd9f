//! The configuration, with the defect.

use std::collections::BTreeMap;

use dstack_backend_sdk::types::methods::{
    ConfigWithCreds, CreateConfigReply, CreateConfigRequest, Done, PublicViewReply,
    PublicViewRequest, ValidateConfigRequest,
};
use dstack_backend_sdk::{BackendError, Configurator, ErrorKind, Secret, config, schemars};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cloud::Cloud;

/// What is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Defect {
    #[default]
    None,
    Abort,
    AcceptsAnyConfig,
    AuthIsInternal,
    BlindPost,
    ChangesId,
    ClearSecret,
    DeletesOthers,
    DeletesOnce,
    DoubleOffers,
    EndlessRetries,
    FirstMachine,
    ForgetsDisk,
    GatewayTwice,
    GibMemory,
    GoneIsStarting,
    HalfListing,
    IgnoresLateFailure,
    Impatient,
    LeakInError,
    LeakInLog,
    LedgerAfter,
    NegativePrice,
    NeverDetached,
    NeverReady,
    NoCapacityIsInternal,
    NoPrimary,
    NotIdempotent,
    NoReference,
    NodeLeftBehind,
    OutsiderIsAnError,
    OneNode,
    PanicsOnNonsense,
    PlacementAsks,
    PublicViewLeaks,
    QuotaIsInternal,
    RefusesUnknownFields,
    RegistersAnything,
    ServerErrorIsInternal,
    ShortReplies,
    SwallowsCancel,
    TerminateLies,
    TwoVolumes,
    UnfilteredOffers,
    UnknownIsAnError,
    UnsortedOffers,
    VendorGpuName,
    WrongRegion,
}

/// `{type: wrong, token: …, defect: …}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// The account's token.
    pub token: Secret<String>,
    /// What is wrong.
    #[serde(default)]
    pub defect: Defect,
    /// What this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Checks the token.
#[derive(Debug, Default)]
pub struct WrongConfigurator;

impl Configurator for WrongConfigurator {
    type Config = Config;

    fn check(&self, config: &Config) -> Result<(), BackendError> {
        let cloud = Cloud::new(config);
        cloud.get("/v1/account").map(drop)
    }

    fn validate(&self, request: &ValidateConfigRequest) -> Result<Done, BackendError> {
        if defect(&request.config) == Defect::AcceptsAnyConfig {
            return Ok(Done {});
        }
        self.check(&config::read(&request.config)?)?;
        Ok(Done {})
    }

    fn create(&self, request: &CreateConfigRequest) -> Result<CreateConfigReply, BackendError> {
        let read: Config = config::read(&request.config)?;
        let mut record = config::store(&read)?;
        if read.defect == Defect::ClearSecret {
            record.config.extend(std::mem::take(&mut record.auth));
        }
        Ok(CreateConfigReply { record })
    }

    fn public_view(&self, request: &PublicViewRequest) -> Result<PublicViewReply, BackendError> {
        let mut view = config::public_view::<Config>(&request.record);
        if request.record.config.get("defect") == Some(&Value::from("public_view_leaks")) {
            view.extend(request.record.auth.clone());
        }
        Ok(PublicViewReply { config: view })
    }
}

fn defect(config: &ConfigWithCreds) -> Defect {
    let word = config.0.get("defect").cloned().unwrap_or_default();
    serde_json::from_value(word).unwrap_or_default()
}

impl Config {
    pub(crate) fn refuses(&self) -> Result<(), BackendError> {
        let unknown = self.other.keys().find(|key| *key != "type");
        match unknown {
            Some(key) if self.defect == Defect::RefusesUnknownFields => Err(BackendError::new(
                ErrorKind::Invalid,
                format!("unknown field {key}"),
            )),
            _ => Ok(()),
        }
    }
}
