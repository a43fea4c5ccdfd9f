//! Own hosts in requests: their keys are checked, sealed and never shown again.

use std::collections::BTreeMap;

use dstack_api::config::{EnvValue, FleetConfiguration, SshHost, SshParams, SshProxyParams};
use dstack_api::fleets::FleetSpec;
use dstack_backend_types::{SshConnectionParams, SshKey};
use dstack_engine::changes::Changes;
use dstack_engine::ids::{FleetId, InstanceId};
use dstack_engine::ssh_hosts;
use dstack_remote::{Secret, is_public_key, public_key_of};
use dstack_store::{Sealed, Tx, instances, ssh_hosts as logins};
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::services::keyring::Keyring;

/// What opens a host, as it is sealed. `Debug` shows nothing.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Login {
    /// Name or address.
    pub(crate) hostname: String,
    /// Port of its SSH server.
    pub(crate) port: u16,
    /// Account.
    pub(crate) user: String,
    /// The host to go through.
    #[serde(default)]
    pub(crate) proxy: Option<SshConnectionParams>,
    /// Private keys of the account, tried in turn.
    pub(crate) keys: Vec<String>,
    /// Private key of the host to go through.
    #[serde(default)]
    pub(crate) proxy_key: Option<String>,
    /// The fleet's variables for shim and jobs.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(***)")
    }
}

/// The sealed logins of a fleet's hosts, by the hosts' identities.
pub(super) type Logins = BTreeMap<String, Sealed>;

/// Checks and seals the keys of all hosts.
pub(super) fn logins(spec: &FleetSpec, keyring: &Keyring) -> Result<Logins, ApiError> {
    let configuration = &spec.configuration;
    let Some(ssh) = &configuration.ssh_config else {
        return Ok(Logins::new());
    };
    let common = private(ssh.ssh_key.as_ref())?;
    let mut found = Logins::new();
    for (host, named) in ssh_hosts::hosts(spec).iter().zip(&ssh.hosts) {
        let own = match named {
            SshHost::Name(_) => None,
            SshHost::Params(own) => Some(own),
        };
        let mut keys = Vec::new();
        keys.extend(private(own.and_then(|own| own.ssh_key.as_ref()))?);
        if keys.is_empty() {
            keys.extend(common.clone());
        }
        if keys.is_empty() {
            return Err(ApiError::refused(format!(
                "Private key not provided for host {}; the client reads it from identity_file",
                host.hostname
            )));
        }
        let login = Login {
            hostname: host.hostname.clone(),
            port: host.port,
            user: host.user.clone(),
            proxy: host.proxy.clone(),
            keys,
            proxy_key: proxy_key(ssh, own.and_then(|own| own.proxy_jump.as_ref()))?,
            env: variables(configuration),
        };
        let text = serde_json::to_string(&login)
            .map_err(|error| ApiError::Internal(format!("cannot write a login: {error}")))?;
        let sealed = keyring.seal(&text);
        let sealed = sealed.map_err(|error| ApiError::Internal(error.to_string()))?;
        found.insert(host.identity(), sealed);
    }
    Ok(found)
}

fn variables(configuration: &FleetConfiguration) -> BTreeMap<String, String> {
    let set = configuration.env.0.iter();
    set.filter_map(|(name, value)| match value {
        EnvValue::Text(text) => Some((name.clone(), text.clone())),
        EnvValue::FromCaller => None,
    })
    .collect()
}

fn proxy_key(ssh: &SshParams, own: Option<&SshProxyParams>) -> Result<Option<String>, ApiError> {
    let Some(jump) = own.or(ssh.proxy_jump.as_ref()) else {
        return Ok(None);
    };
    match private(jump.ssh_key.as_ref())? {
        Some(key) => Ok(Some(key)),
        None => Err(ApiError::refused(format!(
            "Private key not provided for proxy_jump host {}",
            jump.hostname
        ))),
    }
}

/// A usable private key.
fn private(key: Option<&SshKey>) -> Result<Option<String>, ApiError> {
    let Some(key) = key else { return Ok(None) };
    let Some(private) = &key.private else {
        // The server's SSH agent may have the other half.
        let public = key.public.trim();
        return if is_public_key(public) {
            Ok(Some(public.to_owned()))
        } else {
            Err(ApiError::refused("Private key not provided"))
        };
    };
    // Files that went through other systems come with other line ends, or without the last one.
    let text = format!("{}\n", private.replace("\r\n", "\n").trim());
    match public_key_of(&Secret::new(&*text)) {
        Ok(_) => Ok(Some(text)),
        Err(_) => Err(ApiError::refused(
            "Unsupported key type. The key must be RSA, ECDSA or Ed25519 in OpenSSH or PEM format, without a passphrase.",
        )),
    }
}

