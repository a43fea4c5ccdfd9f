//! Checking, storing and showing configurations.

use dstack_backend_types::BackendError;
use dstack_backend_types::methods::{
    CreateConfigReply, CreateConfigRequest, DescribeConfigReply, DescribeConfigRequest, Done,
    PublicViewReply, PublicViewRequest, ValidateConfigRequest, WithCredsReply, WithCredsRequest,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config;

/// Checks, stores and shows configurations of a backend.
///
/// One type describes a configuration: [`Configurator::Config`], with credentials in `Secret` fields. Its JSON schema marks
/// them (`writeOnly`), and from the marks follow the four views:
///
/// | view | who sees it |
/// |---|---|
/// | with credentials | the user who writes it; administrators |
/// | stored | database: one part in the clear, one encrypted |
/// | public | members of the project |
/// | schema | forms, documentation |
///
/// Only [`check`](Self::check) must be written.
pub trait Configurator: Default + Send + Sync + 'static {
    /// The configuration with credentials. Unknown keys should be refused: `#[serde(deny_unknown_fields)]` is not
    /// needed for it, the host compares with the schema.
    type Config: DeserializeOwned + Serialize + JsonSchema;

    /// Checks a configuration that has the right shape, the credentials with the provider.
    ///
    /// # Errors
    /// `auth` with the paths of the credentials at fault; `invalid` for anything else.
    fn check(&self, config: &Self::Config) -> Result<(), BackendError>;

    /// Fills in what is fixed once and for all when a backend is added, e.g. the account's id. Nothing by default.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn complete(
        &self,
        _project_name: &str,
        config: Self::Config,
    ) -> Result<Self::Config, BackendError> {
        Ok(config)
    }

    /// Reads and checks a configuration as the user wrote it.
    ///
    /// # Errors
    /// `invalid` with the path of the field that cannot be read; those of [`check`](Self::check).
    fn validate(&self, request: &ValidateConfigRequest) -> Result<Done, BackendError> {
        self.check(&config::read(&request.config)?)?;
        Ok(Done {})
    }

    /// Turns a configuration into what is stored, credentials apart.
    ///
    /// # Errors
    /// Those of [`complete`](Self::complete); `invalid` if it cannot be read.
    fn create(&self, request: &CreateConfigRequest) -> Result<CreateConfigReply, BackendError> {
        let config: Self::Config = config::read(&request.config)?;
        let config = self.complete(&request.project_name, config)?;
        Ok(CreateConfigReply {
            record: config::store(&config)?,
        })
    }

    /// The stored record without credentials.
    ///
    /// # Errors
    /// `internal` if the record cannot be read.
    fn public_view(&self, request: &PublicViewRequest) -> Result<PublicViewReply, BackendError> {
        Ok(PublicViewReply {
            config: config::public_view::<Self::Config>(&request.record),
        })
    }

    /// JSON schema of the configuration.
    ///
    /// # Errors
    /// None of its own.
    fn describe(
        &self,
        _request: &DescribeConfigRequest,
    ) -> Result<DescribeConfigReply, BackendError> {
        Ok(DescribeConfigReply {
            schema: config::schema::<Self::Config>(),
        })
    }

    /// The stored record as a configuration with credentials; also what `open` gets.
    ///
    /// # Errors
    /// `internal` if the record cannot be read.
    fn with_creds(&self, request: &WithCredsRequest) -> Result<WithCredsReply, BackendError> {
        Ok(WithCredsReply {
            config: config::with_creds(&request.record),
        })
    }
}
