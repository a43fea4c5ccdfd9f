//! What the client hands over to this build: the server and the plugin files.

use std::path::Path;

use dstack_cli::{Local, ServerArgs};

/// This build, with the server in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host;

impl Local for Host {
    fn server(&self, args: &ServerArgs) -> Result<(), String> {
        crate::start::run(args)
    }

    fn inspect(&self, file: &Path) -> Result<serde_json::Value, String> {
        let found = dstack_backend_loader::inspect(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let manifest = &found.manifest;
        Ok(serde_json::json!({
            "name": manifest.name,
            "version": manifest.version,
            "sdk": manifest.sdk,
            "capabilities": manifest.capabilities,
            "hash": found.sha256,
            "path": file,
        }))
    }

    fn lock(&self, folder: &Path) -> Result<Vec<String>, String> {
        dstack_plugins::write_lock(folder)
            .map(|(lock, left_out)| {
                let locked = lock
                    .plugins()
                    .map(|plugin| format!("{} {}", plugin.name, plugin.version));
                let rest = left_out
                    .iter()
                    .map(|(path, why)| format!("left out {}: {why}", path.display()));
                locked.chain(rest).collect()
            })
            .map_err(|error| format!("cannot lock {}: {error}", folder.display()))
    }
}
