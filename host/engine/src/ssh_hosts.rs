//! Own hosts: which of them a fleet names, what they have, and what comes and goes with an update.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dstack_api::config::{Blocks, SshHost, SshProxyParams};
use dstack_api::fleets::FleetSpec;
use dstack_api::instances::InstanceStatus;
use dstack_backend_types::gpus::{self, amd_model, intel_model, nvidia_model};
use dstack_backend_types::instances::{Disk, Gpu, Resources};
use dstack_backend_types::matching::total_blocks;
use dstack_backend_types::offers::InstanceOffer;
use dstack_backend_types::provisioning::{GpuDriverInfo, SshConnectionParams};
use dstack_backend_types::{
    AcceleratorVendor, BackendType, CpuArchitecture, InstanceAvailability,
    InstanceOfferWithAvailability as Offer, InstanceType, JobProvisioningData,
};
use jiff::Timestamp;

use crate::changes::{Changes, NewInstance, Pipeline};
use crate::combine::Wanted;
use crate::fleets::{InUse, View};
use crate::ids::{Ids, InstanceId};
use crate::model::{FleetRow, InstanceRow};
use crate::offers::Sharing;

/// Region of all own hosts.
pub const REGION: &str = "remote";
const SSH_PORT: u16 = 22;
/// How far a GPU's reported memory may be from the size it is sold with.
const MEMORY_TOLERANCE: f64 = 0.07;

/// A host as its fleet names it, with what it takes from the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address.
    pub hostname: String,
    /// Port of its SSH server.
    pub port: u16,
    /// Account.
    pub user: String,
    /// The host to go through.
    pub proxy: Option<SshConnectionParams>,
    /// Its address in the private network.
    pub internal_ip: Option<String>,
    /// Into how many parts it is split.
    pub sharing: Sharing,
}

impl Host {
    /// What names a host in the whole server: one address may lead to several hosts by port forwarding.
    pub fn identity(&self) -> String {
        format!("{}:{}", self.hostname, self.port)
    }
}

/// The hosts of a fleet, in its order.
pub fn hosts(fleet: &FleetSpec) -> Vec<Host> {
    let Some(ssh) = &fleet.configuration.ssh_config else {
        return Vec::new();
    };
    let sharing = |blocks| match blocks {
        Blocks::Auto => Sharing::AUTO,
        Blocks::Count(count) => Sharing::Count(count),
    };
    let proxy = |jump: &SshProxyParams| SshConnectionParams {
        hostname: jump.hostname.clone(),
        username: jump.user.clone(),
        port: jump.port.unwrap_or(SSH_PORT),
    };
    let host = |host: &SshHost| {
        let own = match host {
            SshHost::Name(_) => None,
            SshHost::Params(own) => Some(own),
        };
        let own_jump = own.and_then(|own| own.proxy_jump.as_ref());
        Host {
            hostname: host.hostname().to_owned(),
            port: own
                .and_then(|own| own.port)
                .or(ssh.port)
                .unwrap_or(SSH_PORT),
            user: own
                .and_then(|own| own.user.clone())
                .or_else(|| ssh.user.clone())
                .unwrap_or_default(),
            proxy: own_jump.or(ssh.proxy_jump.as_ref()).map(proxy),
            internal_ip: own.and_then(|own| own.internal_ip.clone()),
            sharing: sharing(
                own.and_then(|own| own.blocks)
                    .unwrap_or(fleet.configuration.blocks),
            ),
        }
    };
    ssh.hosts.iter().map(host).collect()
}

/// The host that an instance of this fleet stands for; `None` if the fleet no longer names it.
pub fn host_of(fleet: &FleetSpec, instance: &InstanceRow) -> Option<Host> {
    let identity = instance.ssh_host.as_deref()?;
    hosts(fleet)
        .into_iter()
        .find(|host| host.identity() == identity)
}

/// The row of a host that is to be prepared.
pub fn pending(fleet: &FleetRow, host: &Host, now: Timestamp, id: InstanceId) -> InstanceRow {
    let wanted = Wanted::of_fleet(fleet.id, &fleet.spec, None);
    InstanceRow {
        ssh_host: Some(host.identity().into()),
        requirements: Some(Arc::new(wanted.requirements)),
        profile: Some(Arc::new(wanted.profile)),
        ..InstanceRow::pending(id, fleet, now)
    }
}

