//! Network volumes: disks that the provider has attached to this machine.
//!
//! The one rule above all: a disk that holds anything is never formatted. It is formatted only if it was found blank
//! several times in a row, once its size was known.
//!
//! Everything here blocks: it runs programs and waits for devices.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dstack_agent_protocol::shim::VolumeInfo;
use tokio::sync::OwnedMutexGuard;

use crate::programs;
use crate::task::is_valid_name;

/// Below it each network volume has its mount point, by name.
pub(crate) const VOLUMES_DIR: &str = "/mnt/disks/dstack-volumes";

const DISKS_BY_ID: &str = "/dev/disk/by-id";
const ATTACH_LIMIT: Duration = Duration::from_secs(30);
const ATTACH_POLL: Duration = Duration::from_millis(500);
const READY_LIMIT: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(200);
/// How often a disk must be found blank again, and the pause before each look.
const BLANK_CONFIRMATIONS: u32 = 3;
const BLANK_PAUSE: Duration = Duration::from_secs(1);
/// What `blkid` ends with when it finds nothing at all.
const BLKID_NOTHING: i32 = 2;

/// Why a volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("unknown backend: \"{0}\"")]
    UnknownBackend(String),
    #[error("volume name \"{0}\" cannot name a directory")]
    InvalidName(String),
    #[error("volume {0} has no usable device name")]
    NoDeviceName(String),
    #[error("volume {volume} is not attached: {what} was not found within {} s", ATTACH_LIMIT.as_secs())]
    NotAttached { volume: String, what: String },
    #[error("disk {0} does not become ready")]
    NotReady(PathBuf),
    #[error("disk {0} has no file system")]
    Blank(PathBuf),
    #[error("disk {0} holds something that is no file system, so it is left alone")]
    Foreign(PathBuf),
    #[error("{program}: {text}")]
    Program { program: &'static str, text: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Keeps two changes of one volume apart: two tasks that start together must not both take a disk for blank, and one
/// that starts must not find the volume of one that ends.
#[derive(Debug, Default)]
pub(crate) struct VolumeLocks(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl VolumeLocks {
    /// Waits for whoever changes the volume.
    pub(crate) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Without this, names of volumes that are long gone would stay for ever.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(name.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

/// Mount point of a network volume.
pub(crate) fn volume_dir(name: &str) -> PathBuf {
    Path::new(VOLUMES_DIR).join(name)
}

/// Mounts the volume's disk at its mount point, after formatting a blank one if `init_fs` allows that. A volume that is
/// mounted already is left as it is.
pub(crate) fn mount(volume: &VolumeInfo) -> Result<(), VolumeError> {
    if !is_valid_name(&volume.name) {
        return Err(VolumeError::InvalidName(volume.name.clone()));
    }
    let dir = volume_dir(&volume.name);
    if is_mounted(&dir)? {
        return Ok(());
    }
    let device = match volume.backend.as_str() {
        "aws" => aws_device(volume)?,
        "gcp" => gcp_device(volume)?,
        // A provider that this shim knows nothing of: its backend has to name the device.
        other => match volume.device_name.as_deref().and_then(device_path) {
            Some(path) => named_device(volume, path)?,
            None => return Err(VolumeError::UnknownBackend(other.to_owned())),
        },
    };
    let is_new = prepare_file_system(&device, volume.init_fs)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&dir)
        .map_err(at(&dir))?;
    succeed("mount", |mount| mount.arg(&device).arg(&dir))?;
    if is_new {
        // Containers run as any user. On a file system of the user's the modes are the user's.
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).map_err(at(&dir))?;
    }
    tracing::info!(volume = volume.name, device = %device.display(), is_new, "a volume was mounted");
    Ok(())
}

/// Unmounts a volume; one that is not mounted is fine.
pub(crate) fn unmount(name: &str) -> Result<(), VolumeError> {
    let dir = volume_dir(name);
    if is_valid_name(name) && is_mounted(&dir)? {
        succeed("umount", |umount| umount.arg("-qf").arg(&dir))?;
        tracing::info!(volume = name, "a volume was unmounted");
    }
    Ok(())
}

fn at(path: &Path) -> impl Fn(io::Error) -> VolumeError {
    let path = path.to_owned();
    move |source| VolumeError::Io {
        path: path.clone(),
        source,
    }
}

fn run(
    program: &'static str,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Output, VolumeError> {
    let failed = |text| VolumeError::Program { program, text };
    let file = programs::find(program).ok_or_else(|| failed(programs::remedy(program)))?;
    arguments(&mut Command::new(file))
        .output()
        .map_err(|err| failed(err.to_string()))
}

fn succeed(
    program: &'static str,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<String, VolumeError> {
    let output = run(program, arguments)?;
    if !output.status.success() {
        return Err(program_error(program, &output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn program_error(program: &'static str, output: &Output) -> VolumeError {
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let text = if text.is_empty() {
        output.status.to_string()
    } else {
        text
    };
    VolumeError::Program { program, text }
}

fn is_mounted(dir: &Path) -> Result<bool, VolumeError> {
    let path = Path::new("/proc/self/mountinfo");
    let table = fs::read_to_string(path).map_err(at(path))?;
    // Names of volumes hold no characters that the table would escape.
    Ok(table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|at| Path::new(at) == dir))
}

/// Asks again and again until there is an answer.
fn poll<T>(
    limit: Duration,
    pause: Duration,
    mut ask: impl FnMut() -> Result<Option<T>, VolumeError>,
) -> Result<Option<T>, VolumeError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(pause);
    }
}

/// The disk whose serial number is the volume's id, or the one at its device name; its first partition if it has any.
fn aws_device(volume: &VolumeInfo) -> Result<PathBuf, VolumeError> {
    let found = poll(ATTACH_LIMIT, ATTACH_POLL, || {
        let table = succeed("lsblk", |lsblk| lsblk.args(["-o", "NAME,SERIAL"]))?;
        let by_serial = disk_with_serial(&table, &volume.volume_id);
        Ok(by_serial.or_else(|| aws_named_device(volume.device_name.as_deref()?)))
    })?;
    let disk = found.ok_or_else(|| VolumeError::NotAttached {
        volume: volume.name.clone(),
        what: format!("a disk with serial number {}", volume.volume_id),
    })?;
    let names = succeed("lsblk", |lsblk| {
        lsblk.args(["-ln", "-o", "NAME"]).arg(&disk)
    })?;
    let partition = names
        .lines()
        .nth(1)
        .map(|name| Path::new("/dev").join(name.trim()));
    Ok(partition.unwrap_or(disk))
}

/// Serial numbers lack the dash that ids have.
fn disk_with_serial(table: &str, id: &str) -> Option<PathBuf> {
    table.lines().find_map(|line| {
        let (name, serial) = line.trim().split_once(char::is_whitespace)?;
        let rest = serial.trim().strip_prefix("vol")?;
        (id.strip_prefix("vol-") == Some(rest)).then(|| Path::new("/dev").join(name))
    })
}

/// Some machine types rename `/dev/sdf` to `/dev/xvdf`.
fn aws_named_device(name: &str) -> Option<PathBuf> {
    let renamed = name.replacen("/dev/sd", "/dev/xvd", 1);
    [name, &renamed]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
}

/// A path below `/dev` that leads nowhere else.
fn device_path(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    (plain && path.starts_with("/dev")).then(|| path.to_owned())
}

fn named_device(volume: &VolumeInfo, path: PathBuf) -> Result<PathBuf, VolumeError> {
    let found = poll(ATTACH_LIMIT, ATTACH_POLL, || {
        let is_disk = fs::metadata(&path).is_ok_and(|it| it.file_type().is_block_device());
        Ok(is_disk.then(|| path.clone()))
    })?;
    found.ok_or_else(|| VolumeError::NotAttached {
        volume: volume.name.clone(),
        what: path.display().to_string(),
    })
}

fn gcp_device(volume: &VolumeInfo) -> Result<PathBuf, VolumeError> {
    let name = volume
        .device_name
        .as_deref()
        .filter(|name| is_valid_name(name));
    let name = name.ok_or_else(|| VolumeError::NoDeviceName(volume.name.clone()))?;
    let links = [format!("google-{name}-part1"), format!("google-{name}")];
    let found = poll(ATTACH_LIMIT, ATTACH_POLL, || {
        Ok(links
            .iter()
            .find_map(|link| Path::new(DISKS_BY_ID).join(link).canonicalize().ok()))
    })?;
    found.ok_or_else(|| VolumeError::NotAttached {
        volume: volume.name.clone(),
        what: format!("{DISKS_BY_ID}/google-{name}"),
    })
}

/// Makes sure of a file system; whether it was made now.
fn prepare_file_system(device: &Path, may_format: bool) -> Result<bool, VolumeError> {
    let ready = poll(READY_LIMIT, READY_POLL, || {
        Ok(size_of(device).filter(|size| *size > 0))
    })?;
    ready.ok_or_else(|| VolumeError::NotReady(device.to_owned()))?;
    if has_file_system(device)? {
        return Ok(false);
    }
    for _ in 0..BLANK_CONFIRMATIONS {
        // A disk that has just been attached may read as zeros for a moment.
        thread::sleep(BLANK_PAUSE);
        if has_file_system(device)? {
            return Ok(false);
        }
    }
    if !may_format {
        return Err(VolumeError::Blank(device.to_owned()));
    }
    succeed("mkfs.ext4", |mkfs| mkfs.arg("-F").arg(device))?;
    Ok(true)
}

/// Size of a disk; `None` for what is none.
fn size_of(device: &Path) -> Option<u64> {
    let mut disk = File::open(device).ok()?;
    let is_disk = disk.metadata().ok()?.file_type().is_block_device();
    is_disk.then(|| disk.seek(SeekFrom::End(0)).ok()).flatten()
}

fn has_file_system(device: &Path) -> Result<bool, VolumeError> {
    let output = run("blkid", |blkid| {
        blkid.args(["-p", "-o", "value", "-s", "TYPE"]).arg(device)
    })?;
    let has_type = !output.stdout.trim_ascii().is_empty();
    match (output.status.code(), has_type) {
        (Some(0), true) => Ok(true),
        (Some(0), false) => Err(VolumeError::Foreign(device.to_owned())),
        (Some(BLKID_NOTHING), false) => Ok(false),
        _ => Err(program_error("blkid", &output)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_found_by_its_serial_number() {
        let table = "NAME        SERIAL\nnvme0n1     vol0fedcba9876543210\n|-nvme0n1p1\nnvme1n1     vol0a1b2c3d4e5f60718\n";
        let find = |id| disk_with_serial(table, id);
        assert_eq!(find("vol-0a1b2c3d4e5f60718"), Some("/dev/nvme1n1".into()));
        assert_eq!(find("vol-0a1b"), None);
    }

    #[test]
    fn names_that_leave_the_directory_and_other_backends_are_refused() {
        let volume = |backend: &str, name: &str| VolumeInfo {
            backend: backend.into(),
            name: name.into(),
            ..VolumeInfo::default()
        };
        let error = |backend, name| mount(&volume(backend, name)).unwrap_err().to_string();
        assert_eq!(error("azure", "v"), "unknown backend: \"azure\"");
        assert!(error("aws", "../v").contains("cannot name a directory"));
        assert_eq!(error("gcp", "v"), "volume v has no usable device name");
    }

    #[test]
    fn other_backends_name_a_device_below_dev() {
        let path = |name: &str| device_path(name).map(|path| path.display().to_string());
        assert_eq!(path("/dev/loop7").as_deref(), Some("/dev/loop7"));
        assert_eq!(path("/dev/../etc/passwd"), None);
        assert_eq!(path("/etc/passwd"), None);
        assert_eq!(path("loop7"), None);
    }

    #[test]
    fn what_is_no_file_system_is_not_taken_for_a_blank_disk() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk");
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        assert!(!has_file_system(&file).unwrap());
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F"])
            .arg(&file)
            .status()
            .unwrap();
        assert!(made.success());
        assert!(has_file_system(&file).unwrap());
        // A partition table: the signature of an MBR with one partition.
        let mut disk = vec![0; 1 << 20];
        disk[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 100, 0, 0, 0]);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        fs::write(&file, disk).unwrap();
        assert!(matches!(
            has_file_system(&file),
            Err(VolumeError::Foreign(_))
        ));
        assert!(matches!(
            has_file_system(Path::new("/nonexistent")),
            Err(_) | Ok(false)
        ));
    }
}
