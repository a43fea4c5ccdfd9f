//! The job's environment, and the profile that gives it to login shells.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dstack_agent_protocol::runner::{ClusterInfo, SubmitRequest};

/// Variables that belong to a login session, not to the job.
const NOT_IN_PROFILE: [&str; 7] = ["HOSTNAME", "USER", "HOME", "SHELL", "SHLVL", "PWD", "_"];

pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// Where the job finds its things.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) repo_dir: &'a Path,
    pub(crate) working_dir: &'a Path,
    pub(crate) hostfile: &'a Path,
}

/// Builds the environment without `HOME`; later layers win.
pub(crate) fn build(base: Environment, job: &SubmitRequest, places: Places<'_>) -> Environment {
    let mut env = base;
    env.extend(variables(job, places).map(|(key, value)| (OsString::from(key), value)));
    for layer in [&job.secrets, &job.job_spec.env] {
        let layer = layer
            .iter()
            .map(|(key, value)| (key.into(), value.expose().into()));
        env.extend(layer);
    }
    // Functions that a shell exported are code for other shells; a value with NUL or a broken name cannot be passed on.
    env.retain(|key, value| !is_function(key) && is_passable(key, value));
    env
}

fn variables<'a>(
    job: &'a SubmitRequest,
    places: Places<'a>,
) -> impl Iterator<Item = (&'static str, OsString)> {
    let spec = &job.job_spec;
    let cluster = &job.cluster_info;
    let gpus: u64 = if cluster.gpus_per_node.is_empty() {
        u64::from(spec.jobs_per_replica) * u64::from(cluster.gpus_per_job)
    } else {
        cluster
            .gpus_per_node
            .iter()
            .map(|count| u64::from(*count))
            .sum()
    };
    [
        ("DSTACK_RUN_ID", job.run.id.clone().into()),
        ("DSTACK_JOB_ID", job.job_submission.id.clone().into()),
        ("DSTACK_RUN_NAME", job.run.run_spec.run_name.clone().into()),
        ("DSTACK_REPO_ID", job.run.run_spec.repo_id.clone().into()),
        ("DSTACK_REPO_DIR", places.repo_dir.into()),
        ("DSTACK_WORKING_DIR", places.working_dir.into()),
        ("DSTACK_NODES_IPS", cluster.job_ips.join("\n").into()),
        (
            "DSTACK_MASTER_NODE_IP",
            cluster.master_job_ip.clone().into(),
        ),
        ("DSTACK_NODE_RANK", spec.job_num.to_string().into()),
        ("DSTACK_NODES_NUM", spec.jobs_per_replica.to_string().into()),
        (
            "DSTACK_GPUS_PER_NODE",
            cluster.gpus_per_job.to_string().into(),
        ),
        ("DSTACK_GPUS_NUM", gpus.to_string().into()),
        ("DSTACK_MPI_HOSTFILE", places.hostfile.into()),
    ]
    .into_iter()
}

fn is_function(key: &OsStr) -> bool {
    let key = key.as_bytes();
    key.starts_with(b"BASH_FUNC_") && (key.ends_with(b"%%") || key.ends_with(b"()"))
}

fn is_passable(key: &OsStr, value: &OsStr) -> bool {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    !key.is_empty() && !key.contains(&b'=') && !key.contains(&0) && !value.contains(&0)
}

/// The profile: an `export` line a variable, then the way to the working directory.
pub(crate) fn profile(env: &Environment) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in env {
        let Some(key) = key.to_str().filter(|key| is_identifier(key)) else {
            continue;
        };
        if NOT_IN_PROFILE.contains(&key) {
            continue;
        }
        text.extend_from_slice(format!("export {key}='").as_bytes());
        for byte in value.as_bytes() {
            match byte {
                b'\'' => text.extend_from_slice(b"'\\''"),
                byte => text.push(*byte),
            }
        }
        text.extend_from_slice(b"'\n");
    }
    text.extend_from_slice(b"cd \"$DSTACK_WORKING_DIR\"\n");
    text
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Writes the profile and makes login shells read it.
pub(crate) fn write_profile(env: &Environment, at: &Path, login: Option<&Path>) -> io::Result<()> {
    std::fs::write(at, profile(env))?;
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o644))?;
    let Some(login) = login else { return Ok(()) };
    let mut file = OpenOptions::new().append(true).create(true).open(login)?;
    writeln!(file, ". '{}'", at.display())?;
    std::fs::set_permissions(login, PermissionsExt::from_mode(0o644))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("gpus_per_node length {gpus} != job_ips length {ips}")]
pub(crate) struct HostfileError {
    gpus: usize,
    ips: usize,
}

