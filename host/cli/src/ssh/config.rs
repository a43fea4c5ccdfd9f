//! `~/.dstack/ssh/config`: the names of attached jobs for OpenSSH, included by the person's own configuration.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// What stands at the top of `~/.ssh/config`.
const INCLUDE: &str = "Include ~/.dstack/ssh/config";

/// One `Host` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// What to type after `ssh`.
    pub(super) name: String,
    pub(super) hostname: String,
    pub(super) port: Option<u16>,
    pub(super) user: Option<String>,
    /// Private keys; with one only, no other is offered.
    pub(super) identities: Vec<PathBuf>,
    /// The entry to go through.
    pub(super) jump: Option<String>,
}

impl Entry {
    fn text(&self) -> String {
        let mut text = format!("Host {}\n    HostName {}\n", self.name, self.hostname);
        let mut line = |key: &str, value: &str| {
            text.push_str(&format!("    {key} {value}\n"));
        };
        if let Some(port) = self.port {
            line("Port", &port.to_string());
        }
        if let Some(user) = &self.user {
            line("User", user);
        }
        for identity in &self.identities {
            line("IdentityFile", &format!("\"{}\"", identity.display()));
        }
        if self.identities.len() == 1 {
            line("IdentitiesOnly", "yes");
        }
        // Machines and containers come and go under the same names.
        line("StrictHostKeyChecking", "no");
        line("UserKnownHostsFile", "/dev/null");
        line("LogLevel", "ERROR");
        if let Some(jump) = &self.jump {
            line("ProxyJump", jump);
        }
        text
    }
}

/// The file and its folder.
#[derive(Debug, Clone)]
pub(super) struct Config {
    home: PathBuf,
    path: PathBuf,
}

impl Config {
    pub(super) fn at(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            path: home.join(".dstack/ssh/config"),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where OpenSSH writes its complaints about one name.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.path.with_file_name(format!("{name}.log"))
    }

    /// Adds entries, each in the place of an older one of its name.
    pub(super) fn set(&self, entries: &[Entry]) -> Result<(), CliError> {
        let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        self.change(|text| {
            let mut text = without(text, &names);
            for entry in entries {
                text.push_str(&entry.text());
            }
            text
        })
    }

    /// Takes entries out.
    pub(super) fn remove(&self, names: &[String]) -> Result<(), CliError> {
        self.change(|text| without(text, names))
    }

    /// One change at a time, whole or not at all.
    fn change(&self, change: impl FnOnce(&str) -> String) -> Result<(), CliError> {
        let lock = self.path.with_extension("lock");
        let failed = |verb, path: &Path| {
            let path = path.to_owned();
            move |source| CliError::File { verb, path, source }
        };
        make_folder(&self.path)?;
        let lock_file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock)
            .map_err(failed("write", &lock))?;
        lock_file.lock().map_err(failed("lock", &lock))?;
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(failed("read", &self.path)(source)),
        };
        let new = change(&text);
        if new == text {
            return Ok(());
        }
        write_private(&self.path, &new)
    }

    /// Lets the person's own configuration include ours, so that `ssh NAME` works.
    pub(super) fn include(&self) -> Result<(), CliError> {
        let path = self.home.join(".ssh/config");
        // A link to a file of dotfiles is followed, not replaced.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(CliError::File {
                    verb: "read",
                    path,
                    source,
                });
            }
        };
        if text.lines().any(|line| line.trim() == INCLUDE) {
            return Ok(());
        }
        write_private(&path, &format!("{INCLUDE}\n\n{text}"))
    }
}

/// The text without the blocks of these names.
fn without(text: &str, names: &[String]) -> String {
    let mut kept = String::new();
    let mut is_ours = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        if key.eq_ignore_ascii_case("host") || key.eq_ignore_ascii_case("match") {
            let name = words.next().unwrap_or_default();
            is_ours = key.eq_ignore_ascii_case("host") && names.iter().any(|known| known == name);
        }
        if !is_ours {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn make_folder(path: &Path) -> Result<(), CliError> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    let failed = |source| CliError::File {
        verb: "make",
        path: folder.to_owned(),
        source,
    };
    if !folder.exists() {
        fs::create_dir_all(folder).map_err(failed)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Replaces a file by one that only its owner reads.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), CliError> {
    make_folder(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(name);
    let write = || -> std::io::Result<()> {
        let mut file: File = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|source| {
        // The half is of no use to anybody.
        drop(fs::remove_file(&new));
        CliError::File {
            verb: "write",
            path: path.to_owned(),
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, jump: Option<&str>) -> Entry {
        Entry {
            name: name.to_owned(),
            hostname: "10.0.0.1".to_owned(),
            port: Some(22),
            user: Some("root".to_owned()),
            identities: vec!["/home/a b/key".into()],
            jump: jump.map(str::to_owned),
        }
    }

    #[test]
    fn entries_are_added_replaced_and_removed_and_the_rest_stays() {
        let home = tempfile::tempdir().unwrap();
        let config = Config::at(home.path());
        config
            .set(&[entry("run-host", None), entry("run", Some("run-host"))])
            .unwrap();
        config.set(&[entry("other", None)]).unwrap();
        config.set(&[entry("run", None)]).unwrap();
        let text = fs::read_to_string(config.path()).unwrap();
        assert_eq!(text.matches("Host run\n").count(), 1, "{text}");
        assert!(!text.contains("ProxyJump"), "{text}");
        assert!(text.contains("IdentityFile \"/home/a b/key\"\n    IdentitiesOnly yes"));
        let mode = fs::metadata(config.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        config
            .remove(&["run".to_owned(), "run-host".to_owned()])
            .unwrap();
        let text = fs::read_to_string(config.path()).unwrap();
        assert!(
            text.starts_with("Host other\n") && !text.contains("Host run"),
            "{text}"
        );
    }

    #[test]
    fn our_file_is_included_once_and_a_link_is_followed() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join(".ssh")).unwrap();
        let dotfile = home.path().join("dotfile");
        fs::write(&dotfile, "Host mine\n    User me\n").unwrap();
        std::os::unix::fs::symlink(&dotfile, home.path().join(".ssh/config")).unwrap();
        let config = Config::at(home.path());
        config.include().unwrap();
        config.include().unwrap();
        let text = fs::read_to_string(&dotfile).unwrap();
        assert_eq!(text, format!("{INCLUDE}\n\nHost mine\n    User me\n"));
    }
}