/// What an update of a fleet means for its hosts: new ones come, also in place of those that could not be prepared, and
/// those that are no longer named go. `view` has the fleet as it was.
///
/// # Errors
/// [`InUse`] if a host that would go has jobs.
pub fn update(view: &View, new: &FleetSpec, ids: &mut Ids) -> Result<Changes, InUse> {
    let fleet = FleetRow {
        spec: Arc::new(new.clone()),
        ..(*view.fleet).clone()
    };
    let wanted: BTreeMap<String, Host> = hosts(new)
        .into_iter()
        .map(|host| (host.identity(), host))
        .collect();
    let mut changes = Changes::default();
    for instance in view.instances.iter().filter(|i| i.is_living()) {
        let identity = instance.ssh_host.as_deref().unwrap_or_default();
        if wanted.contains_key(identity) {
            continue;
        }
        if instance.busy_blocks > 0 {
            return Err(InUse::Instance(Arc::clone(&instance.name)));
        }
        crate::fleets::host_ends(&mut changes, instance);
    }
    for host in hosts(new) {
        let identity = host.identity();
        let of_host = |i: &&InstanceRow| i.ssh_host.as_deref() == Some(&*identity);
        if view
            .instances
            .iter()
            .filter(of_host)
            .any(InstanceRow::is_living)
        {
            continue;
        }
        let failed = |i: &&InstanceRow| of_host(i) && i.status == InstanceStatus::Terminated;
        for instance in view.instances.iter().filter(failed) {
            changes.instance(instance).deleted = Some(true);
        }
        let row = pending(&fleet, &host, view.now, InstanceId(ids.uuid()));
        changes.event("Instance created on fleet update", &[&row, &fleet]);
        changes.hint(Pipeline::Instances, row.id);
        changes.new_instances.push(NewInstance {
            row,
            number_it: true,
        });
    }
    Ok(changes)
}

/// What the shim of a host told about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Processor family.
    pub arch: CpuArchitecture,
    /// `none`, `nvidia`, `amd`, `intel` or `tenstorrent`.
    pub gpu_vendor: String,
    /// Name of the GPUs as the vendor's tool prints it.
    pub gpu_name: String,
    /// Memory of one GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// Number of GPUs.
    pub gpu_count: u32,
    /// Version of the GPU driver, where it is known.
    pub gpu_driver: Option<String>,
    /// Addresses with prefix length, without the loopback.
    pub addresses: Vec<String>,
    /// Free bytes of the disk that holds images and tasks.
    pub disk_bytes: u64,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// What finds the shim again; kept as `backend_data`.
    pub backend_data: Option<String>,
}

/// A prepared host as a machine and as an offer of itself.
///
/// # Errors
/// Why the host does not fit its fleet: network, address, blocks.
pub fn describe(
    fleet: &FleetSpec,
    instance: &InstanceRow,
    host: &Host,
    facts: &HostFacts,
) -> Result<(JobProvisioningData, Offer), String> {
    let network = fleet
        .configuration
        .ssh_config
        .as_ref()
        .and_then(|ssh| ssh.network.clone());
    let internal_ip = internal_ip(host, network.as_deref(), &facts.addresses)?;
    let resources = resources(facts);
    let Some(total) = total_blocks(&resources, host.sharing) else {
        let parts = match host.sharing {
            Sharing::Count(count) => count.to_string(),
            Sharing::Auto(_) => "auto".to_owned(),
        };
        return Err(format!(
            "it has {} CPUs and {} GPUs, which cannot be divided into blocks: {parts}",
            facts.cpus, facts.gpu_count
        ));
    };
    let kind = InstanceType {
        name: "instance".to_owned(),
        resources,
    };
    let vendor = AcceleratorVendor::parse(&facts.gpu_vendor);
    let data = JobProvisioningData {
        backend: BackendType::REMOTE,
        base_backend: None,
        instance_type: kind.clone(),
        instance_id: instance.id.to_string(),
        hostname: Some(host.hostname.clone()),
        internal_ip,
        public_ip_enabled: true,
        instance_network: network,
        region: REGION.to_owned(),
        availability_zone: None,
        reservation: None,
        price: 0.0,
        username: host.user.clone(),
        ssh_port: Some(host.port),
        dockerized: true,
        ssh_proxy: host.proxy.clone(),
        backend_data: facts.backend_data.clone(),
        gpu_driver: facts
            .gpu_driver
            .clone()
            .map(|version| GpuDriverInfo { vendor, version }),
    };
    let mut offer = Offer::new(
        InstanceOffer {
            backend: BackendType::REMOTE,
            instance: kind,
            region: REGION.to_owned(),
            price: 0.0,
            backend_data: serde_json::Map::new(),
        },
        InstanceAvailability::Available,
    );
    offer.blocks = total;
    offer.total_blocks = total;
    Ok((data, offer))
}

