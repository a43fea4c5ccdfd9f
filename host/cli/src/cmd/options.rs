//! Options that change a configuration: what machine, where, at what price. Of `apply` and `offer`.

use clap::builder::TypedValueParser;
use dstack_api::config::{
    CreationPolicy, EntityReference, FromValue, Limit, Mode, ProfileParams, ProfileRetry, Reader,
    SpotPolicy, duration,
};
use dstack_backend_types::BackendType;
use dstack_backend_types::resources::{CpuSpec, DiskSpec, GpuSpec, Memory, Range, ResourcesSpec};
use serde_json::Value;

/// A value in the short form that configurations have too.
pub(crate) fn short<T: FromValue>(text: &str) -> Result<T, String> {
    short_with(text, T::from_value)
}

fn short_with<T>(
    text: &str,
    read: impl FnOnce(&Value, &mut Reader) -> Result<T, dstack_api::config::Failed>,
) -> Result<T, String> {
    let mut cx = Reader::new(Mode::Strict);
    read(&Value::from(text), &mut cx).map_err(|_| {
        cx.problems()
            .iter()
            .map(|problem| problem.message.clone())
            .collect::<Vec<_>>()
            .join("; ")
    })
}

/// What is asked of a machine.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Resources")]
pub(crate) struct ResourceOptions {
    /// CPUs, such as 4, 4.. or arm:8..16
    #[arg(long, value_name = "SPEC", value_parser = short::<CpuSpec>)]
    pub(crate) cpu: Option<CpuSpec>,
    /// GPUs, such as 1, A100, H100:80GB:8 or amd
    #[arg(long, value_name = "SPEC", value_parser = short::<GpuSpec>)]
    pub(crate) gpu: Option<GpuSpec>,
    /// Memory, such as 16GB or 16GB..
    #[arg(long, value_name = "RANGE", value_parser = short::<Range<Memory>>)]
    pub(crate) memory: Option<Range<Memory>>,
    /// Disk, such as 100GB..
    #[arg(long, value_name = "RANGE", value_parser = short::<DiskSpec>)]
    pub(crate) disk: Option<DiskSpec>,
}

impl ResourceOptions {
    /// Each option replaces its field.
    pub(crate) fn apply(&self, resources: &mut ResourcesSpec) {
        if let Some(cpu) = &self.cpu {
            resources.cpu = cpu.clone();
        }
        if let Some(gpu) = &self.gpu {
            resources.gpu = Some(gpu.clone());
        }
        if let Some(memory) = self.memory {
            resources.memory = memory;
        }
        if let Some(disk) = self.disk {
            resources.disk = Some(disk);
        }
    }
}

/// Where and how to provision.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Provisioning")]
pub(crate) struct ProfileOptions {
    /// A profile of .dstack/profiles.yml
    #[arg(long, value_name = "NAME", conflicts_with = "no_profile")]
    pub(crate) profile: Option<String>,
    /// No profile, not even the default one
    #[arg(long)]
    pub(crate) no_profile: bool,
    /// Dollars an hour at most
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub(crate) max_price: Option<f64>,
    /// How long a job may run, such as 2h; off for as long as it likes
    #[arg(long, value_name = "D", value_parser = short::<Limit>)]
    pub(crate) max_duration: Option<Limit>,
    /// Only this backend; may be repeated
    #[arg(short, long, value_name = "NAME", value_parser = short::<BackendType>)]
    pub(crate) backend: Vec<BackendType>,
    /// Only this region; may be repeated
    #[arg(short, long, value_name = "NAME")]
    pub(crate) region: Vec<String>,
    /// Only this instance type; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) instance_type: Vec<String>,
    /// Only this fleet; may be repeated
    #[arg(long, value_name = "NAME", value_parser = reference)]
    pub(crate) fleet: Vec<EntityReference>,
    /// Only existing machines
    #[arg(short = 'R', long, group = "keeping")]
    pub(crate) reuse: bool,
    /// Keep an idle machine for good
    #[arg(long, group = "keeping")]
    pub(crate) dont_destroy: bool,
    /// How long to keep an idle machine, such as 10m
    #[arg(long, value_name = "D", group = "keeping", value_parser = idle())]
    pub(crate) idle_duration: Option<i64>,
    /// Spot machines only
    #[arg(long, group = "spots")]
    pub(crate) spot: bool,
    /// On-demand machines only
    #[arg(long, group = "spots")]
    pub(crate) on_demand: bool,
    /// Spot machines or on-demand ones
    #[arg(long, group = "spots")]
    pub(crate) spot_auto: bool,
    /// spot, on-demand or auto
    #[arg(long, value_name = "POLICY", group = "spots", value_parser = short::<SpotPolicy>)]
    pub(crate) spot_policy: Option<SpotPolicy>,
    /// Try again on no capacity, interruption and errors
    #[arg(long, group = "retries")]
    pub(crate) retry: bool,
    /// Do not try again
    #[arg(long, group = "retries")]
    pub(crate) no_retry: bool,
    /// Try again for so long, such as 1h
    #[arg(long, value_name = "D", group = "retries", value_parser = positive())]
    pub(crate) retry_duration: Option<i64>,
}

