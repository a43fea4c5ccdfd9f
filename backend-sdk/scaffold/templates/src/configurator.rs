//! The check of a configuration.

use dstack_backend_sdk::prelude::*;

use crate::client;
use crate::config::__Name__Config;

/// Checks configurations. Storing, showing and describing them follows from the type.
#[derive(Default)]
pub(crate) struct __Name__Configurator;

impl Configurator for __Name__Configurator {
    type Config = __Name__Config;

    fn check(&self, config: &__Name__Config) -> Result<()> {
        // FILL-IN: what else can be wrong; an error says which field, e.g. `BackendError::invalid("regions: …")`.
        client::check_account(&client::api(config))
    }
}
