//! What is asked of a cluster, one function for each command.

use std::collections::BTreeMap;

use dstack_backend_sdk::boot::quote;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types::SshConnectionParams;

use crate::config::ClusterConfig;
use crate::gpu;
use crate::login::{LONG, Login, Ran, SHORT, short};
use crate::node::Node;
use crate::queue::{Entry, FORMAT};
use crate::script;

/// What Slurm says of a number that it does not know, or not any more.
const NO_SUCH_JOB: &str = "Invalid job id";

/// What `sbatch` says when nothing of the cluster fits, now or ever.
const NOTHING_FITS: [&str; 4] = [
    "Requested node configuration is not available",
    "Requested partition configuration not available",
    "invalid partition specified",
    "Node count specification invalid",
];

/// What `sbatch` says when a limit of the account refuses a job.
const LIMITED: [&str; 4] = [
    "Job violates accounting/QOS policy",
    "MaxSubmitJob",
    "MaxJobs",
    "Limit",
];

/// One cluster of the configuration.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: ClusterConfig,
    login: Login,
    /// By partition.
    gpus: BTreeMap<String, gpu::Kind>,
}

/// How a partition is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use<'a> {
    WithoutGpus,
    With(&'a gpu::Kind),
}

/// A node of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: String,
    /// As the login node reaches it.
    pub(crate) address: String,
}

impl Cluster {
    pub(crate) fn new(
        number: usize,
        config: &ClusterConfig,
        gpus: BTreeMap<String, gpu::Kind>,
    ) -> Self {
        Self {
            login: Login::new(number, config),
            config: config.clone(),
            gpus,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(crate) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// How those who attach get to a node.
    pub(crate) fn proxy(&self) -> SshConnectionParams {
        SshConnectionParams {
            hostname: self.config.hostname.clone(),
            username: self.config.user.clone(),
            port: self.config.port.unwrap_or(22),
        }
    }

    /// How a partition is used, twice if it stands in both lists.
    pub(crate) fn uses(&self, partition: &str) -> Vec<Use<'_>> {
        let kind = self.gpus.get(partition);
        let without = match &self.config.cpu_partitions {
            Some(named) => named.iter().any(|name| name == partition),
            None => kind.is_none(),
        };
        let without = without.then_some(Use::WithoutGpus);
        kind.map(Use::With).into_iter().chain(without).collect()
    }

    /// Whether the controller answers.
    ///
    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn ping(&self) -> Result<()> {
        let said = self.ask("scontrol ping")?;
        if said.contains("UP") {
            return Ok(());
        }
        Err(BackendError::new(
            ErrorKind::Transport,
            format!(
                "cluster {}: no controller is up: {}",
                self.name(),
                short(&said)
            ),
        ))
    }

    /// Partitions that the user sees.
    ///
    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn partitions(&self) -> Result<Vec<String>> {
        let said = self.ask("sinfo -h -o %P")?;
        let names = said.lines().map(|line| line.trim().trim_end_matches('*'));
        let mut names: Vec<String> = names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn nodes(&self) -> Result<Vec<Node>> {
        self.ask("scontrol show -o node")
            .map(|said| Node::read_all(&said))
    }

    /// All jobs of the user that are not over.
    ///
    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn queue(&self) -> Result<Vec<Entry>> {
        let said = self.ask(&format!("squeue -h -u \"$(id -un)\" -o '{FORMAT}'"))?;
        Ok(Entry::read_all(&said))
    }

    /// Jobs of the user that run on these nodes.
    ///
    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn jobs_on(&self, nodes: &str) -> Result<Vec<Entry>> {
        let said = self.ask(&format!(
            "squeue -h -u \"$(id -un)\" -t RUNNING,CONFIGURING -w {} -o '{FORMAT}'",
            quote(nodes)
        ))?;
        Ok(Entry::read_all(&said))
    }

    /// One job; `None` if Slurm does not know it any more.
    ///
    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn job(&self, id: u64) -> Result<Option<Entry>> {
        let lines = format!("squeue -h -t all -j {id} -o '{FORMAT}'");
        let ran = self.login.run(&lines, SHORT)?;
        entry_of(ran, "squeue")
    }

    /// One job as soon as it waits no more, or after so many seconds: one login for many looks.
    ///
    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn await_start(&self, id: u64, seconds: u32) -> Result<Option<Entry>> {
        let ran = self.login.run(&looks(id, seconds), SHORT)?;
        entry_of(ran, "squeue")
    }

    /// Submits a script and returns the job's number.
    ///
    /// # Errors
    /// `no_capacity` if no node will ever do, `quota` if a limit refuses it, `invalid` for other refusals.
    pub(crate) fn submit(&self, text: &str) -> Result<u64> {
        let ran = self.login.run(&script::submit(text), LONG)?;
        if ran.status != Some(0) {
            return Err(refused(&ran));
        }
        // `7` or `7;cluster`; a site's own additions stand before it.
        let last = ran
            .stdout
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty());
        let number = last.and_then(|line| line.trim().split(';').next());
        number.and_then(|text| text.parse().ok()).ok_or_else(|| {
            BackendError::internal(format!(
                "cluster {}: sbatch told no number of the job: {}",
                self.name(),
                short(&ran.stdout)
            ))
        })
    }

    /// Cancels a job that still has this name: numbers are given again one day. What is known of it then, `None` if nothing.
    ///
    /// # Errors
    /// `auth`, `transport`.
    pub(crate) fn cancel(&self, id: u64, name: &str) -> Result<Option<Entry>> {
        let lines = format!(
            "if [ \"$(squeue -h -t all -j {id} -o %j 2>/dev/null)\" = {} ]; then scancel {id}; fi\n\
             squeue -h -t all -j {id} -o '{FORMAT}'",
            quote(name)
        );
        let ran = self.login.run(&lines, LONG)?;
        Ok(entry_of(ran, "scancel")?.filter(|entry| entry.name == name))
    }

    /// Names and addresses of nodes, in the order of Slurm.
    ///
    /// # Errors
    /// `internal` if one has no address.
    pub(crate) fn places(&self, nodes: &str) -> Result<Vec<Place>> {
        let lines = format!(
            "for n in $(scontrol show hostnames {}); do\n\
             a=$(scontrol show -o node=\"$n\" | tr ' ' '\\n' | sed -n 's/^NodeAddr=//p' | head -n 1)\n\
             a=${{a:-$n}}\n\
             i=$(getent hosts \"$a\" | head -n 1 | cut -d ' ' -f 1)\n\
             printf '%s|%s\\n' \"$n\" \"${{i:-$a}}\"\n\
             done",
            quote(nodes)
        );
        let said = self.ask(&lines)?;
        let pairs = said.lines().filter_map(|line| line.split_once('|'));
        let places: Vec<Place> = pairs
            .map(|(node, address)| Place {
                node: node.trim().to_owned(),
                address: address.trim().to_owned(),
            })
            .collect();
        if places.is_empty() || places.iter().any(|place| place.address.is_empty()) {
            return Err(BackendError::internal(format!(
                "cluster {}: no address of {nodes}: {}",
                self.name(),
                short(&said)
            )));
        }
        Ok(places)
    }

    /// Runs lines that change the user's file of keys.
    ///
    /// # Errors
    /// `auth`, `transport`; `internal` if it cannot be written.
    pub(crate) fn add_keys(&self, lines: &str) -> Result<()> {
        self.login
            .run(lines, SHORT)?
            .ok("authorized_keys")
            .map(drop)
    }

    fn ask(&self, command: &str) -> Result<String> {
        let what = command.split(' ').next().unwrap_or_default();
        self.login.run(command, SHORT)?.ok(what)
    }
}

/// Lines that look once a second and show the last look.
fn looks(id: u64, seconds: u32) -> String {
    format!(
        "left={seconds}\n\
         while :; do\n\
         line=$(squeue -h -t all -j {id} -o '{FORMAT}') || exit 1\n\
         case $line in *'|PENDING|'*|*'|CONFIGURING|'*) ;; *) break ;; esac\n\
         left=$((left - 1))\n\
         [ $left -gt 0 ] || break\n\
         sleep 1\n\
         done\n\
         printf '%s\\n' \"$line\""
    )
}

fn entry_of(ran: Ran, what: &str) -> Result<Option<Entry>> {
    if ran.status != Some(0) {
        if ran.stderr.contains(NO_SUCH_JOB) {
            return Ok(None);
        }
        return Err(ran.failed(what));
    }
    Ok(Entry::read_all(&ran.stdout).into_iter().next())
}

/// What `sbatch` refuses a job for.
fn refused(ran: &Ran) -> BackendError {
    let error = ran.failed("sbatch");
    if error.kind != ErrorKind::Internal {
        return error;
    }
    let says = |words: &[&str]| words.iter().any(|word| ran.stderr.contains(word));
    let kind = if says(&NOTHING_FITS) {
        ErrorKind::NoCapacity
    } else if says(&LIMITED) {
        ErrorKind::Quota
    } else if ran.stderr.contains("sbatch: error") {
        // The controller has judged: there is no job.
        ErrorKind::Invalid
    } else {
        ErrorKind::Internal
    };
    BackendError { kind, ..error }
}

#[cfg(test)]
mod tests {
    use super::looks;

