//! Capability words, as they stand in a plugin's manifest.
//!
//! Words are for ever. Each capability with methods owns a run of 16 method numbers, so that it can grow:
//!
//! | capability | first number |
//! |---|---|
//! | `compute` (always there) | 1 |
//! | `create_instance` | 16 |
//! | `group_provisioning` | 32 |
//! | `placement_groups` | 48 |
//! | `gateway` | 64 |
//! | `gateway_load_balancer` | 80 |
//! | `volumes` | 96 |
//! | `resource_listing` | 112 |
//! | `configurator` (always there) | 256 |
//! | flags: `privileged`, `instance_volumes`, `multinode`, `reservation`, `private_gateway` | none |

/// The base methods. Implied, need not be in the manifest.
pub const COMPUTE: &str = "compute";
/// Machines can be made without a job: fleets.
pub const CREATE_INSTANCE: &str = "create_instance";
/// All nodes of a cluster are made by one call.
pub const GROUP_PROVISIONING: &str = "group_provisioning";
/// Instances can be put close together.
pub const PLACEMENT_GROUPS: &str = "placement_groups";
/// Gateway machines can be made.
pub const GATEWAY: &str = "gateway";
/// A load balancer can stand before several gateway machines.
pub const GATEWAY_LOAD_BALANCER: &str = "gateway_load_balancer";
/// Network volumes.
pub const VOLUMES: &str = "volumes";
/// What stands in the cloud account can be listed and deleted by group, for orphan cleanup.
pub const RESOURCE_LISTING: &str = "resource_listing";
/// Configuration handling. Implied, need not be in the manifest.
pub const CONFIGURATOR: &str = "configurator";
/// Flag: containers may run privileged.
pub const PRIVILEGED: &str = "privileged";
/// Flag: folders of the instance can be mounted.
pub const INSTANCE_VOLUMES: &str = "instance_volumes";
/// Flag: instances of one region can reach each other, so clusters work.
pub const MULTINODE: &str = "multinode";
/// Flag: reserved capacity can be used.
pub const RESERVATION: &str = "reservation";
/// Flag: gateways without a public address.
pub const PRIVATE_GATEWAY: &str = "private_gateway";

/// Capabilities that have methods, with their first method number.
pub const WITH_METHODS: &[(&str, u32)] = &[
    (COMPUTE, 1),
    (CREATE_INSTANCE, 16),
    (GROUP_PROVISIONING, 32),
    (PLACEMENT_GROUPS, 48),
    (GATEWAY, 64),
    (GATEWAY_LOAD_BALANCER, 80),
    (VOLUMES, 96),
    (RESOURCE_LISTING, 112),
    (CONFIGURATOR, 256),
];

/// Capabilities that only tell what is possible.
pub const FLAGS: &[&str] = &[
    PRIVILEGED,
    INSTANCE_VOLUMES,
    MULTINODE,
    RESERVATION,
    PRIVATE_GATEWAY,
];

/// The capability that owns a method number.
pub fn of_method(number: u32) -> Option<&'static str> {
    let (name, first) = WITH_METHODS
        .iter()
        .rev()
        .find(|(_, first)| *first <= number)?;
    // The base methods own 1 to 15, everything else a run of 16.
    let last = if *first == 1 { 15 } else { first + 15 };
    (number <= last).then_some(*name)
}

/// Whether the word is one this version knows. Unknown words are kept and ignored.
pub fn is_known(word: &str) -> bool {
    FLAGS.contains(&word) || WITH_METHODS.iter().any(|(name, _)| *name == word)
}
