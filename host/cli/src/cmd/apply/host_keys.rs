//! Keys of own hosts, from the files that a fleet names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dstack_backend_types::instances::SshKey;

use crate::cx::Cx;
use crate::error::CliError;
use crate::ssh::{public_line, write_private};

/// Reads each file once, so that a passphrase is asked for once.
pub(super) struct Keys<'a, 'b> {
    pub(super) folder: &'a Path,
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) known: BTreeMap<PathBuf, SshKey>,
}

impl Keys<'_, '_> {
    /// The pair of a private key's file. Of a public one, or where only that is there, the private half is left to the
    /// server's SSH agent.
    pub(super) fn read(&mut self, file: &str) -> Result<SshKey, CliError> {
        let path = self.cx.expand(file, self.folder);
        if let Some(known) = self.known.get(&path) {
            return Ok(known.clone());
        }
        let key = self.look(&path)?;
        self.known.insert(path, key.clone());
        Ok(key)
    }

    fn look(&mut self, path: &Path) -> Result<SshKey, CliError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".pub");
        let beside = PathBuf::from(beside);
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) => {
                let is_missing = source.kind() == std::io::ErrorKind::NotFound;
                return match fs::read_to_string(&beside) {
                    Ok(public) if is_missing => Ok(of_agent(&public)),
                    _ => Err(CliError::File {
                        verb: "read",
                        path: path.to_owned(),
                        source,
                    }),
                };
            }
        };
        if !text.contains("PRIVATE KEY") && is_public(&text) {
            return Ok(of_agent(&text));
        }
        let (private, derived) = match public_line(path) {
            Some(public) => (text, public),
            None => self.opened(path, &text)?,
        };
        // The file beside it has the comment too.
        let public = fs::read_to_string(&beside).map_or(derived, |text| text.trim().to_owned());
        Ok(SshKey {
            public,
            private: Some(private),
        })
    }

    /// The key without its passphrase, which `ssh-keygen` asks for, and its public line.
    fn opened(&mut self, path: &Path, text: &str) -> Result<(String, String), CliError> {
        let odd = |why: &str| CliError::message(format!("{}: {why}", path.display()));
        if !text.contains("PRIVATE KEY") {
            return Err(odd(
                "it is neither a private key in OpenSSH or PEM format nor a public one",
            ));
        }
        if !self.cx.ui.can_ask() {
            return Err(odd(
                "ssh-keygen cannot read the key; if it has a passphrase, apply on a terminal, which asks for it, or name \
                 its public half and give the server an SSH agent with the key",
            ));
        }
        let copy =
            std::env::temp_dir().join(format!("dstack-key-{}", uuid::Uuid::new_v4().simple()));
        let cleaner = Removed(&copy);
        write_private(&copy, text)?;
        self.cx.ui.line(format!(
            "The key {} has a passphrase. The server needs the key without it, and keeps it encrypted.",
            path.display()
        ))?;
        let status = Command::new("ssh-keygen")
            .args(["-q", "-p", "-N", "", "-f"])
            .arg(&copy)
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(odd("it was not opened; is the passphrase right?"));
        }
        let private = fs::read_to_string(&copy).map_err(|source| CliError::File {
            verb: "read",
            path: copy.clone(),
            source,
        })?;
        let public = public_line(&copy).ok_or_else(|| odd("it was not opened"))?;
        drop(cleaner);
        Ok((private, public))
    }
}

fn is_public(text: &str) -> bool {
    let kind = text.split_whitespace().next().unwrap_or_default();
    ["ssh-", "ecdsa-", "sk-"]
        .iter()
        .any(|start| kind.starts_with(start))
}

fn of_agent(public: &str) -> SshKey {
    SshKey {
        public: public.trim().to_owned(),
        private: None,
    }
}

/// A file that goes when this does.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        drop(fs::remove_file(self.0));
    }
}
