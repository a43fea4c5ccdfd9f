//! What the client hands over to this build: the server and the plugin files.

use std::path::Path;

use dstack_cli::{Local, ServerArgs};
use dstack_plugins::{CallError, Isolation, Plugins, PluginsConfig};

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
            "interface": manifest.abi.major,
            "capabilities": manifest.capabilities,
            "provisioning_timeout_s": manifest.provisioning_timeout_s,
            "hash": found.sha256,
            "size_bytes": found.facts.size_bytes,
            "machine": found.facts.machine,
            "libraries": found.facts.needed,
            "stripped": found.facts.is_stripped,
            "path": file,
        }))
    }

    fn verify(&self, folder: &Path) -> Result<serde_json::Value, String> {
        let found = dstack_plugins::verify_folder(folder)
            .map_err(|error| format!("cannot verify {}: {error}", folder.display()))?;
        serde_json::to_value(found).map_err(|error| error.to_string())
    }

    fn describe(&self, file: &Path) -> Result<serde_json::Value, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        runtime.block_on(async {
            // In a child process: whoever asks may not know the file yet.
            let config = PluginsConfig::new(Vec::new());
            let plugins = Plugins::of_file(config, file, Isolation::Process)
                .map_err(|error| failed(&error))?;
            let described = describe(&plugins).await.map_err(|error| failed(&error));
            plugins.shut_down().await;
            described
        })
    }

    fn api_document(&self) -> Result<serde_json::Value, String> {
        Ok(dstack_server::api_document())
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

async fn describe(plugins: &Plugins) -> Result<serde_json::Value, CallError> {
    let mut described = serde_json::Map::new();
    for manifest in plugins.manifests() {
        let configurator = plugins.configurator(&manifest.name).await?;
        let schema = configurator.describe().await?;
        described.insert("manifest".to_owned(), serde_json::json!(*manifest));
        described.insert("schema".to_owned(), schema);
    }
    Ok(described.into())
}