fn resources(facts: &HostFacts) -> Resources {
    let vendor = AcceleratorVendor::parse(&facts.gpu_vendor);
    let name = match vendor {
        Some(AcceleratorVendor::Nvidia) => nvidia_model(&facts.gpu_name),
        Some(AcceleratorVendor::Amd) => amd_model(&facts.gpu_name).into_owned(),
        Some(AcceleratorVendor::Intel) => intel_model(&facts.gpu_name).into_owned(),
        _ => facts.gpu_name.clone(),
    };
    let gpu = Gpu {
        memory_mib: nominal_memory(&name, facts.gpu_memory_mib),
        name,
        vendor,
    };
    Resources {
        cpus: facts.cpus,
        memory_mib: facts.memory_bytes / (1024 * 1024),
        gpus: vec![gpu; usize::try_from(facts.gpu_count).unwrap_or(0)],
        spot: false,
        disk: Disk {
            size_mib: facts.disk_bytes / (1024 * 1024),
        },
        cpu_arch: Some(facts.arch),
        description: String::new(),
    }
}

/// The size that a model is sold with, if the reported one is near it: drivers keep some of the memory for themselves.
fn nominal_memory(name: &str, reported_mib: u64) -> u64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "memory of a GPU is far below 2^52 MiB"
    )]
    let away = |known: u64| (known as f64 - reported_mib as f64).abs() / known as f64;
    let sizes = gpus::find(name).into_iter().flat_map(|gpu| gpu.memory_gib);
    sizes
        .map(|gib| u64::from(*gib) * 1024)
        .filter(|known| away(*known) <= MEMORY_TOLERANCE)
        .min_by(|a, b| away(*a).total_cmp(&away(*b)))
        .unwrap_or(reported_mib)
}

/// The address that the other hosts of the fleet use.
fn internal_ip(
    host: &Host,
    network: Option<&str>,
    addresses: &[String],
) -> Result<Option<String>, String> {
    let own: Vec<IpAddr> = addresses
        .iter()
        .filter_map(|address| address.split('/').next()?.parse().ok())
        .collect();
    let has = || {
        let list: Vec<String> = own.iter().map(ToString::to_string).collect();
        if list.is_empty() {
            "none".to_owned()
        } else {
            list.join(", ")
        }
    };
    if let Some(wanted) = &host.internal_ip {
        let is_there = wanted.parse().is_ok_and(|wanted| own.contains(&wanted));
        return if is_there {
            Ok(Some(wanted.clone()))
        } else {
            Err(format!(
                "its internal_ip {wanted} is not among its addresses: {}",
                has()
            ))
        };
    }
    if let Some(network) = network {
        let found = own.iter().find(|address| is_within(**address, network));
        return match found {
            Some(address) => Ok(Some(address.to_string())),
            None => Err(format!(
                "it has no address in the fleet's network {network}; its addresses: {}",
                has()
            )),
        };
    }
    let private = |address: &&IpAddr| matches!(address, IpAddr::V4(v4) if v4.is_private());
    let reached: Option<IpAddr> = host.hostname.parse().ok();
    let best = own
        .iter()
        .find(|address| Some(**address) == reached && private(address))
        // The bridge of a container engine has the same address everywhere.
        .or_else(|| own.iter().find(|a| private(a) && !is_bridge(**a)))
        .or_else(|| own.iter().find(private));
    Ok(best.map(ToString::to_string))
}

fn is_bridge(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4 == Ipv4Addr::new(172, 17, 0, 1))
}

/// Whether an address lies in a network such as `10.0.0.0/24`; host bits in it do not matter.
fn is_within(address: IpAddr, network: &str) -> bool {
    let (base, bits) = network.split_once('/').unwrap_or((network, ""));
    let bits: Option<u32> = bits.parse().ok();
    match (address, base.parse()) {
        (IpAddr::V4(address), Ok(IpAddr::V4(base))) => {
            let free = 32u32.saturating_sub(bits.unwrap_or(32));
            let mask = u32::MAX.checked_shl(free).unwrap_or(0);
            address.to_bits() & mask == base.to_bits() & mask
        }
        (IpAddr::V6(address), Ok(IpAddr::V6(base))) => {
            let free = 128u32.saturating_sub(bits.unwrap_or(128));
            let mask = u128::MAX.checked_shl(free).unwrap_or(0);
            address.to_bits() & mask == base.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
