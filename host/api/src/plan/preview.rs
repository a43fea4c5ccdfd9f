//! What a plan would use of a configuration, seen without a server: placeholders stand for what only a server knows.

use std::collections::BTreeMap;

use dstack_backend_types::CpuArchitecture;
use serde_json::{Value, json};

use super::{
    Bootstrap, DefaultImages, EffectiveRun, ImageFacts, JobSettings, PlanError, PlanLimits,
    check_fleet, check_gateway, check_volume, effective_run, fleet_requirements, image_names,
    initial_job_count, jobs::first_jobs, merged_fleet_profile, prepare, replica_group_count,
};
use crate::config::{Configuration, Ide, Profile, PythonVersion, RunConfiguration};
use crate::jobs::JobSpec;
use crate::runs::RunSpec;

/// The effective form of a configuration: for runs the configuration with defaults, the merged profile, the number of
/// jobs and the first job of each group; for fleets the configuration, the merged profile and the requirements; for the
/// others null.
///
/// No profile applies, there are no arguments, a variable `NAME` to be taken from the environment is `<NAME>`, and every
/// image is one for x86 that has an entrypoint and a command. Commands that set a container up are marks such as
/// `<python 3.12>`.
///
/// # Errors
/// The first rule of the client or the server that is broken.
pub fn effective_form(configuration: &Configuration) -> Result<Value, PlanError> {
    let mut configuration = configuration.clone();
    prepare(&mut configuration, &[], |name| Some(format!("<{name}>")))?;
    let limits = PlanLimits::default();
    match &configuration {
        Configuration::Run(run) => run_form(run, &limits),
        Configuration::Fleet(fleet) => {
            check_fleet(fleet)?;
            let profile = merged_fleet_profile(fleet, &Profile::empty("default"));
            let requirements = fleet_requirements(fleet, &profile);
            Ok(json!({
                "configuration": fleet,
                "merged_profile": profile,
                "requirements": requirements,
            }))
        }
        Configuration::Gateway(gateway) => check_gateway(gateway, &limits).map(|()| Value::Null),
        Configuration::Volume(volume) => check_volume(volume).map(|()| Value::Null),
        Configuration::Preset(_) => Ok(Value::Null),
    }
}

/// A public key, since a run without one is refused.
const USER_KEY: &str = "ssh-ed25519 AAAAUSERKEY user";

fn run_form(run: &RunConfiguration, limits: &PlanLimits) -> Result<Value, PlanError> {
    let (effective, jobs) = preview_jobs(run, limits)?;
    let mut form = json!({
        "configuration": effective.spec.configuration,
        "merged_profile": effective.profile,
        "initial_job_count": initial_job_count(&effective.spec.configuration),
    });
    let jobs = jobs.into_iter().map(|job| {
        let mut job = serde_json::to_value(job).unwrap_or_default();
        if let Value::Object(fields) = &mut job {
            for key in ["ssh_key", "repo_data", "repo_code_hash", "file_archives"] {
                fields.remove(key);
            }
        }
        job
    });
    // Moved, not written again: jobs repeat the environment, and there may be many.
    form["jobs"] = jobs.collect();
    Ok(form)
}

/// A run with its defaults, and the first job of each of its groups, as [`effective_form`] writes them.
///
/// # Errors
/// The first rule of the server that is broken.
pub fn preview_jobs(
    run: &RunConfiguration,
    limits: &PlanLimits,
) -> Result<(EffectiveRun, Vec<JobSpec>), PlanError> {
    let spec = RunSpec {
        run_name: None,
        repo_id: None,
        repo_data: None,
        repo_code_hash: None,
        repo_dir: None,
        file_archives: Vec::new(),
        working_dir: None,
        configuration_path: None,
        configuration: run.clone(),
        profile: Some(Profile::empty("default")),
        ssh_key_pub: Some(USER_KEY.to_owned()),
    };
    let effective = effective_run(spec, limits)?;
    let images = DefaultImages::default();
    let some_image = ImageFacts {
        architectures: vec![CpuArchitecture::X86],
        user: None,
        entrypoint: vec!["/entrypoint".to_owned()],
        command: vec!["serve".to_owned(), "--default".to_owned()],
    };
    let named = image_names(&effective.spec.configuration)
        .into_iter()
        .flatten();
    let facts: BTreeMap<_, _> = named
        .map(|(image, _)| (image, some_image.clone()))
        .collect();
    let settings = JobSettings {
        images: &images,
        registry: None,
        python: PythonVersion::Py312,
        bootstrap: &Marks,
        facts: &facts,
    };
    let mut jobs = Vec::new();
    for group in 0..replica_group_count(&effective.spec.configuration) {
        jobs.extend(first_jobs(
            &effective.spec,
            &effective.profile,
            group,
            &settings,
        )?);
    }
    Ok((effective, jobs))
}

