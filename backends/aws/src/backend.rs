//! One configured account.

use dstack_backend_sdk::prelude::*;

use crate::client::Apis;
use crate::config::AwsConfig;
use crate::configurator::AwsConfigurator;

/// One configured account; serves many calls at once.
pub(crate) struct Aws {
    pub(crate) apis: Apis,
    pub(crate) config: AwsConfig,
    pub(crate) offers: AllOffersCache,
}

impl Aws {
    pub(crate) fn of(config: AwsConfig) -> Self {
        Self {
            apis: Apis::new(&config),
            config,
            offers: AllOffersCache::new(),
        }
    }
}

impl Backend for Aws {
    type Configurator = AwsConfigurator;

    fn new(config: AwsConfig) -> Result<Self> {
        // No request here: there is no deadline yet.
        Ok(Self::of(config))
    }
}
