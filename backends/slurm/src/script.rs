//! The batch script of a job: one step, which starts the container on every node.

use dstack_backend_sdk::boot::{ContainerSetup, quote};
use dstack_backend_sdk::types::Resources;

use crate::image::pyxis_name;

/// What a job asks Slurm for.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) name: &'a str,
    pub(crate) partitions: &'a [String],
    pub(crate) nodes: usize,
    /// Of one node.
    pub(crate) resources: &'a Resources,
    /// Slurm's word for the sort of GPU, where it has one.
    pub(crate) gpu_word: Option<&'a str>,
    pub(crate) account: Option<&'a str>,
    pub(crate) qos: Option<&'a str>,
    pub(crate) time_limit: Option<&'a str>,
    /// Nodes to leave out, in Slurm's short form.
    pub(crate) exclude: &'a [String],
    pub(crate) image: &'a str,
    pub(crate) setup: ContainerSetup,
}

/// Before the runner is fetched. In a container of a user without rights a server for SSH finds its own folder open to others, and
/// an account that does not exist there. Two runners of one node would listen on the same ports, since the network is the node's.
const BEFORE_RUNNER: [&str; 3] = [
    "if grep -qsE ':(2726|2AF7) 0+:0000 0A' /proc/net/tcp /proc/net/tcp6; then echo another run is on this node >&2; exit 13; fi",
    "chmod 0755 /",
    r"sed -i 's/^\(sshd:[^:]*\):[0-9]*:/\1:0:/' /etc/passwd",
];

impl Batch<'_> {
    /// The text that `sbatch` reads.
    pub(crate) fn render(mut self) -> String {
        let has = self.resources;
        let mut options = vec![
            format!("job-name={}", self.name),
            "output=/dev/null".to_owned(),
            "no-requeue".to_owned(),
            format!("partition={}", self.partitions.join(",")),
            format!("nodes={}", self.nodes),
            "ntasks-per-node=1".to_owned(),
            format!("cpus-per-task={}", has.cpus),
            format!("mem={}M", has.memory_mib),
        ];
        match (has.gpus.len(), self.gpu_word) {
            (0, _) => {}
            (count, None) => options.push(format!("gres=gpu:{count}")),
            (count, Some(word)) => options.push(format!("gres=gpu:{word}:{count}")),
        }
        let wished = [
            ("account", self.account),
            ("qos", self.qos),
            ("time", self.time_limit),
        ];
        for (key, value) in wished {
            options.extend(value.map(|value| format!("{key}={}", quote(value))));
        }
        if !self.exclude.is_empty() {
            options.push(format!("exclude={}", self.exclude.join(",")));
        }
        let mut text = "#!/bin/sh\n".to_owned();
        for option in options {
            text.push_str(&format!("#SBATCH --{option}\n"));
        }
        if has.gpus.is_empty() {
            // Else all GPUs of the node are shown to the container.
            text.push_str("export NVIDIA_VISIBLE_DEVICES=void\n");
        }
        text.push_str(&self.step());
        text
    }

    fn step(&mut self) -> String {
        let has = self.resources;
        self.setup.before_runner = BEFORE_RUNNER.map(str::to_owned).to_vec();
        let mut words = vec![
            "exec srun".to_owned(),
            format!("--cpus-per-task={}", has.cpus),
            format!("--container-image={}", quote(&pyxis_name(self.image))),
            format!("--container-name={}", self.name),
            "--container-remap-root".to_owned(),
            "--container-writable".to_owned(),
            "--no-container-mount-home".to_owned(),
        ];
        if has.gpus.is_empty() {
            words.push("--container-env=NVIDIA_VISIBLE_DEVICES".to_owned());
        }
        words.push("/bin/sh -c".to_owned());
        words.push(quote(&self.setup.script()));
        words.join(" ") + "\n"
    }
}

/// Lines that submit this script. The mark is a word that stands nowhere in it.
pub(crate) fn submit(script: &str) -> String {
    let mut mark = "END_OF_JOB".to_owned();
    while script.contains(&mark) {
        mark.push('_');
    }
    format!("sbatch --parsable <<'{mark}'\n{script}{mark}\n")
}

#[cfg(test)]
mod tests {
    use super::{Batch, submit};
    use dstack_backend_sdk::boot::ContainerSetup;
    use dstack_backend_sdk::types::{AgentUrls, CpuArchitecture, Disk, Gpu, Resources};