/// Marks in place of the commands that set a container up.
struct Marks;

impl Bootstrap for Marks {
    fn python(&self, version: PythonVersion) -> Vec<String> {
        vec![format!("<python {version}>")]
    }
    fn docker(&self) -> Vec<String> {
        vec!["start-dockerd".to_owned()]
    }
    fn install_ide(&self, _: Ide, _: &str) -> Vec<String> {
        vec!["<ide install>".to_owned()]
    }
    fn notebooks(&self) -> Vec<String> {
        vec!["<ipykernel>".to_owned()]
    }
    fn ide_hints(&self, _: Ide, _: &str, _: &str) -> Vec<String> {
        vec!["<ide hints>".to_owned()]
    }
    fn ssh_hint(&self, _: &str) -> Vec<String> {
        vec!["<ssh hint>".to_owned()]
    }
    fn idle(&self) -> Vec<String> {
        vec!["<idle>".to_owned()]
    }
}

impl PlanError {
    /// The key of the configuration that the error is about, from the root; empty for none or many.
    pub fn path(&self) -> &'static [&'static str] {
        match self {
            Self::Name(_) => &["name"],
            Self::Variable(_) | Self::GroupReferenceInEnv(_) | Self::CloudFleetEnv => &["env"],
            Self::User(_) => &["user"],
            Self::RelativeWorkingDir(_) => &["working_dir"],
            Self::PortTwice(_) => &["ports"],
            Self::NegativeRetry(_) => &["retry", "duration"],
            Self::MountPath(_) => &["volumes"],
            Self::UtilizationWindow { .. } => &["utilization_policy", "time_window"],
            Self::CronNever(_) => &["schedule", "cron"],
            Self::ScheduledZero => &["schedule"],
            Self::DynamoRetry => &["retry"],
            Self::TooManyProbes { .. } | Self::ProbeTimeout { .. } => &["probes"],
            Self::VendorNeedsImage(_) => &["resources", "gpu"],
            Self::ArmNeedsImage => &["resources", "cpu"],
            Self::ArmDocker => &["docker"],
            Self::NoCommand(_) | Self::UnknownCommand(_) => &["image"],
            Self::Entrypoint { .. } => &["entrypoint"],
            Self::FleetBoth => &["nodes"],
            Self::SshFleetKey("resources") => &["resources"],
            Self::HostTwice(_) | Self::HostWithoutUser(_) | Self::HostWithoutKey(_) => {
                &["ssh_config", "hosts"]
            }
            Self::InternalIpAndNetwork => &["ssh_config", "network"],
            Self::SomeInternalIps => &["ssh_config", "hosts"],
            Self::GatewayBackend { .. } => &["backend"],
            Self::PrivateLetsEncrypt => &["public_ip"],
            Self::CertificateNeedsBalancer => &["certificate"],
            Self::BalancerCertificate => &["load_balancer"],
            Self::TooManyGatewayReplicas { .. } | Self::ReplicatedLetsEncrypt => &["replicas"],
            Self::ExternalCleanup => &["auto_cleanup_duration"],
            Self::GroupReference(_)
            | Self::Reference { .. }
            | Self::NoProfile(_)
            | Self::TooManyJobs { .. }
            | Self::HalfRepo
            | Self::FleetNeither
            | Self::SshFleetKey(_)
            | Self::VolumeSize
            | Self::NotUpdatable(_) => &[],
        }
    }
}
