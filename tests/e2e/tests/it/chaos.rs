//! Everything that can go wrong on hosts, at random moments, while tasks run on them: shims, engines and runners are
//! killed, the disk is full for a while, the network is gone for a while.
//!
//! | fault | a task on that host |
//! |---|---|
//! | shim killed, network cut | ends as if nothing had been |
//! | disk full | ends well if it ran before; may fail if it starts meanwhile |
//! | engine killed, runner killed | fails, or has ended before; its log has no hole up to the cut |
//!
//! `DSTACK_CHAOS_TASKS=100` is the long form, in which every third cut lasts a minute; `DSTACK_CHAOS_SEED` gives other faults.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::own_hosts::{IMAGE, OwnHosts};
use dstack_test_support::server::{TestServer, wait_for};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(180);
/// Tasks of the short form.
const TASKS: u32 = 24;
/// Tasks that are under way at any time: what the hosts take at once.
const AT_ONCE: usize = 4;
/// Lines of a task's log, one each 50 ms.
const LINES: u32 = 60;

/// A small disk of the engine and the shim, and two devices with the tool that lists them. The second host has systemd,
/// or what looks like it.
const BOOT: &str = r#"
mkdir -p $H/disk; mount -t tmpfs -o size=300m tmpfs $H/disk
mkdir $H/disk/docker $H/disk/dstack; mount --bind $H/disk/docker $H/docker
mkdir -p /root/.dstack /root/marks; mount --bind $H/disk/dstack /root/.dstack
mkdir $H/dev; mount -t tmpfs tmpfs $H/dev
for name in null zero full random urandom tty; do touch $H/dev/$name; mount --bind /dev/$name $H/dev/$name; done
mkdir $H/dev/pts $H/dev/shm $H/dev/tenstorrent; mount --rbind /dev/pts $H/dev/pts; ln -s pts/ptmx $H/dev/ptmx
ln -s /proc/self/fd $H/dev/fd
mknod $H/dev/tenstorrent/0 c 1 3; mknod $H/dev/tenstorrent/1 c 1 3
mount --rbind $H/dev /dev
cat >/usr/local/bin/tt-smi <<'END'
#!/bin/sh
echo '{"device_info": [
{"board_info": {"bus_id": "0000:41:00.0", "board_type": "n300 L", "board_id": "a"}},
{"board_info": {"bus_id": "0000:42:00.0", "board_type": "n300 L", "board_id": "b"}}]}'
END
chmod 755 /usr/local/bin/tt-smi
if [ "${H%/h2/}" != "$H" ]; then
mkdir -p /run/systemd/system
cat >/usr/local/bin/systemctl <<'END'
#!/bin/sh
# Stands for systemd: runs the one unit as its file says.
unit=/etc/systemd/system/dstack-shim.service
pid=/run/unit.pid
get() { sed -n "s/^$1=//p" $unit; }
stop() { [ -f $pid ] && kill -9 -- -$(cat $pid) 2>/dev/null; rm -f $pid; }
case "$*" in
*disable*) stop ;;
*restart*|start*)
  case "$*" in start*) [ -f $pid ] && kill -0 $(cat $pid) 2>/dev/null && exit 0 ;; esac
  stop
  [ "$(get Restart)" = always ] || exit 1
  mkdir -p /run/$(get RuntimeDirectory)
  setsid sh -c 'echo $$ >/run/unit.pid; cd "$1"; while :; do (set -a; . "$2"; exec $3) >>/run/unit.log 2>&1 </dev/null; sleep $4; done' \
    unit "$(get WorkingDirectory)" "$(get EnvironmentFile)" "$(get ExecStart)" "$(get RestartSec)" >/dev/null 2>&1 </dev/null & ;;
*show*) echo 0 ;;
esac
exit 0
END
chmod 755 /usr/local/bin/systemctl
fi
"#;

/// What a task does: says that it starts, counts, writes down which device it has at what time, says that it has ended.
const WORK: &str = "echo start >>/marks/$DSTACK_RUN_NAME.starts
  i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); read up rest </proc/uptime
  echo $(ls /dev/tenstorrent) $up >>/marks/$DSTACK_RUN_NAME.alive; sleep 0.05; done
  touch /marks/$DSTACK_RUN_NAME.ended; echo end";

/// Numbers that look random and are the same for a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % count
    }
}

#[expect(clippy::disallowed_methods, reason = "tests have no settings")]
fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Shim,
    Engine,
    Runner,
    Disk,
    Network,
}

/// A fault that was there.
struct Blow {
    fault: Fault,
    host: u32,
    from: Instant,
    to: Instant,
}

impl std::fmt::Debug for Blow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fault, host, .. } = self;
        write!(f, "{fault:?} of host {host} for {:?}", self.to - self.from)
    }
}