    /// What the lines print where `squeue` finds these states one after the other, and how often they slept.
    fn shown(states: &str, seconds: u32) -> (String, usize) {
        let lines = format!(
            "set -- {states}\n\
             squeue() {{ cat state; }}\n\
             sleep() {{ echo slept >> naps; shift_state; }}\n\
             shift_state() {{ sed -i 1d states; head -n 1 states > state; }}\n\
             printf '7|%s|p|n||x|None\\n' \"$@\" > states; head -n 1 states > state\n{}",
            looks(7, seconds)
        );
        let folder = tempfile::tempdir().unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &lines])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let naps = std::fs::read_to_string(folder.path().join("naps")).unwrap_or_default();
        let said = String::from_utf8(output.stdout).unwrap();
        (said, naps.lines().count())
    }

    #[test]
    fn a_login_looks_until_the_job_waits_no_more() {
        let running = "7|RUNNING|p|n||x|None\n".to_owned();
        assert_eq!(
            shown("PENDING CONFIGURING RUNNING", 15),
            (running.clone(), 2)
        );
        assert_eq!(shown("RUNNING", 15), (running, 0));
        let waiting = "7|PENDING|p|n||x|None\n".to_owned();
        assert_eq!(shown("PENDING PENDING PENDING RUNNING", 3), (waiting, 2));
        let failed = "7|FAILED|p|n||x|None\n".to_owned();
        assert_eq!(shown("PENDING FAILED", 3), (failed, 1));
    }
}