/// Refuses hosts that another fleet has, or that are still being given back.
pub(super) fn check_free(
    tx: &mut dyn Tx,
    spec: &FleetSpec,
    fleet: Option<FleetId>,
) -> Result<(), ApiError> {
    let mut taken = Vec::new();
    for host in ssh_hosts::hosts(spec) {
        let known = instances::of_ssh_host(tx, &host.identity())?;
        let foreign = known
            .iter()
            .any(|row| Some(row.fleet_id) != fleet || !row.is_living());
        if foreign {
            taken.push(host.hostname);
        }
    }
    if taken.is_empty() {
        return Ok(());
    }
    Err(ApiError::refused(format!(
        "Instances [{}] are already assigned to a fleet.",
        taken.join(", ")
    )))
}

/// Stores the logins of hosts that come.
pub(super) fn store(
    tx: &mut dyn Tx,
    changes: &Changes,
    logins_of_hosts: &Logins,
) -> Result<(), ApiError> {
    for new in &changes.new_instances {
        let login = new.row.ssh_host.as_deref();
        if let Some(login) = login.and_then(|host| logins_of_hosts.get(host)) {
            logins::put(tx, InstanceId(new.row.id.0), login)?;
        }
    }
    Ok(())
}

/// Private keys of hosts never leave the server.
pub(super) fn without_keys(mut spec: FleetSpec) -> FleetSpec {
    if let Some(ssh) = &mut spec.configuration.ssh_config {
        ssh.ssh_key = None;
        if let Some(jump) = &mut ssh.proxy_jump {
            jump.ssh_key = None;
        }
        for host in &mut ssh.hosts {
            if let SshHost::Params(params) = host {
                params.ssh_key = None;
                if let Some(jump) = &mut params.proxy_jump {
                    jump.ssh_key = None;
                }
            }
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use dstack_remote::KeyPair;
    use serde_json::json;

    fn fleet(ssh: serde_json::Value) -> FleetSpec {
        serde_json::from_value(json!({
            "configuration": {"type": "fleet", "name": "f", "env": {"A": "1"}, "ssh_config": ssh},
            "profile": {"name": "default"}
        }))
        .unwrap()
    }

    #[test]
    fn keys_are_sealed_host_by_host_and_shown_to_nobody() {
        let (common, own) = (
            KeyPair::generate("c").unwrap(),
            KeyPair::generate("o").unwrap(),
        );
        let key = |pair: &KeyPair| json!({"public": pair.public, "private": pair.private.expose()});
        let spec = fleet(json!({
            "user": "u", "identity_file": "k", "ssh_key": key(&common),
            "hosts": ["a", {"hostname": "b", "port": 2222, "identity_file": "x", "ssh_key": key(&own)}]
        }));
        let ring = Keyring::new([("k".to_owned(), Keyring::generate_key().unwrap())]).unwrap();
        let sealed = logins(&spec, &ring).unwrap();
        let open = |host: &str| -> Login {
            serde_json::from_str(ring.open(&sealed[host]).unwrap().expose()).unwrap()
        };
        assert_eq!(open("a:22").keys, [common.private.expose().to_owned()]);
        assert_eq!(open("b:2222").keys, [own.private.expose().to_owned()]);
        assert_eq!(open("a:22").env["A"], "1");
        assert!(!format!("{:?}{:?}", open("a:22"), sealed).contains("PRIVATE"));
        let shown = serde_json::to_string(&without_keys(spec)).unwrap();
        assert!(!shown.contains("PRIVATE"), "{shown}");
    }

    #[test]
    fn hosts_without_a_usable_key_are_refused() {
        let ring = Keyring::default();
        let refused = |ssh| logins(&fleet(ssh), &ring).unwrap_err().to_string();
        let none = json!({"user": "u", "identity_file": "k", "hosts": ["a"]});
        assert!(refused(none).contains("Private key not provided"));
        let odd = json!({"user": "u", "identity_file": "k", "hosts": ["a"],
            "ssh_key": {"public": "ssh-rsa A", "private": "no key"}});
        assert!(refused(odd).starts_with("Unsupported key type."));
        // One with a passphrase, which nobody can type on the server.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let made = std::process::Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "hush", "-f"])
            .arg(&file)
            .status();
        assert!(
            made.unwrap().success(),
            "ssh-keygen, of openssh-client, is needed"
        );
        let private = std::fs::read_to_string(&file).unwrap();
        let locked = json!({"user": "u", "identity_file": "k", "hosts": ["a"],
            "ssh_key": {"public": "ssh-ed25519 A", "private": private}});
        assert!(refused(locked).ends_with("without a passphrase."));
    }
}
