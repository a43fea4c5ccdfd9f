//! Public keys of users in the machine's `authorized_keys`, while their tasks live.
//!
//! The entries of the shim end in a marker. Every change rewrites them all from the tasks alive, so that a key of two
//! tasks goes only with the second, and lines of others stay as they are.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::state_file::write_durably;

const MARKER: &str = " # added by dstack-shim";

/// Keeps two changes of one file apart.
static CHANGING: Mutex<()> = Mutex::new(());

/// Gives exactly `keys` (over all living tasks) to `user`, and takes other keys added by the shim away.
///
/// A user without any key whose file has no entry of the shim is left alone.
pub(crate) fn reconcile(user: &str, keys: &[String]) -> io::Result<()> {
    let account = account(&fs::read_to_string("/etc/passwd")?, user).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("this machine has no user \"{user}\""),
        )
    })?;
    reconcile_account(&account, keys)
}

#[derive(Debug, PartialEq, Eq)]
struct Account {
    uid: u32,
    gid: u32,
    home: PathBuf,
}

/// Looks a user up in the text of the user database; a static binary cannot ask the system's resolver.
fn account(passwd: &str, user: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        match fields.as_slice() {
            [name, _, uid, gid, _, home, ..] if *name == user => Some(Account {
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
                home: PathBuf::from(home),
            }),
            _ => None,
        }
    })
}

fn reconcile_account(account: &Account, keys: &[String]) -> io::Result<()> {
    let _one_change = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = account.home.join(".ssh");
    let path = dir.join("authorized_keys");
    let (old, owner, mode) = match fs::read_to_string(&path) {
        Ok(text) => {
            let metadata = fs::metadata(&path)?;
            (
                text,
                (metadata.uid(), metadata.gid()),
                metadata.mode() & 0o7777,
            )
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            (String::new(), (account.uid, account.gid), 0o600)
        }
        Err(err) => return Err(err),
    };
    let new = rewrite(&old, keys);
    if new == old {
        return Ok(());
    }
    make_dir(&dir, account)?;
    replace(&path, &new, owner, mode)
}

fn make_dir(dir: &Path, account: &Account) -> io::Result<()> {
    if dir.exists() {
        return Ok(());
    }
    fs::create_dir(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    chown(dir, Some(account.uid), Some(account.gid))
}

fn replace(path: &Path, text: &str, (uid, gid): (u32, u32), mode: u32) -> io::Result<()> {
    write_durably(path, text.as_bytes(), 0o600)?;
    // sshd refuses keys of a file that others may change, so the old mode comes back last.
    chown(path, Some(uid), Some(gid))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The lines of others as they are, then one entry a key.
fn rewrite(old: &str, keys: &[String]) -> String {
    let mut new = String::new();
    for line in old
        .split_inclusive('\n')
        .filter(|line| !line.trim_end().ends_with(MARKER))
    {
        new.push_str(line);
    }
    let mut seen = BTreeSet::new();
    for key in keys {
        let Some((blob, entry)) = entry(key) else {
            tracing::warn!("a public key for this machine is not valid and was left out");
            continue;
        };
        if seen.insert(blob) {
            if !new.is_empty() && !new.ends_with('\n') {
                new.push('\n');
            }
            new.push_str(&entry);
            new.push('\n');
        }
    }
    new
}

/// The decoded key and its line; `None` unless `key` is one key without options.
fn entry(key: &str) -> Option<(Vec<u8>, String)> {
    let key = key.trim();
    if key.contains(['\n', '\r']) {
        return None;
    }
    let mut words = key.split_whitespace();
    let (kind, encoded) = (words.next()?, words.next()?);
    let blob = STANDARD.decode(encoded).ok()?;
    // The blob starts with the length and the name of its kind.
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    if rest.get(..length)? != kind.as_bytes() {
        return None;
    }
    let words: Vec<_> = key.split_whitespace().collect();
    Some((blob, format!("{}{MARKER}", words.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8, comment: &str) -> String {
        let mut blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20".to_vec();
        blob.extend([seed; 32]);
        format!("ssh-ed25519 {} {comment}", STANDARD.encode(blob))
    }

    #[test]
    fn lines_of_others_stay_and_ours_follow_the_tasks() {
        let others = format!(
            "# a comment\n\n{} # added by dstack\nno-newline",
            key(9, "server")
        );
        let first = rewrite(&others, &[key(1, "a"), key(1, "same key"), key(2, "b c")]);
        let expected = format!(
            "{others}\n{}{MARKER}\n{}{MARKER}\n",
            key(1, "a"),
            key(2, "b c")
        );
        assert_eq!(first, expected);
        let second = rewrite(&first, &[key(2, "b c")]);
        assert_eq!(second, format!("{others}\n{}{MARKER}\n", key(2, "b c")));
        assert_eq!(rewrite(&second, &[]), format!("{others}\n"));
    }

    #[test]
    fn entries_that_are_not_one_plain_key_are_left_out() {
        for bad in [
            "ssh-ed25519",
            "ssh-ed25519 !!!",
            "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIL0Z",
            &format!("command=\"x\" {}", key(1, "")),
            &format!("{}\n{}", key(1, ""), key(2, "")),
        ] {
            assert_eq!(rewrite("", &[bad.to_owned()]), "", "{bad}");
        }
    }

    #[test]
    fn missing_files_are_made_for_the_user() {
        let home = tempfile::tempdir().unwrap();
        let metadata = fs::metadata(home.path()).unwrap();
        let account = Account {
            uid: metadata.uid(),
            gid: metadata.gid(),
            home: home.path().to_owned(),
        };
        reconcile_account(&account, &[]).unwrap();
        assert!(!home.path().join(".ssh").exists());
        reconcile_account(&account, &[key(1, "a")]).unwrap();
        let path = home.path().join(".ssh/authorized_keys");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(home.path().join(".ssh")).unwrap().mode() & 0o777,
            0o700
        );
        assert_eq!(
            fs::read_to_string(path).unwrap(),
            format!("{}{MARKER}\n", key(1, "a"))
        );
    }

    #[test]
    fn accounts_come_from_the_user_database() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nubuntu:x:1000:1001::/home/ubuntu:/bin/sh\n";
        let expected = Account {
            uid: 1000,
            gid: 1001,
            home: "/home/ubuntu".into(),
        };
        assert_eq!(account(passwd, "ubuntu"), Some(expected));
        assert_eq!(account(passwd, "nobody"), None);
    }
}
