//! A cluster of two nodes behind a login node. It understands the commands that the backend sends and answers in the words of
//! Slurm 24.11; nodes are those of `recorded/nodes.txt`.

use dstack_backend_sdk::types::services::{SshReply, SshRequest};
use dstack_backend_sdk::types::{BackendError, ErrorKind};
use serde_json::{Value, json};

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nslurm-conformance-key\n-----END OPENSSH PRIVATE KEY-----\n";
const NODES: &str = include_str!("recorded/nodes.txt");

/// A section of `config.yml` that this cluster accepts.
pub(crate) fn config() -> Value {
    json!({
        "type": "slurm",
        "clusters": [{
            "name": "hpc", "hostname": "login.hpc.example", "user": "researcher",
            "private_key": {"path": "~/.ssh/id", "content": KEY},
            "gpu_partitions": [{"gpu": "T4", "partitions": ["gpu"]}],
            "cpu_partitions": ["cpu"],
        }],
    })
}

#[derive(Debug)]
struct Job {
    id: u64,
    name: String,
    partition: String,
    nodes: Vec<String>,
    state: &'static str,
}

impl Job {
    /// As `squeue` prints it in the format that is asked for.
    fn line(&self) -> String {
        let Self {
            id,
            name,
            partition,
            state,
            ..
        } = self;
        let nodes = match self.nodes.as_slice() {
            [one] => one.clone(),
            several => format!("n[1-{}]", several.len()),
        };
        format!("{id}|{state}|{partition}|{nodes}|1796043600|{name}|None\n")
    }
}

type Answer = Result<(SshReply, Vec<u8>, Vec<u8>), BackendError>;

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    jobs: Vec<Job>,
    last: u64,
}

impl Cluster {
    pub(crate) fn answer(&mut self, request: &SshRequest, script: &[u8]) -> Answer {
        let key = request.target.private_key.as_ref();
        if key.is_none_or(|key| key.expose() != KEY) || request.target.user != "researcher" {
            return Err(BackendError::new(ErrorKind::Auth, "the key was refused"));
        }
        assert!(request.command.is_none(), "only a login shell has the path");
        let script = String::from_utf8(script.to_vec()).unwrap();
        let (head, lines) = script
            .split_once("\nexport LC_ALL=C SLURM_TIME_FORMAT=%s\n")
            .unwrap();
        let mark = head
            .split_whitespace()
            .nth(2)
            .unwrap()
            .trim_end_matches(';');
        let (status, out, err) = self.run(lines.trim_end_matches("exit $?\n").trim_end());
        let reply = SshReply {
            status: Some(status),
            ..SshReply::default()
        };
        let out = format!("Welcome to the cluster\n{mark}\n{out}");
        Ok((
            reply,
            out.into_bytes(),
            format!("{mark}\n{err}").into_bytes(),
        ))
    }

    fn run(&mut self, lines: &str) -> (u32, String, String) {
        let good = |text: String| (0, text, String::new());
        let word = |start: &str| {
            let (_, rest) = lines.split_once(start)?;
            rest.split([' ', '\n', ')', ';'])
                .next()
                .map(|word| word.trim_matches('\''))
        };
        if lines == "scontrol ping" {
            good("Slurmctld(primary) at bed is UP\n".to_owned())
        } else if lines == "sinfo -h -o %P" {
            good("cpu*\ngpu\nhidden\n".to_owned())
        } else if lines == "scontrol show -o node" {
            good(NODES.to_owned())
        } else if let Some(script) = lines.strip_prefix("sbatch --parsable ") {
            self.submit(script)
        } else if lines.starts_with("squeue -h -u \"$(id -un)\"") {
            let on = word(" -w ");
            let jobs = self.jobs.iter().filter(|job| job.state == "RUNNING");
            let jobs = jobs
                .filter(|job| on.is_none_or(|node| job.nodes.iter().any(|known| known == node)));
            good(jobs.map(Job::line).collect())
        } else if let Some(id) = word("; then scancel ") {
            let name = word("\" = ").unwrap_or_default();
            for job in self
                .jobs
                .iter_mut()
                .filter(|job| job.id.to_string() == id && job.name == name)
            {
                job.state = match job.state {
                    "RUNNING" => "COMPLETING",
                    _ => "CANCELLED",
                };
            }
            self.show(id)
        } else if let Some(id) = word("squeue -h -t all -j ") {
            self.show(id)
        } else if let Some(nodes) = word("scontrol show hostnames ") {
            let nodes: &[&str] = if nodes == "n[1-2]" {
                &["n1", "n2"]
            } else {
                &[nodes]
            };
            good(
                nodes
                    .iter()
                    .map(|node| format!("{node}|10.0.0.{}\n", node.trim_start_matches('n')))
                    .collect(),
            )
        } else if lines.contains("authorized_keys") {
            good(String::new())
        } else {
            (
                127,
                String::new(),
                format!("sh: 1: not understood: {lines}\n"),
            )
        }
    }

    fn submit(&mut self, script: &str) -> (u32, String, String) {
        let option = |key: &str| {
            let start = format!("#SBATCH --{key}=");
            script.lines().find_map(|line| line.strip_prefix(&start))
        };
        let count: usize = option("nodes").unwrap().parse().unwrap();
        let nodes: Vec<String> = if count == 2 {
            vec!["n1".to_owned(), "n2".to_owned()]
        } else {
            vec![if option("gres").is_some() { "n1" } else { "n2" }.to_owned()]
        };
        let is_free = |node: &String| {
            let mut jobs = self.jobs.iter().filter(|job| job.state == "RUNNING");
            !jobs.any(|job| job.nodes.contains(node))
        };
        // The suite starts more than there is room for: a cluster with this many nodes would have them elsewhere.
        let excluded = option("exclude").unwrap_or_default();
        let nodes = if nodes.iter().all(is_free) {
            nodes
        } else {
            (0..count)
                .map(|number| format!("n{}", 100 + self.jobs.len() + number))
                .collect()
        };
        assert!(
            nodes
                .iter()
                .all(|node| !excluded.split(',').any(|other| other == node))
        );
        self.last += 1;
        self.jobs.push(Job {
            id: self.last,
            name: option("job-name").unwrap().to_owned(),
            partition: option("partition")
                .unwrap()
                .split(',')
                .next()
                .unwrap()
                .to_owned(),
            nodes,
            state: "RUNNING",
        });
        (0, format!("{}\n", self.last), String::new())
    }

    /// A look finds an ending job over the next time.
    fn show(&mut self, id: &str) -> (u32, String, String) {
        let Some(job) = self.jobs.iter_mut().find(|job| job.id.to_string() == id) else {
            let error = "slurm_load_jobs error: Invalid job id specified\n";
            return (1, String::new(), error.to_owned());
        };
        let line = job.line();
        if job.state == "COMPLETING" {
            job.state = "CANCELLED";
        }
        (0, line, String::new())
    }
}