    fn resources(gpus: usize) -> Resources {
        Resources {
            cpus: 4,
            memory_mib: 8192,
            gpus: vec![
                Gpu {
                    name: "H100".to_owned(),
                    memory_mib: 81_920,
                    vendor: None
                };
                gpus
            ],
            spot: false,
            disk: Disk { size_mib: 0 },
            cpu_arch: None,
            description: String::new(),
        }
    }

    fn batch(resources: &Resources) -> Batch<'_> {
        let urls = AgentUrls {
            shim: "https://a.example/s".to_owned(),
            runner: "https://a.example/{arch}/r".to_owned(),
            version: "1".to_owned(),
        };
        let keys = vec!["ssh-ed25519 AAAA it's me".to_owned()];
        Batch {
            name: "dstack-main-a-0-0-x",
            partitions: &[],
            nodes: 1,
            resources,
            gpu_word: None,
            account: None,
            qos: None,
            time_limit: None,
            exclude: &[],
            image: "nvcr.io/nvidia/cuda:12",
            setup: ContainerSetup::new(urls, CpuArchitecture::X86, keys),
        }
    }

    #[test]
    fn a_job_without_gpus_sees_none() {
        let resources = resources(0);
        let partitions = ["cpu".to_owned(), "any".to_owned()];
        let text = Batch {
            partitions: &partitions,
            ..batch(&resources)
        }
        .render();
        for line in [
            "#SBATCH --job-name=dstack-main-a-0-0-x\n",
            "#SBATCH --output=/dev/null\n",
            "#SBATCH --no-requeue\n",
            "#SBATCH --partition=cpu,any\n",
            "#SBATCH --nodes=1\n",
            "#SBATCH --ntasks-per-node=1\n",
            "#SBATCH --cpus-per-task=4\n",
            "#SBATCH --mem=8192M\n",
            "export NVIDIA_VISIBLE_DEVICES=void\n",
            " --container-image='nvcr.io#nvidia/cuda:12' --container-name=dstack-main-a-0-0-x --container-remap-root --container-writable --no-container-mount-home --container-env=NVIDIA_VISIBLE_DEVICES ",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for absent in ["gres", "account", "qos", "--time", "exclude"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }

    #[test]
    fn wishes_become_options() {
        let resources = resources(8);
        let exclude = ["n1".to_owned(), "n[4-5]".to_owned()];
        let text = Batch {
            nodes: 2,
            gpu_word: Some("h100"),
            account: Some("lab"),
            qos: Some("high prio"),
            time_limit: Some("1-00:00:00"),
            exclude: &exclude,
            ..batch(&resources)
        }
        .render();
        for option in [
            "nodes=2",
            "gres=gpu:h100:8",
            "account=lab",
            "qos='high prio'",
            "time=1-00:00:00",
            "exclude=n1,n[4-5]",
        ] {
            assert!(text.contains(&format!("#SBATCH --{option}\n")), "{text}");
        }
        assert!(!text.contains("VISIBLE_DEVICES"), "{text}");
    }

    #[test]
    fn a_shell_reads_the_script_as_it_was_meant() {
        let resources = resources(0);
        let text = batch(&resources).render();
        let step = text.lines().last().unwrap_or_default();
        // What the shell makes of the last line, with `srun` in the place of a program that shows its last word.
        let lines = format!(
            "srun() {{ for word in \"$@\"; do :; done; printf '%s' \"$word\"; }}\n{}",
            step.replace("exec ", "")
        );
        let shown = std::process::Command::new("sh")
            .args(["-c", &lines])
            .output()
            .unwrap();
        let script = String::from_utf8(shown.stdout).unwrap();
        assert!(
            script.starts_with("( : && unset LD_LIBRARY_PATH"),
            "{script}"
        );
        assert!(
            script.ends_with(r#"--ssh-authorized-key 'ssh-ed25519 AAAA it'"'"'s me'"#),
            "{script}"
        );
        for line in super::BEFORE_RUNNER {
            assert!(script.contains(line), "{line}: {script}");
        }
    }

    #[test]
    fn the_end_of_the_script_is_a_word_of_its_own() {
        let lines = submit("echo END_OF_JOB\n");
        assert!(
            lines.starts_with("sbatch --parsable <<'END_OF_JOB_'\n"),
            "{lines}"
        );
        assert!(lines.ends_with("echo END_OF_JOB\nEND_OF_JOB_\n"), "{lines}");
    }
}
