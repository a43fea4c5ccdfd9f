//! What plugins may ask the server for, beyond what the plugin host has by itself.

use std::sync::Arc;

use axum::http::Uri;
use dstack_backend_types::AgentUrls;
use dstack_backend_types::services::{LEDGER, SSH};
use dstack_plugins::{PluginsConfig, Variables};
use dstack_remote::HostKeys;
use dstack_store::Store;

use crate::services::ledger::Ledger;
use crate::services::ssh_commands::SshCommands;
use crate::settings::{ProcessVars, Settings, Vars as _};

/// The server's own environment.
#[derive(Debug)]
struct Environment;

impl Variables for Environment {
    fn get(&self, name: &str) -> Option<String> {
        ProcessVars.get(name)
    }
}

/// Adds the services to what the plugin host is started with.
pub(super) fn add(
    plugins: &mut PluginsConfig,
    settings: &Settings,
    store: &Store,
    host_keys: Arc<dyn HostKeys>,
) {
    let calls = &settings.backend_calls;
    plugins.limits.threads = calls.threads;
    plugins.limits.deadlines = calls.deadlines.clone();
    plugins.limits.worker = calls.worker.clone();
    plugins.http.tape.clone_from(&calls.http_tape);
    plugins.catalog.clone_from(&settings.catalog);
    let ledger = Ledger::new(store.clone(), calls.deadlines.create);
    plugins.external = std::mem::take(&mut plugins.external)
        .with(LEDGER, Arc::new(ledger))
        .with(SSH, Arc::new(SshCommands::new(host_keys)));
    plugins.agents = agent_urls(settings);
    if !settings.default_creds_disabled {
        plugins.variables = Some(Arc::new(Environment));
    }
}

/// Where machines download the agents from: as the settings say, else from this server, if others can reach it.
fn agent_urls(settings: &Settings) -> Option<AgentUrls> {
    let own = settings
        .url
        .as_deref()
        .filter(|url| is_reachable(url))
        .map(|url| format!("{}/agents/{{version}}/{{arch}}/", url.trim_end_matches('/')));
    let one = |template: &Option<String>, name: &str| {
        template
            .clone()
            .or_else(|| own.as_ref().map(|own| format!("{own}{name}")))
    };
    Some(AgentUrls {
        shim: one(&settings.agent_downloads.shim, "dstack-shim")?,
        runner: one(&settings.agent_downloads.runner, "dstack-runner")?,
        version: settings.version.clone(),
    })
}

/// Whether other machines may reach this address: it is neither loopback nor "all addresses of this machine".
fn is_reachable(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    // A bare word is read as a host, too.
    let Some(host) = uri.scheme().and(uri.host()) else {
        return false;
    };
    let host = host.trim_matches(['[', ']']);
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => !address.is_loopback() && !address.is_unspecified(),
        Err(_) => !host.eq_ignore_ascii_case("localhost") && !host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::{agent_urls, is_reachable};
    use crate::settings::Settings;
    use std::collections::BTreeMap;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let vars: BTreeMap<String, String> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Settings::from_env(&vars).unwrap()
    }

    #[test]
    fn loopback_is_no_address_for_others() {
        for url in [
            "http://127.0.0.1:3000",
            "http://localhost:3000",
            "http://[::1]:3000",
            "http://0.0.0.0:3000",
            "nonsense",
        ] {
            assert!(!is_reachable(url), "{url}");
        }
        for url in [
            "https://dstack.example",
            "http://10.0.0.5:3000/",
            "http://[fd00::1]:1",
        ] {
            assert!(is_reachable(url), "{url}");
        }
    }

    #[test]
    fn templates_win_then_the_server_itself_then_nothing() {
        assert_eq!(
            agent_urls(&settings(&[("DSTACK_SERVER_URL", "http://127.0.0.1:3000")])),
            None
        );
        let own = agent_urls(&settings(&[(
            "DSTACK_SERVER_URL",
            "https://dstack.example/",
        )]))
        .unwrap();
        assert_eq!(
            own.shim,
            "https://dstack.example/agents/{version}/{arch}/dstack-shim"
        );
        assert_eq!(own.version, "0.22.5");
        let mixed = agent_urls(&settings(&[
            ("DSTACK_SERVER_URL", "https://dstack.example"),
            (
                "DSTACK_SHIM_DOWNLOAD_URL",
                "https://files.example/{version}/shim-{arch}",
            ),
        ]))
        .unwrap();
        assert_eq!(mixed.shim, "https://files.example/{version}/shim-{arch}");
        assert!(mixed.runner.starts_with("https://dstack.example/agents/"));
        let both = [
            ("DSTACK_SHIM_DOWNLOAD_URL", "https://files.example/s"),
            ("DSTACK_RUNNER_DOWNLOAD_URL", "https://files.example/r"),
        ];
        assert!(
            agent_urls(&settings(&both)).is_some(),
            "the server need not be reachable"
        );
    }
}
