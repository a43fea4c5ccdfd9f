//! One configured account.

use dstack_backend_sdk::prelude::*;

use crate::client;
use crate::config::__Name__Config;
use crate::configurator::__Name__Configurator;

/// One configured account; serves many calls at once.
pub(crate) struct __Name__Backend {
    pub(crate) api: Rest,
    pub(crate) config: __Name__Config,
    pub(crate) offers: AllOffersCache,
}

impl Backend for __Name__Backend {
    type Configurator = __Name__Configurator;

    fn new(config: __Name__Config) -> Result<Self> {
        // No request here: there is no deadline yet.
        Ok(Self {
            api: client::api(&config),
            config,
            offers: AllOffersCache::new(),
        })
    }
}
