//! The traits a backend implements, one for each capability.
//!
//! | trait | capability word | when to implement it |
//! |---|---|---|
//! | [`Backend`], [`Compute`] | `compute`, implied | always |
//! | [`Configurator`] | `configurator`, implied | always; defaults do all but the check of credentials |
//! | [`CreateInstance`] | `create_instance` | it rents machines: fleets work |
//! | [`GroupProvisioning`] | `group_provisioning` | it makes all nodes of a cluster by one call |
//! | [`PlacementGroups`] | `placement_groups` | machines can be placed close together |
//! | [`Gateways`] | `gateway` | gateway machines |
//! | [`GatewayLoadBalancer`] | `gateway_load_balancer` | a load balancer before gateway machines |
//! | [`Volumes`] | `volumes` | network volumes |
//! | [`ResourceListing`] | `resource_listing` | orphans can be found and deleted |
//!
//! Most clouds are a [`SimpleCloud`]: six methods give `Compute`, `CreateInstance` and `ResourceListing` together.
//!
//! Flags are words without methods, given to `export_backend!` like the others:
//!
//! | flag | promise |
//! |---|---|
//! | `privileged` | containers may run privileged; every backend with the shim has it |
//! | `instance_volumes` | folders of the machine can be mounted; every backend with the shim has it |
//! | `multinode` | instances of one project in one region reach each other by `internal_ip` |
//! | `reservation` | `get_offers` returns only offers that the reservation of the requirements can take (and adjusts their availability and zones); `create_instance` uses the reservation of its configuration |
//! | `private_gateway` | `create_gateway_replica` honours `public_ip: false` |
//!
//! **Rules for every method.** It blocks; the host runs it on a thread of its own, with a deadline. Waiting is done through
//! the host (`http`, `sleep`), so that a deadline ends it with an error of kind `cancelled`: pass such an error on. The same
//! call may come twice (after a lost answer, by another server replica): the second must find what the first made, by
//! `provider_ref`, and must not make it again. Messages of errors are for people and hold no secrets; the kind is what the
//! host acts on. A method the plugin does not export is never called.

mod compute;
mod configurator;
mod extras;
mod simple;

pub use compute::{Backend, Compute, CreateInstance, GroupProvisioning, run_job_on_new_instance};
pub use configurator::Configurator;
pub use extras::{GatewayLoadBalancer, Gateways, PlacementGroups, ResourceListing, Volumes};
pub use simple::{Instance, InstanceState, SimpleCloud, run_container};