/// A task that was handed in.
#[derive(Debug)]
struct Handed {
    name: String,
    at: Instant,
}

#[derive(Debug)]
struct Ended {
    name: String,
    from: Instant,
    to: Instant,
    run: Value,
}

struct Storm<'a> {
    hosts: &'a OwnHosts,
    server: &'a TestServer,
    chance: Chance,
    is_long: bool,
    cuts: u32,
    under_way: Vec<Handed>,
    ended: Vec<Ended>,
    blows: Vec<Blow>,
}

#[test]
fn hosts_under_fire_end_every_task_right_and_hold_nothing_afterwards() -> Result<()> {
    let count = u32::try_from(setting("DSTACK_CHAOS_TASKS", u64::from(TASKS)))?;
    let seed = setting("DSTACK_CHAOS_SEED", 20_261_130).max(1);
    let hosts = OwnHosts::start_as(true, BOOT)?;
    let server = TestServer::start(&[("DSTACK_LOCAL_BACKEND_ENABLED", "0")])?;
    let mut storm = Storm {
        hosts: &hosts,
        server: &server,
        chance: Chance(seed),
        is_long: count > TASKS,
        cuts: 0,
        under_way: Vec::new(),
        ended: Vec::new(),
        blows: Vec::new(),
    };
    let outcome = storm.whole(count);
    let (blows, ended) = (&storm.blows, &storm.ended);
    outcome
        .with_context(|| hosts.logs())
        .with_context(|| format!("seed {seed}, {} tasks ended, faults {blows:?}", ended.len()))
}

