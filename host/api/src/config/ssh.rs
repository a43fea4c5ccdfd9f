//! Own hosts of a fleet.

use std::net::IpAddr;

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::instances::SshKey;
use dstack_backend_types::reading::{Failed, FromValue, Reader};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fleet::Blocks;
use super::object::config;
use super::schema::{self, choices};

config! {
    /// Own hosts and how to reach them.
    pub struct SshParams {
        /// User of all hosts that do not say otherwise.
        pub user: Option<String> = optional,
        /// Port of all hosts that do not say otherwise; unset means 22.
        pub port: Option<u16> = optional,
        /// Key file of all hosts that do not say otherwise; read by the client.
        pub identity_file: Option<String> = optional,
        /// The key itself; set by the client, never shown.
        pub ssh_key: Option<SshKey> = optional(ssh_key, schema::of::<SshKey>),
        /// A host to go through.
        pub proxy_jump: Option<SshProxyParams> = optional,
        /// The hosts.
        pub hosts: Vec<SshHost> = required,
        /// The private network the hosts share.
        pub network: Option<String> = optional(network, choices::address),
    }
}

config! {
    /// A host to go through.
    pub struct SshProxyParams {
        /// Name or address.
        pub hostname: String = required,
        /// Unset means 22.
        pub port: Option<u16> = optional,
        /// User.
        pub user: String = required,
        /// Key file; read by the client.
        pub identity_file: String = required,
        /// The key itself; set by the client, never shown.
        pub ssh_key: Option<SshKey> = optional(ssh_key, schema::of::<SshKey>),
    }
}

config! {
    /// A host with settings of its own.
    pub struct SshHostParams {
        /// Name or address.
        pub hostname: String = required,
        /// Port; unset means the common one.
        pub port: Option<u16> = optional,
        /// User; unset means the common one.
        pub user: Option<String> = optional,
        /// Key file; unset means the common one.
        pub identity_file: Option<String> = optional,
        /// A host to go through; unset means the common one.
        pub proxy_jump: Option<SshProxyParams> = optional,
        /// Address in the private network.
        pub internal_ip: Option<String> = optional(internal_ip, choices::address),
        /// The key itself; set by the client, never shown.
        pub ssh_key: Option<SshKey> = optional(ssh_key, schema::of::<SshKey>),
        /// Into how many parts the host is split; unset means as the fleet.
        pub blocks: Option<Blocks> = optional,
    }
}

/// A host: its name alone, or with settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SshHost {
    /// Name or address.
    Name(String),
    /// With settings of its own.
    Params(Box<SshHostParams>),
}

impl SshHost {
    /// Name or address.
    pub fn hostname(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Params(params) => &params.hostname,
        }
    }
}

impl FromValue for SshHost {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if value.is_object() {
            SshHostParams::from_value(value, cx).map(|params| Self::Params(Box::new(params)))
        } else {
            String::from_value(value, cx).map(Self::Name)
        }
    }
}

fn ssh_key(value: &Value, cx: &mut Reader) -> Result<SshKey, Failed> {
    SshKey::deserialize(value)
        .map_err(|_| cx.fail("expected a mapping with `public` and `private`"))
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

fn internal_ip(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let text = String::from_value(value, cx)?;
    match text.parse::<IpAddr>() {
        Ok(address) if is_private(address) => Ok(text),
        Ok(_) => Err(cx.fail(format!("{text} is not a private address"))),
        Err(_) => Err(cx.fail(format!("\"{text}\" is not an IP address"))),
    }
}

fn network(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let text = String::from_value(value, cx)?;
    let (address, bits) = text.split_once('/').unwrap_or((&text, ""));
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(cx.fail(format!("\"{text}\" is not a network such as 10.0.0.0/24")));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = if bits.is_empty() {
        Some(most)
    } else {
        bits.parse::<u8>().ok()
    };
    match bits.filter(|bits| *bits <= most) {
        Some(_) if is_private(address) => Ok(text),
        Some(_) => Err(cx.fail(format!("{text} is not a private network"))),
        None => Err(cx.fail(format!("\"{text}\" is not a network such as 10.0.0.0/24"))),
    }
}

deserialize_by_value!(SshHost);
