//! Load of the container: its control group and its GPUs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use dstack_agent_protocol::runner::{GpuMetrics, Metrics};

use crate::children::Children;

/// The container's control group, in either version of the kernel's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cgroup {
    V2(PathBuf),
    V1 { cpu: PathBuf, memory: PathBuf },
}

/// CPU microseconds, memory, memory without what can be dropped.
type Usage = (u64, u64, u64);

impl Cgroup {
    /// Finds it; `None` where control groups cannot be read.
    pub(crate) fn find() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::locate(&mounts, &own, Path::exists)
    }

    fn locate(mounts: &str, own: &str, exists: impl Fn(&Path) -> bool) -> Option<Self> {
        let mount = |kind: &str, option: Option<&str>| {
            mounts.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(' ').collect();
                let [_, point, found, options, ..] = fields.as_slice() else {
                    return None;
                };
                let has_option = option.is_none_or(|o| options.split(',').any(|found| found == o));
                (*found == kind && has_option).then(|| PathBuf::from(point))
            })
        };
        // `hierarchy:controllers:path`
        let path = |controller: &str| {
            own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let controllers = fields.nth(1)?;
                controllers
                    .split(',')
                    .any(|c| c == controller)
                    .then(|| fields.next())
                    .flatten()
            })
        };
        // In a container the mount often shows our own group as its root, whatever the path says.
        let place = |mount: PathBuf, path: Option<&str>, file: &str| {
            let below = path.map(|path| mount.join(path.trim_start_matches('/')));
            below
                .into_iter()
                .chain([mount])
                .find(|dir| exists(&dir.join(file)))
        };
        let v2 = mount("cgroup2", None).and_then(|at| place(at, path(""), "memory.current"));
        if let Some(v2) = v2 {
            return Some(Self::V2(v2));
        }
        let cpu = place(
            mount("cgroup", Some("cpuacct"))?,
            path("cpuacct"),
            "cpuacct.usage",
        )?;
        let memory = mount("cgroup", Some("memory"))?;
        let memory = place(memory, path("memory"), "memory.usage_in_bytes")?;
        Some(Self::V1 { cpu, memory })
    }

    fn usage(&self) -> io::Result<Usage> {
        let read = |dir: &Path, name: &str| std::fs::read_to_string(dir.join(name));
        let (cpu_micro, used, inactive) = match self {
            Self::V2(dir) => (
                field(&read(dir, "cpu.stat")?, "usage_usec")?,
                number(&read(dir, "memory.current")?)?,
                field(&read(dir, "memory.stat")?, "inactive_file")?,
            ),
            Self::V1 { cpu, memory } => (
                number(&read(cpu, "cpuacct.usage")?)? / 1000,
                number(&read(memory, "memory.usage_in_bytes")?)?,
                field(&read(memory, "memory.stat")?, "total_inactive_file")?,
            ),
        };
        Ok((cpu_micro, used, used.saturating_sub(inactive)))
    }

    /// Reads it all; blocks the thread.
    pub(crate) fn measure(
        &self,
        vendor: Option<Vendor>,
        children: &Children,
    ) -> io::Result<Metrics> {
        let (cpu_usage_micro, memory_usage_bytes, memory_working_set_bytes) = self.usage()?;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Metrics {
            timestamp_micro: i64::try_from(since.as_micros()).unwrap_or_default(),
            cpu_usage_micro,
            memory_usage_bytes,
            memory_working_set_bytes,
            gpus: vendor
                .map(|vendor| vendor.measure(children))
                .unwrap_or_default(),
        })
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("not a number: {}", text.trim())))
}

fn field(text: &str, name: &str) -> io::Result<u64> {
    let found = text
        .lines()
        .find_map(|line| line.split_once(' ').filter(|(key, _)| *key == name));
    number(
        found
            .ok_or_else(|| io::Error::other(format!("{name} is missing")))?
            .1,
    )
}

/// Makers of GPUs whose tools we can ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vendor {
    Nvidia,
    Amd,
    Intel,
}

impl Vendor {
    /// By device files, the unambiguous ones first.
    pub(crate) fn find() -> Option<Self> {
        let has = |path: &str| Path::new(path).exists();
        if has("/dev/nvidiactl") || has("/dev/dxg") {
            Some(Self::Nvidia)
        } else if has("/dev/kfd") {
            Some(Self::Amd)
        } else if has("/dev/accel") {
            Some(Self::Intel)
        } else {
            None
        }
    }