impl Storm<'_> {
    fn whole(&mut self, count: u32) -> Result<()> {
        self.fleet()?;
        let mounts = [self.mounts(1)?, self.mounts(2)?];
        let mut next = 0;
        while next < count || !self.under_way.is_empty() {
            while next < count && self.under_way.len() < AT_ONCE {
                self.hand_in(next)?;
                next += 1;
            }
            self.strike()?;
            self.collect()?;
        }
        for ended in &self.ended {
            self.check(ended)?;
        }
        self.no_device_twice()?;
        let done = |ended: &&Ended| ended.run["status"] == "done";
        let well = self.ended.iter().filter(done).count();
        ensure!(well > 0, "not one task ended well");
        self.nothing_is_held(&mounts)
    }

    fn fleet(&self) -> Result<()> {
        let text = format!(
            "type: fleet\nname: own\nblocks: 2\nssh_config:\n  user: root\n  identity_file: {}\n  hosts: [{}, {}]\n",
            self.hosts.key(),
            self.hosts.address(1),
            self.hosts.address(2)
        );
        let path = self.server.file("own.dstack.yml", &text)?;
        self.server.ok(&["apply", "-f", &path, "-y"])?;
        ensure!(
            self.hosts.file(2, "run/unit.pid").exists(),
            "the second host's shim is not kept by its unit"
        );
        let (_, fleet) = self
            .server
            .post("/api/project/main/fleets/get", &json!({"name": "own"}))?;
        for instance in fleet["instances"].as_array().context("instances")? {
            let gpus = &instance["instance_type"]["resources"]["gpus"];
            ensure!(
                gpus.as_array().is_some_and(|gpus| gpus.len() == 2)
                    && instance["total_blocks"] == 2,
                "{instance}"
            );
        }
        Ok(())
    }

    fn hand_in(&mut self, number: u32) -> Result<()> {
        let name = format!("storm{number}");
        let path = self
            .server
            .file(&format!("{name}.dstack.yml"), &task(&name, 1, WORK))?;
        let at = Instant::now();
        self.server.ok(&["apply", "-f", &path, "-y", "-d"])?;
        self.under_way.push(Handed { name, at });
        Ok(())
    }

    /// Waits for a moment, then does one thing to one host, and leaves it in order again.
    fn strike(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(300 + self.chance.below(1500)));
        let host = 1 + u32::from(self.chance.below(2) == 1);
        let fault = match self.chance.below(10) {
            0 | 1 => Fault::Shim,
            2 | 3 => Fault::Engine,
            4 | 5 => Fault::Runner,
            6 | 7 => Fault::Network,
            _ => Fault::Disk,
        };
        let from = Instant::now();
        match fault {
            // One that was killed just before is not back yet.
            Fault::Shim => drop(self.hosts.shell(host, KILL_SHIM)),
            Fault::Engine => self.hosts.lose_engine(host)?,
            Fault::Runner => self.kill_a_runner(host)?,
            Fault::Disk => {
                self.hosts.shell(host, FILL)?;
                std::thread::sleep(Duration::from_secs(2));
                self.hosts.shell(host, "rm -f /root/.dstack/fill")?;
            }
            Fault::Network => {
                self.hosts.cable(host, false)?;
                let is_minute = self.is_long && self.cuts.is_multiple_of(3);
                self.cuts += 1;
                std::thread::sleep(Duration::from_secs(if is_minute { 60 } else { 4 }));
                self.hosts.cable(host, true)?;
            }
        }
        let to = Instant::now();
        self.blows.push(Blow {
            fault,
            host,
            from,
            to,
        });
        Ok(())
    }

    fn kill_a_runner(&mut self, host: u32) -> Result<()> {
        let all = self.hosts.docker(host, &["ps", "-q"])?;
        let all: Vec<&str> = all.split_whitespace().collect();
        if all.is_empty() {
            return Ok(());
        }
        let chosen = usize::try_from(self.chance.below(u64::try_from(all.len())?))?;
        let id = all.get(chosen).copied().unwrap_or_default();
        // It may have ended since.
        let Ok(top) = self.hosts.docker(host, &["top", id, "-o", "pid,args"]) else {
            return Ok(());
        };
        let runner = top.lines().find(|line| line.contains("dstack-runner"));
        let pid = runner.and_then(|line| line.split_whitespace().next());
        if let Some(pid) = pid {
            std::process::Command::new("kill")
                .args(["-9", pid])
                .status()?;
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<()> {
        let mut left = Vec::new();
        for handed in std::mem::take(&mut self.under_way) {
            let run = self.server.run(&handed.name)?;
            let status = run["status"].as_str().unwrap_or_default();
            if matches!(status, "done" | "failed" | "terminated") {
                self.ended.push(Ended {
                    name: handed.name,
                    from: handed.at,
                    to: Instant::now(),
                    run,
                });
                continue;
            }
            ensure!(
                handed.at.elapsed() < PATIENCE,
                "{} does not end: {run}\n{}",
                handed.name,
                self.server.log()
            );
            left.push(handed);
        }
        self.under_way = left;
        Ok(())
    }

    /// The end is the one that the faults of its time explain, and the log is what the task wrote until then.
    fn check(&self, ended: &Ended) -> Result<()> {
        let Ended { name, run, .. } = ended;
        let told = || format!("{name}: {run}\n{}", self.server.log());
        let mark = |what: &str| {
            let file = |host| self.hosts.file(host, &format!("root/marks/{name}.{what}"));
            [1, 2].map(|host| fs::read_to_string(file(host)).ok())
        };
        let starts: usize = mark("starts")
            .iter()
            .flatten()
            .map(|text| text.lines().count())
            .sum();
        ensure!(starts <= 1, "it ran {starts} times; {}", told());
        let has_ended = mark("ended").iter().any(Option::is_some);
        let log = self.server.ok(&["logs", name])?;
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.starts_with("line ") || *line == "end")
            .collect();
        let mut whole: Vec<String> = (0..LINES).map(|number| format!("line {number}")).collect();
        whole.push("end".to_owned());
        ensure!(
            lines.len() <= whole.len() && lines.iter().zip(&whole).all(|(line, want)| line == want),
            "the log has holes or doubles: {lines:?}; {}",
            told()
        );
        // A host that is away takes nothing: the task waits, which is another submission.
        let submissions = run["jobs"][0]["job_submissions"].as_array();
        let job = submissions.and_then(|all| all.last()).context("a job")?;
        let host = [1, 2]
            .into_iter()
            .find(|host| job["job_provisioning_data"]["hostname"] == self.hosts.address(*host));
        let was_cut = self.was_cut(ended, host, starts);
        if run["status"] == "done" {
            ensure!(
                starts == 1 && has_ended,
                "done, but {starts} starts, ended {has_ended}, {} lines; {}",
                lines.len(),
                told()
            );
            // The runner tells its exit status with the last line. The shim, which knows only that the job was done, may
            // have to tell the end if the engine took the container along before that line was fetched.
            let is_whole = lines.len() == whole.len();
            ensure!(
                is_whole || (was_cut && job["exit_status"].is_null()),
                "done, but {} lines; {}",
                lines.len(),
                told()
            );
            return Ok(());
        }
        ensure!(run["status"] == "failed", "{}", told());
        let reason = job["termination_reason"].as_str().unwrap_or_default();
        let known = [
            "container_exited_with_error",
            "creating_container_error",
            "executor_error",
        ];
        ensure!(known.contains(&reason), "{}", told());
        ensure!(was_cut, "nothing explains how it ended: {}", told());
        Ok(())
    }

    /// Whether there was a fault while the task lived, on its host as far as that is known, that may have ended it.
    fn was_cut(&self, ended: &Ended, host: Option<u32>, starts: usize) -> bool {
        self.blows.iter().any(|blow| {
            let meets = blow.from <= ended.to && blow.to >= ended.from;
            let kills = match blow.fault {
                Fault::Shim | Fault::Network => false,
                Fault::Engine | Fault::Runner => true,
                Fault::Disk => starts == 0,
            };
            meets && kills && host.is_none_or(|host| host == blow.host)
        })
    }

    /// No two tasks of a host had the same device at the same time.
    fn no_device_twice(&self) -> Result<()> {
        for host in [1, 2] {
            let mut spans: Vec<(String, f64, f64, &str)> = Vec::new();
            for Ended { name, .. } in &self.ended {
                let file = self.hosts.file(host, &format!("root/marks/{name}.alive"));
                let text = fs::read_to_string(file).unwrap_or_default();
                let mut seen = text.lines().filter_map(|line| line.rsplit_once(' '));
                let Some((device, first)) = seen.next() else {
                    continue;
                };
                let (same, last) = seen.next_back().unwrap_or((device, first));
                ensure!(same == device, "{name} changed its device: {text}");
                spans.push((device.to_owned(), first.parse()?, last.parse()?, name));
            }
            ensure!(!spans.is_empty(), "host {host} had no task");
            spans.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            for pair in spans.windows(2) {
                let ([before, after], true) = (pair, pair[0].0 == pair[1].0) else {
                    continue;
                };
                ensure!(before.2 <= after.1, "one device, two tasks: {pair:?}");
            }
        }
        Ok(())
    }

    /// Mounts of containers and volumes on a host.
    fn mounts(&self, host: u32) -> Result<usize> {
        let lines = "grep -c -e overlay -e dstack-volumes -e /merged /proc/self/mounts || true";
        Ok(self.hosts.shell(host, lines)?.trim().parse()?)
    }

    fn nothing_is_held(&self, mounts: &[usize; 2]) -> Result<()> {
        for (host, before) in [1, 2].into_iter().zip(mounts) {
            let state = || -> Result<BTreeMap<&str, String>> {
                let keys = fs::read_to_string(self.hosts.file(host, "root/.ssh/authorized_keys"))?;
                let ours = |line: &&str| line.ends_with("# added by dstack-shim");
                Ok(BTreeMap::from([
                    ("containers", self.hosts.docker(host, &["ps", "-aq"])?),
                    (
                        "folders",
                        self.hosts.shell(host, "ls -A /root/.dstack/runners")?,
                    ),
                    (
                        "mounts",
                        (self.mounts(host)?.saturating_sub(*before)).to_string(),
                    ),
                    ("keys", keys.lines().filter(ours).collect()),
                ]))
            };
            let wanted = |key: &str| if key == "mounts" { "0" } else { "" };
            wait_for("a host that holds nothing", PATIENCE, || {
                let held = state()?;
                Ok(held
                    .iter()
                    .all(|(key, text)| text == wanted(key))
                    .then_some(()))
            })
            .with_context(|| format!("host {host}: {:?}", state()))?;
        }
        // All devices of both hosts can be had, at the same time.
        for name in ["all1", "all2"] {
            let path = self.server.file(
                &format!("{name}.dstack.yml"),
                &task(name, 2, "echo has $(ls /dev/tenstorrent); sleep 1000"),
            )?;
            self.server.ok(&["apply", "-f", &path, "-y", "-d"])?;
        }
        for name in ["all1", "all2"] {
            wait_for("both devices", PATIENCE, || {
                Ok(self
                    .server
                    .ok(&["logs", name])?
                    .contains("has 0 1")
                    .then_some(()))
            })
            .with_context(|| format!("{:?}\n{}", self.server.run(name), self.server.log()))?;
        }
        for name in ["all1", "all2"] {
            self.server.ok(&["stop", "-x", "-y", name])?;
            self.server.finished(name, PATIENCE)?;
        }
        Ok(())
    }
}

/// Leaves not one byte on the disk of the engine and the shim.
const FILL: &str = "dd if=/dev/zero of=/root/.dstack/fill bs=64k 2>/dev/null || true; \
    dd if=/dev/zero of=/root/.dstack/fill bs=1 count=65536 oflag=append conv=notrunc 2>/dev/null || true";

/// Kills the shim itself: what keeps it running brings it back.
const KILL_SHIM: &str = "for pid in $(ls /proc | grep '^[0-9]*$'); do \
    case $(tr '\\0' ' ' </proc/$pid/cmdline 2>/dev/null) in \
    /usr/local/bin/dstack-shim*) [ /proc/$pid/ns/net -ef /proc/self/ns/net ] && kill -9 $pid ;; esac; done; true";

fn task(name: &str, gpus: u32, lines: &str) -> String {
    format!(
        "type: task\nname: {name}\nimage: {IMAGE}\nuser: root\nvolumes: [\"/root/marks:/marks\"]\nretry:\n  \
         on_events: [no-capacity]\n  duration: 10m\nresources:\n  \
         cpu: x86:1..\n  memory: 100MB..\n  disk: 50MB..\n  gpu: {gpus}\ncommands:\n- |\n  {lines}\n"
    )
}
