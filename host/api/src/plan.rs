//! The plan form: what becomes of a configuration on its way to jobs. Pure; nothing is looked up here.
//!
//! | step | who | function |
//! |---|---|---|
//! | the profile to use | client | [`choose_profile`] |
//! | variables, arguments, ports | client | [`prepare`] |
//! | rules and defaults of a run | server | [`effective_run`] |
//! | rules of the others | server | [`check_fleet`], [`check_gateway`], [`check_volume`] |
//! | the jobs of a replica | server | [`replica_jobs`] |
//! | a run inside a fleet | server | [`combine`] |
//! | a run that becomes another | server | [`update_in_place`] |
//! | all of it without a server | client | [`effective_form`] |

mod accelerators;
mod bootstrap;
mod choose;
mod client;
pub mod combine;
mod commands;
pub mod groups_ip;
mod image;
pub mod interpolate;
mod jobs;
mod others;
mod preview;
mod run;
mod shape;
pub mod shell;
mod update;

use dstack_backend_types::{AcceleratorVendor, BackendType};

pub use accelerators::{ImageSource, infer_vendor};
pub use bootstrap::{Bootstrap, StandardBootstrap};
pub use choose::{ProfileChoice, choose_profile};
pub use client::{merge_ports, prepare, prepare_fleet, prepare_run};
pub use image::{DefaultImages, DefaultRegistry, ImageName};
pub use jobs::{ImageFacts, ImagesFacts, JobSettings, replica_jobs};
pub use others::{
    check_fleet, check_gateway, check_volume, fleet_requirements, gateway_domain,
    merged_fleet_profile,
};
pub use preview::{effective_form, preview_jobs};
pub use run::{EffectiveRun, effective_run, merged_profile};
pub use shape::{
    ImageNeed, image_names, image_needs, initial_job_count, jobs_per_replica, replica_bounds,
    replica_group_count, replica_group_names,
};
pub use update::update_in_place;

/// Limits of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// Seconds for which metrics are kept.
    pub metrics_seconds: i64,
    /// Jobs a run may start with.
    pub jobs: u32,
    /// Probes of a service at most.
    pub probes: usize,
    /// Seconds a probe may wait at most.
    pub probe_timeout_seconds: u32,
    /// Replicas of a gateway at most.
    pub gateway_replicas: u32,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self {
            metrics_seconds: 3600,
            jobs: 10_000,
            probes: 10,
            probe_timeout_seconds: 300,
            gateway_replicas: 9,
        }
    }
}

/// Why a valid configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what is meant")]
pub enum PlanError {
    #[error(transparent)]
    Name(#[from] crate::config::names::BadName),
    #[error(transparent)]
    Variable(#[from] crate::config::UnsetVariable),
    #[error(transparent)]
    User(#[from] crate::config::BadUser),
    #[error(transparent)]
    GroupReference(#[from] groups_ip::BadGroupReference),
    #[error("in {place}: {source}")]
    Reference {
        place: String,
        source: interpolate::BadReference,
    },
    #[error("variable {0} refers to `groups[…]`, which is possible in `commands` only")]
    GroupReferenceInEnv(String),
    #[error("`working_dir` must be an absolute path, got \"{0}\"")]
    RelativeWorkingDir(String),
    #[error(
        "there is no profile named `{0}`; see `.dstack/profiles.yml` here and in the home folder"
    )]
    NoProfile(String),
    #[error("port {0} is given twice in `ports`")]
    PortTwice(u16),
    #[error("`env` is for SSH fleets only")]
    CloudFleetEnv,
    #[error("`retry.duration` cannot be negative, got {0}")]
    NegativeRetry(i64),
    #[error("the mount path \"{0}\" must be absolute, without a slash at the end")]
    MountPath(String),
    #[error("`repo_id` and `repo_data` are given both or not at all")]
    HalfRepo,
    #[error("`utilization_policy.time_window` is {window} s, but metrics are kept for {kept} s")]
    UtilizationWindow { window: i64, kept: i64 },
    #[error("`schedule.cron`: \"{0}\" never comes")]
    CronNever(String),
    #[error("a scheduled service needs at least one replica; set `replicas` to 1 or more")]
    ScheduledZero,
    #[error(
        "`retry` is not possible with a Dynamo router; remove it from the service and its profile"
    )]
    DynamoRetry,
    #[error(
        "the run would start with {jobs} jobs, {max} are possible; lower `nodes` or `replicas`"
    )]
    TooManyJobs { jobs: u32, max: u32 },
    #[error("{count} probes are too many, {max} are possible")]
    TooManyProbes { count: usize, max: usize },
    #[error("a probe's timeout of {timeout} s is too long, {max} s are possible")]
    ProbeTimeout { timeout: u32, max: u32 },
    #[error("the default images have no {0} software; set `image` to one that has")]
    VendorNeedsImage(AcceleratorVendor),
    #[error("the default images are for x86 only; set `image` to one for ARM")]
    ArmNeedsImage,
    #[error("`docker: true` is not possible on ARM")]
    ArmDocker,
    #[error("the image {0} has no command; set `commands`")]
    NoCommand(String),
    #[error("`commands` must be set: what the image {0} starts by itself is not known")]
    UnknownCommand(String),
    #[error("\"{text}\" cannot be split into words: {source}")]
    Entrypoint {
        text: String,
        source: shell::BadShellText,
    },
    #[error("`nodes` and `ssh_config` exclude each other")]
    FleetBoth,
    #[error("one of `nodes` and `ssh_config` is required")]
    FleetNeither,
    #[error("`{0}` is for cloud fleets only; remove it from the SSH fleet")]
    SshFleetKey(&'static str),
    #[error("the host {0} is listed twice in `ssh_config.hosts`")]
    HostTwice(String),
    #[error("the host {0} has no user; set `ssh_config.user` or the host's `user`")]
    HostWithoutUser(String),
    #[error(
        "the host {0} has no key; set `ssh_config.identity_file` or the host's `identity_file`"
    )]
    HostWithoutKey(String),
    #[error("`internal_ip` and `network` exclude each other")]
    InternalIpAndNetwork,
    #[error("`internal_ip` is given for all hosts or for none")]
    SomeInternalIps,
    #[error("{backend} cannot {what}")]
    GatewayBackend {
        backend: BackendType,
        what: &'static str,
    },
    #[error(
        "a gateway without a public address cannot use `lets-encrypt`; set another `certificate` or null"
    )]
    PrivateLetsEncrypt,
    #[error("a certificate of GCP Certificate Manager needs `load_balancer`")]
    CertificateNeedsBalancer,
    #[error("a load balancer cannot use `lets-encrypt`; set another `certificate` or null")]
    BalancerCertificate,
    #[error("a gateway has {max} replicas at most, got {replicas}")]
    TooManyGatewayReplicas { replicas: u32, max: u32 },
    #[error("`lets-encrypt` works with one replica only; set another `certificate` or null")]
    ReplicatedLetsEncrypt,
    #[error("a volume needs `size`, or the identifier of an existing one")]
    VolumeSize,
    #[error("`auto_cleanup_duration` is not possible for a volume made outside")]
    ExternalCleanup,
    #[error("`{0}` cannot change while the run goes on; stop the run first")]
    NotUpdatable(String),
}

#[cfg(test)]
mod tests;
