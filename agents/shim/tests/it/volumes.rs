//! Network volumes on a real disk: a loop device under the name that a provider would give it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Shim, eventually, fake, task};

/// A blank disk of a provider, attached to this machine.
struct Disk {
    device: String,
    link: PathBuf,
    name: String,
    _image: tempfile::NamedTempFile,
}

impl Disk {
    fn attach() -> Self {
        assert!(
            nix::unistd::Uid::effective().is_root(),
            "this test needs root"
        );
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(64 << 20).unwrap();
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(image.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let name = format!("shimtest-{}", uuid::Uuid::new_v4());
        let link = Path::new("/dev/disk/by-id").join(format!("google-{name}"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&device, &link).unwrap();
        Self {
            device,
            link,
            name,
            _image: image,
        }
    }

    fn task(&self, init_fs: bool) -> Value {
        let mut config = task("volume");
        config["volumes"] = json!([{
            "backend": "gcp", "name": self.name, "volume_id": "v", "init_fs": init_fs, "device_name": self.name
        }]);
        config["volume_mounts"] = json!([{"name": self.name, "path": "/data"}]);
        config
    }

    fn mount_point(&self) -> PathBuf {
        Path::new("/mnt/disks/dstack-volumes").join(&self.name)
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/mounts")
            .unwrap()
            .contains(&self.name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted() {
            drop(Command::new("umount").arg(self.mount_point()).status());
        }
        drop(Command::new("losetup").args(["-d", &self.device]).status());
        drop(fs::remove_file(&self.link));
        drop(fs::remove_dir(self.mount_point()));
    }
}

#[test]
fn a_volume_keeps_its_content_from_task_to_task() {
    let disk = Disk::attach();
    let fake = fake(
        "ls /data >$task_dir/work/seen; echo kept >/data/file; stat -c %a /data >$task_dir/work/mode; \
         echo 1 >$port_file.tmp; mv $port_file.tmp $port_file; exec sleep 1000",
    );
    let shim = Shim::start("process", &fake.runner);
    let blank = shim.task_when(&shim.submit(&disk.task(false)), "terminated");
    assert_eq!(blank["termination_reason"], "executor_error");
    let message = format!(
        "prepareVolumes error: disk {} has no file system",
        disk.device
    );
    assert_eq!(blank["termination_message"], message);
    assert!(!disk.is_mounted());

    let first = shim.submit(&disk.task(true));
    let dir = shim.task_dir(&shim.task_when(&first, "running"));
    assert!(disk.is_mounted());
    assert_eq!(fs::read_to_string(dir.join("work/mode")).unwrap(), "777\n");
    // A second task shares it; the volume stays until both have ended.
    let second = shim.submit(&disk.task(false));
    shim.task_when(&second, "running");
    shim.terminate(&first, "", 0);
    assert!(disk.is_mounted());
    shim.terminate(&second, "", 0);
    assert!(!disk.is_mounted());

    let third = shim.submit(&disk.task(true));
    let dir = shim.task_dir(&shim.task_when(&third, "running"));
    assert!(
        fs::read_to_string(dir.join("work/seen"))
            .unwrap()
            .contains("file\n")
    );
    shim.terminate(&third, "", 0);
    assert!(!disk.is_mounted());
}

#[test]
fn a_shim_killed_at_any_moment_mounts_once_and_unmounts_once() {
    let fake = fake("echo 1 >$port_file.tmp; mv $port_file.tmp $port_file; exec sleep 1000");
    let disk = Disk::attach();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", &disk.device])
        .status();
    assert!(made.unwrap().success());
    let mounts = || {
        let all = fs::read_to_string("/proc/self/mounts").unwrap();
        all.lines().filter(|line| line.contains(&disk.name)).count()
    };
    let mut shim = Shim::start("process", &fake.runner);
    for moment_ms in [0, 3, 8, 15, 25, 40, 60, 100, 200] {
        let id = shim.submit(&disk.task(false));
        std::thread::sleep(std::time::Duration::from_millis(moment_ms));
        shim.kill();
        shim.launch();
        if shim.call(&format!("GET /api/tasks/{id}"), None).status == 404 {
            // Nothing had begun that must go on: the server submits the task again.
            assert_eq!(mounts(), 0, "killed after {moment_ms} ms\n{}", shim.log());
            continue;
        }
        let status = || shim.task(&id)["status"].clone();
        eventually("it runs or is over", || {
            status() == "running" || status() == "terminated"
        });
        if status() == "terminated" {
            // It was being started, and its keeper never got to know what to do.
            eventually("its volume is given back", || mounts() == 0);
            assert_eq!(shim.task(&id)["termination_reason"], "executor_error");
            assert_eq!(shim.remove(&id).status, 200);
            continue;
        }
        assert_eq!(mounts(), 1, "killed after {moment_ms} ms\n{}", shim.log());
        shim.kill();
        shim.launch();
        let ended = shim.terminate(&id, "terminated_by_user", 0);
        assert_eq!(ended["status"], "terminated");
        assert_eq!(mounts(), 0, "killed after {moment_ms} ms\n{}", shim.log());
        assert_eq!(shim.remove(&id).status, 200);
    }
    let left = fs::read_dir(shim.home.path().join("runners")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_backend_without_network_volumes_is_refused() {
    let fake = fake("exit 1");
    let shim = Shim::start("process", &fake.runner);
    let mut config = task("volume");
    config["volumes"] = json!([{"backend": "runpod", "name": "v"}]);
    let ended = shim.task_when(&shim.submit(&config), "terminated");
    assert_eq!(
        ended["termination_message"],
        "prepareVolumes error: unknown backend: \"runpod\""
    );
}
