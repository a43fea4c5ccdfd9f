//! Names of resources at the provider.
//!
//! A name is `dstack-<project>-<name>-<suffix>`. The suffix makes every attempt unique, since some providers refuse a name
//! that was used before. Where a provider has no tags, the suffix is `r` and the `provider_ref`, so that a listing can be
//! matched with the host's records; it is never cut off.

use dstack_backend_types::{
    GatewayComputeConfiguration, InstanceConfiguration, JobInfo, RunInfo, Volume,
};

/// Length that every provider takes.
pub const MAX_NAME_LEN: usize = 60;
/// Tag that carries the `provider_ref`, where the provider allows this key.
pub const PROVIDER_REF_TAG: &str = "dstack_provider_ref";

/// Characters of a random suffix.
const SUFFIX_LEN: usize = 8;
/// Characters of a `provider_ref`.
const PROVIDER_REF_LEN: usize = 16;
/// 36 characters; a byte is mapped onto them with a bias of less than 1 %, which is fine for a name.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Name of an instance.
pub fn instance_name(config: &InstanceConfiguration, max_len: usize) -> String {
    unique_name(&config.instance_name, Some(&config.project_name), max_len)
}

/// Name of an instance that carries the `provider_ref`, or a plain unique one if there is none.
pub fn instance_name_with_ref(config: &InstanceConfiguration, max_len: usize) -> String {
    match &config.provider_ref {
        Some(reference) => name_with_ref(
            &config.instance_name,
            Some(&config.project_name),
            reference,
            max_len,
        ),
        None => instance_name(config, max_len),
    }
}

/// Name of a job's container.
pub fn job_name(run: &RunInfo, job: &JobInfo, max_len: usize) -> String {
    unique_name(&job.job_name, Some(&run.project_name), max_len)
}

/// Name of a job's container that carries the `provider_ref`, or a plain unique one if there is none.
pub fn job_name_with_ref(run: &RunInfo, job: &JobInfo, max_len: usize) -> String {
    match &job.provider_ref {
        Some(reference) => {
            name_with_ref(&job.job_name, Some(&run.project_name), reference, max_len)
        }
        None => job_name(run, job, max_len),
    }
}

/// Name of a gateway machine.
pub fn gateway_name(config: &GatewayComputeConfiguration, max_len: usize) -> String {
    unique_name(&config.instance_name, Some(&config.project_name), max_len)
}

/// Name of a volume.
pub fn volume_name(volume: &Volume, max_len: usize) -> String {
    unique_name(&volume.name, Some(&volume.project_name), max_len)
}

/// Name of a placement group.
pub fn placement_group_name(project: &str, fleet: &str, max_len: usize) -> String {
    unique_name(fleet, Some(project), max_len)
}

/// Name where only very few characters are allowed, e.g. for load balancers: `dstack-` and a suffix.
pub fn short_name() -> String {
    format!("dstack-{}", random_suffix())
}

/// `dstack-<project>-<resource>-<8 random characters>`, cut before the suffix so that it fits `max_len`.
///
/// The project stands in it only if its name is one that every provider takes.
pub fn unique_name(resource: &str, project: Option<&str>, max_len: usize) -> String {
    with_suffix(&prefix(resource, project), &random_suffix(), max_len)
}

/// `dstack-<project>-<resource>-r<provider_ref>`, cut before the last part so that it fits `max_len`.
pub fn name_with_ref(
    resource: &str,
    project: Option<&str>,
    provider_ref: &str,
    max_len: usize,
) -> String {
    with_suffix(
        &prefix(resource, project),
        &format!("r{provider_ref}"),
        max_len,
    )
}

/// The `provider_ref` in a name made by [`name_with_ref`].
pub fn provider_ref_of_name(name: &str) -> Option<&str> {
    let (_, last) = name.rsplit_once('-')?;
    let reference = last.strip_prefix('r')?;
    let fits = reference.len() == PROVIDER_REF_LEN
        && reference
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    fits.then_some(reference)
}

/// Whether a name begins with a small letter and goes on with 1 to 40 small letters, digits and hyphens.
pub fn is_resource_name(name: &str) -> bool {
    (2..=41).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn prefix(resource: &str, project: Option<&str>) -> String {
    match project {
        Some(project) if is_resource_name(project) => format!("dstack-{project}-{resource}"),
        _ => format!("dstack-{resource}"),
    }
}

fn with_suffix(prefix: &str, suffix: &str, max_len: usize) -> String {
    let room = max_len.saturating_sub(suffix.len() + 1);
    let cut: String = prefix.chars().take(room).collect();
    format!("{cut}-{suffix}")
}

fn random_suffix() -> String {
    // A UUID's first 8 bytes hold 4 fixed bits in the seventh; the others are random.
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let random = bytes
        .iter()
        .take(6)
        .chain(bytes.iter().skip(14))
        .take(SUFFIX_LEN);
    random
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{is_resource_name, name_with_ref, provider_ref_of_name, short_name, unique_name};
    use crate::vectors::rows;

    #[test]
    fn names_are_cut_before_their_random_end() {
        for row in rows("unique-backend-name") {
            let max_len = usize::try_from(row["max_length"].as_u64().unwrap()).unwrap();
            let resource = row["resource_name"].as_str().unwrap();
            let name = unique_name(resource, row["project_name"].as_str(), max_len);
            let (prefix, suffix) = name.rsplit_once('-').unwrap();
            assert_eq!(prefix, row["prefix"], "{row}");
            assert_eq!(name.len() as u64, row["length"].as_u64().unwrap(), "{row}");
            assert!(
                suffix.len() == 8
                    && suffix
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            );
        }
        assert_ne!(unique_name("a", None, 60), unique_name("a", None, 60));
        assert_eq!(short_name().len(), 15);
    }

    #[test]
    fn a_reference_is_never_cut_off() {
        let reference = "0123456789abcdef";
        for max_len in [60, 30, 18] {
            let name = name_with_ref(
                "a-very-long-name-of-a-run-0-0",
                Some("main"),
                reference,
                max_len,
            );
            assert!(name.len() <= max_len, "{name}");
            assert_eq!(provider_ref_of_name(&name), Some(reference), "{name}");
        }
        for other in [
            "dstack-main-run-0-0-x1y2z3a4",
            "rabc",
            "",
            "dstack-run-r0123456789abcdeF",
        ] {
            assert_eq!(provider_ref_of_name(other), None, "{other}");
        }
    }

    #[test]
    fn resource_names_follow_the_rule() {
        for row in rows("resource-name")
            .into_iter()
            .filter(|row| row.get("quirk").is_none())
        {
            assert_eq!(
                is_resource_name(row["input"].as_str().unwrap()),
                row["output"],
                "{row}"
            );
        }
    }
}