/// The MPI host file: a line a node; empty while an address is not known.
pub(crate) fn hostfile(cluster: &ClusterInfo) -> Result<String, HostfileError> {
    let (gpus, ips) = (&cluster.gpus_per_node, &cluster.job_ips);
    if !gpus.is_empty() && gpus.len() != ips.len() {
        return Err(HostfileError {
            gpus: gpus.len(),
            ips: ips.len(),
        });
    }
    let mut text = String::new();
    if ips.iter().any(String::is_empty) {
        return Ok(text);
    }
    for (index, ip) in ips.iter().enumerate() {
        let written = match gpus.get(index).copied().unwrap_or(cluster.gpus_per_job) {
            0 => writeln!(text, "{ip}"),
            slots => writeln!(text, "{ip} slots={slots}"),
        };
        written.expect("a string takes any text");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn places() -> Places<'static> {
        Places {
            repo_dir: Path::new("/workflow"),
            working_dir: Path::new("/w"),
            hostfile: Path::new("/dstack/mpi/hostfile"),
        }
    }

    fn job(value: serde_json::Value) -> SubmitRequest {
        serde_json::from_value(value).unwrap()
    }

    fn get<'a>(env: &'a Environment, key: &str) -> &'a str {
        env.get(OsStr::new(key))
            .and_then(|value| value.to_str())
            .unwrap_or("(unset)")
    }

    #[test]
    fn every_variable_of_the_contract_is_set() {
        let job = job(json!({
            "run": {"id": "r1", "run_spec": {"run_name": "n", "repo_id": "repo"}},
            "job_spec": {"job_num": 1, "jobs_per_replica": 2},
            "job_submission": {"id": "j1"},
            "cluster_info": {"job_ips": ["10.0.0.5", "10.0.0.6"], "master_job_ip": "10.0.0.5", "gpus_per_job": 8, "gpus_per_node": [8, 4]},
        }));
        let env = build(Environment::new(), &job, places());
        for (key, value) in [
            ("DSTACK_RUN_ID", "r1"),
            ("DSTACK_JOB_ID", "j1"),
            ("DSTACK_RUN_NAME", "n"),
            ("DSTACK_REPO_ID", "repo"),
            ("DSTACK_REPO_DIR", "/workflow"),
            ("DSTACK_WORKING_DIR", "/w"),
            ("DSTACK_NODES_IPS", "10.0.0.5\n10.0.0.6"),
            ("DSTACK_MASTER_NODE_IP", "10.0.0.5"),
            ("DSTACK_NODE_RANK", "1"),
            ("DSTACK_NODES_NUM", "2"),
            ("DSTACK_GPUS_PER_NODE", "8"),
            ("DSTACK_GPUS_NUM", "12"),
            ("DSTACK_MPI_HOSTFILE", "/dstack/mpi/hostfile"),
        ] {
            assert_eq!(get(&env, key), value, "{key}");
        }
        assert_eq!(env.len(), 13);
    }

    #[test]
    fn later_layers_win_and_exported_functions_go() {
        let base = [
            ("A", "base"),
            ("B", "base"),
            ("DSTACK_RUN_NAME", "base"),
            ("BASH_FUNC_f%%", "() {}"),
            ("BASH_FUNC_g()", "x"),
        ];
        let base = base
            .into_iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        let job = job(json!({
            "run": {"run_spec": {"run_name": "n"}},
            "secrets": {"B": "secret", "C": "secret"},
            "job_spec": {"env": {"C": "env", "DSTACK_RUN_ID": "own", "BASH_FUNC_h%%": "x"}, "jobs_per_replica": 3},
            "cluster_info": {"gpus_per_job": 2},
        }));
        let env = build(base, &job, places());
        assert_eq!(
            [get(&env, "A"), get(&env, "B"), get(&env, "C")],
            ["base", "secret", "env"]
        );
        assert_eq!(
            [
                get(&env, "DSTACK_RUN_NAME"),
                get(&env, "DSTACK_RUN_ID"),
                get(&env, "DSTACK_GPUS_NUM")
            ],
            ["n", "own", "6"]
        );
        assert!(
            !env.keys()
                .any(|key| key.to_string_lossy().starts_with("BASH_FUNC_"))
        );
    }

    #[test]
    fn the_profile_quotes_values_and_leaves_session_variables_out() {
        let env = [
            ("A", "it's $HOME\nx"),
            ("HOME", "/root"),
            ("PWD", "/"),
            ("_", "x"),
            ("not-a-name", "x"),
            ("1A", "x"),
            ("_ok", ""),
        ];
        let env = env.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let text = String::from_utf8(profile(&env)).unwrap();
        assert_eq!(
            text,
            "export A='it'\\''s $HOME\nx'\nexport _ok=''\ncd \"$DSTACK_WORKING_DIR\"\n"
        );
    }

    #[test]
    fn the_host_file_lists_nodes_with_their_gpus() {
        let cluster = |ips: &[&str], per_node: &[u32], per_job| ClusterInfo {
            job_ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
            gpus_per_node: per_node.to_vec(),
            gpus_per_job: per_job,
            ..ClusterInfo::default()
        };
        assert_eq!(
            hostfile(&cluster(&["a", "b"], &[8, 0], 8)).unwrap(),
            "a slots=8\nb\n"
        );
        assert_eq!(
            hostfile(&cluster(&["a", "b"], &[], 2)).unwrap(),
            "a slots=2\nb slots=2\n"
        );
        assert_eq!(hostfile(&cluster(&["a", ""], &[1, 1], 1)).unwrap(), "");
        let error = hostfile(&cluster(&["a"], &[1, 1], 1))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "gpus_per_node length 2 != job_ips length 1");
    }
}
