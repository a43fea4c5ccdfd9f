//! The check of a configuration.

use dstack_backend_sdk::prelude::*;
use serde::Deserialize;

use crate::backend::Aws;
use crate::client::{HOME_REGION, Service};
use crate::config::AwsConfig;
use crate::params::Params;

/// Checks configurations. Storing, showing and describing them follows from the type.
#[derive(Debug, Default)]
pub(crate) struct AwsConfigurator;

impl Configurator for AwsConfigurator {
    type Config = AwsConfig;

    fn check(&self, config: &AwsConfig) -> Result<()> {
        config.check()?;
        let aws = Aws::of(config.clone());
        aws.apis.account()?;
        if let Some(profile) = &config.iam_instance_profile {
            aws.check_profile(profile)?;
        }
        for region in config.regions() {
            aws.network(&region, config.has_public_ips())?;
        }
        Ok(())
    }

    fn complete(&self, _project_name: &str, mut config: AwsConfig) -> Result<AwsConfig> {
        config.regions = Some(config.regions());
        Ok(config)
    }
}

impl Aws {
    fn check_profile(&self, profile: &str) -> Result<()> {
        #[derive(Deserialize)]
        struct Any {}
        let iam = self.apis.of(Service::Iam, HOME_REGION)?;
        let params = Params::new().set("InstanceProfileName", profile);
        match iam.read::<Any>("GetInstanceProfile", &params) {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::NotFound => Err(BackendError::invalid(format!(
                "iam_instance_profile: there is no instance profile {profile}"
            ))),
            Err(error) => Err(error),
        }
    }
}