impl ProfileOptions {
    /// Each option replaces its parameter.
    pub(crate) fn apply(&self, params: &mut ProfileParams) {
        fn list<T: Clone>(given: &[T], target: &mut Option<Vec<T>>) {
            if !given.is_empty() {
                *target = Some(given.to_vec());
            }
        }
        list(&self.backend, &mut params.backends);
        list(&self.region, &mut params.regions);
        list(&self.instance_type, &mut params.instance_types);
        list(&self.fleet, &mut params.fleets);
        params.max_price = self.max_price.or(params.max_price);
        params.max_duration = self.max_duration.or(params.max_duration);
        params.idle_duration = self.idle_duration.or(params.idle_duration);
        if self.dont_destroy {
            params.idle_duration = Some(-1);
        }
        if self.reuse {
            params.creation_policy = Some(CreationPolicy::Reuse);
        }
        let policies = [
            (self.spot, SpotPolicy::Spot),
            (self.on_demand, SpotPolicy::OnDemand),
            (self.spot_auto, SpotPolicy::Auto),
        ];
        let chosen = policies
            .iter()
            .find(|(is_set, _)| *is_set)
            .map(|(_, policy)| *policy);
        params.spot_policy = self.spot_policy.or(chosen).or(params.spot_policy);
        if self.retry || self.no_retry {
            params.retry = Some(ProfileRetry::Switch(self.retry));
        }
        if let Some(seconds) = self.retry_duration {
            params.retry = Some(ProfileRetry::Detail {
                on_events: None,
                duration: Some(seconds),
                max_attempts: None,
            });
        }
    }
}

/// Which offers to show.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct OfferOptions {
    /// Whole machines instead of shares of them
    #[arg(long)]
    pub(crate) full_offers: bool,
    /// Only what is free right now on existing machines
    #[arg(long)]
    pub(crate) unallocated: bool,
}

fn price(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|price| *price > 0.0 && price.is_finite())
        .ok_or_else(|| "expected a price above 0, in dollars an hour".to_owned())
}

fn reference(text: &str) -> Result<EntityReference, String> {
    EntityReference::parse(text).ok_or_else(|| "expected NAME or PROJECT/NAME".to_owned())
}

fn idle() -> impl TypedValueParser<Value = i64> {
    clap::builder::NonEmptyStringValueParser::new().try_map(|text| {
        short_with(&text, duration::idle)
            .and_then(|seconds| seconds.ok_or_else(|| "expected a duration such as 10m".to_owned()))
            .map_err(Wrong)
    })
}

fn positive() -> impl TypedValueParser<Value = i64> {
    clap::builder::NonEmptyStringValueParser::new()
        .try_map(|text| short_with(&text, duration::positive).map_err(Wrong))
}

/// Words as an error, which clap wants.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Wrong(String);