    fn command(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Nvidia => (
                "nvidia-smi",
                &[
                    "--query-gpu=memory.used,utilization.gpu",
                    "--format=csv,noheader,nounits",
                ],
            ),
            Self::Amd => ("amd-smi", &["monitor", "-vu", "--csv"]),
            Self::Intel => (
                "hl-smi",
                &[
                    "--query-aip=memory.used,utilization.aip",
                    "--format=csv,noheader,nounits",
                ],
            ),
        }
    }

    fn measure(self, children: &Children) -> Vec<GpuMetrics> {
        let (program, arguments) = self.command();
        let output = match children.output(Command::new(program).args(arguments)) {
            Ok(output) if output.status.success() => output,
            Ok(output) => {
                tracing::warn!(program, status = %output.status, "no GPU metrics");
                return Vec::new();
            }
            Err(error) => {
                tracing::debug!(program, %error, "no GPU metrics");
                return Vec::new();
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let parsed = if self == Self::Amd {
            parse_amd(&text)
        } else {
            parse_pairs(&text)
        };
        parsed.unwrap_or_else(|| {
            tracing::warn!(program, "GPU metrics are not understood");
            Vec::new()
        })
    }
}

fn gpu(memory_mib: &str, percent: &str) -> Option<GpuMetrics> {
    let memory: u64 = memory_mib.trim().parse().ok()?;
    Some(GpuMetrics {
        gpu_memory_usage_bytes: memory * 1024 * 1024,
        gpu_util_percent: percent
            .trim()
            .trim_end_matches('%')
            .trim_end()
            .parse()
            .ok()?,
    })
}

/// `<MiB>, <percent>` a line.
fn parse_pairs(text: &str) -> Option<Vec<GpuMetrics>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            line.split_once(',')
                .and_then(|(memory, load)| gpu(memory, load))
        })
        .collect()
}

/// A table whose head names the columns.
fn parse_amd(text: &str) -> Option<Vec<GpuMetrics>> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let head: Vec<&str> = lines.next()?.split(',').map(str::trim).collect();
    let column = |name| head.iter().position(|found| *found == name);
    let (load, memory) = (column("gfx")?, column("vram_used")?);
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            gpu(fields.get(memory)?, fields.get(load)?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(memory: u64, load: u32) -> GpuMetrics {
        GpuMetrics {
            gpu_memory_usage_bytes: memory << 20,
            gpu_util_percent: load,
        }
    }

    #[test]
    fn the_control_group_is_found_in_both_versions() {
        let v2 = "cgroup /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let at = |mounts, own, exists: &'static [&'static str]| {
            Cgroup::locate(mounts, own, |path| {
                exists.iter().any(|known| Path::new(known) == path)
            })
        };
        let below: &[&str] = &[
            "/sys/fs/cgroup/a/b/memory.current",
            "/sys/fs/cgroup/memory.current",
        ];
        assert_eq!(
            at(v2, "0::/a/b\n", below),
            Some(Cgroup::V2("/sys/fs/cgroup/a/b".into()))
        );
        assert_eq!(
            at(v2, "0::/elsewhere\n", below),
            Some(Cgroup::V2("/sys/fs/cgroup".into()))
        );
        assert_eq!(at("", "0::/\n", below), None);
        let v1 = "cgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /c/memory cgroup rw,memory 0 0\n";
        let files: &[&str] = &["/c/cpu/d/cpuacct.usage", "/c/memory/memory.usage_in_bytes"];
        assert_eq!(
            at(v1, "4:memory:/d\n3:cpu,cpuacct:/d\n", files),
            Some(Cgroup::V1 {
                cpu: "/c/cpu/d".into(),
                memory: "/c/memory".into()
            })
        );
    }

    #[test]
    fn usage_is_read_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("cpu.stat", "usage_usec 1500\nuser_usec 1000\n"),
            ("memory.current", "1000\n"),
            (
                "memory.stat",
                "anon 1\ninactive_file 300\ntotal_inactive_file 1200\n",
            ),
            ("cpuacct.usage", "2500999\n"),
            ("memory.usage_in_bytes", "900\n"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let at = dir.path().to_owned();
        assert_eq!(Cgroup::V2(at.clone()).usage().unwrap(), (1500, 1000, 700));
        assert_eq!(
            Cgroup::V1 {
                cpu: at.clone(),
                memory: at
            }
            .usage()
            .unwrap(),
            (2500, 900, 0)
        );
        assert!(Cgroup::V2("/no/such".into()).usage().is_err());
    }

    #[test]
    fn gpu_tables_are_read() {
        assert_eq!(
            parse_pairs("1024, 97\n0, 0\n"),
            Some(vec![mib(1024, 97), mib(0, 0)])
        );
        assert_eq!(parse_pairs("512, 5 %\n"), Some(vec![mib(512, 5)]));
        assert_eq!(parse_pairs("[N/A], 5\n"), None);
        let amd = "gpu,gfx,gfx_clock,vram_used,vram_total\n0,12,100,2048,4096\n1,0,100,1,4096\n";
        assert_eq!(parse_amd(amd), Some(vec![mib(2048, 12), mib(1, 0)]));
        assert_eq!(parse_amd("gpu,gfx,vram_used\n0,N/A,1\n"), None);
        assert_eq!(parse_amd("gpu\n0\n"), None);
    }
}
