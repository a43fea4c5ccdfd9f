//! Keys that may pass through the login node.

use dstack_backend_sdk::boot::quote;
use dstack_backend_sdk::prelude::*;

/// Ends every line that a server has written.
const MARK: &str = "# added by dstack";
/// Who has such a key gets no shell and no terminal, only the way to the nodes.
const OPTIONS: &str = r#"restrict,port-forwarding,command="/bin/false""#;

/// Lines of `sh` that add keys to the user's file; one whose blob stands there stays as it is.
///
/// # Errors
/// `invalid` if the project's key is none. Another key that is none is left out.
pub(crate) fn authorise(project: &str, others: &[String]) -> Result<String> {
    let first = Key::read(project)
        .ok_or_else(|| BackendError::invalid("the project's public key cannot be read"))?;
    let mut keys = vec![first];
    for other in others {
        match Key::read(other) {
            Some(key) => keys.push(key),
            None => tracing::warn!("a user's public key cannot be read, it is left out"),
        }
    }
    let mut lines = String::from(
        "umask 077; mkdir -p ~/.ssh && touch ~/.ssh/authorized_keys && cd ~/.ssh || exit 1\n\
         if [ -n \"$(tail -c 1 authorized_keys)\" ]; then echo >> authorized_keys || exit 1; fi\n",
    );
    for key in keys {
        let line = quote(&key.line());
        let blob = quote(key.blob);
        lines.push_str(&format!(
            "grep -qF -- {blob} authorized_keys || printf '%s\\n' {line} >> authorized_keys || exit 1\n"
        ));
    }
    Ok(lines)
}

/// A public key: its sort, its bytes, a comment.
#[derive(Debug)]
struct Key<'a> {
    sort: &'a str,
    blob: &'a str,
    comment: String,
}

impl<'a> Key<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (sort, blob) = (words.next()?, words.next()?);
        let is_sort = ["ssh-", "ecdsa-", "sk-"]
            .iter()
            .any(|start| sort.starts_with(start));
        let is_blob = blob.starts_with("AAAA")
            && blob
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
        let comment: Vec<&str> = words.collect();
        (is_sort && is_blob).then(|| Self {
            sort,
            blob,
            comment: comment.join(" "),
        })
    }

    fn line(&self) -> String {
        let Self {
            sort,
            blob,
            comment,
        } = self;
        let comment: String = comment.chars().filter(|c| !c.is_control()).collect();
        let words = [OPTIONS, sort, blob, &comment, MARK];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::authorise;

    const ONE: &str = "ssh-ed25519 AAAAC3one it's me";
    const TWO: &str = "ssh-rsa AAAAB3two";

    /// Runs the lines with a home of their own; what the file holds then.
    fn file_after(runs: &[String], before: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        let ssh = home.path().join(".ssh");
        std::fs::create_dir_all(&ssh).unwrap();
        std::fs::write(ssh.join("authorized_keys"), before).unwrap();
        for lines in runs {
            let status = std::process::Command::new("sh")
                .args(["-c", lines])
                .env("HOME", home.path())
                .status()
                .unwrap();
            assert!(status.success(), "{lines}");
        }
        std::fs::read_to_string(ssh.join("authorized_keys")).unwrap()
    }

    #[test]
    fn keys_are_added_once_and_open_nothing_but_the_way() {
        let lines = authorise(ONE, &[TWO.to_owned(), "nonsense".to_owned()]).unwrap();
        let text = file_after(&[lines.clone(), lines], "ssh-ed25519 AAAAmine me");
        let option = r#"restrict,port-forwarding,command="/bin/false""#;
        assert_eq!(
            text,
            format!(
                "ssh-ed25519 AAAAmine me\n{option} {ONE} # added by dstack\n{option} {TWO} # added by dstack\n"
            )
        );
    }

    #[test]
    fn a_key_that_stands_there_stays_as_it_is() {
        let lines = authorise("ssh-ed25519 AAAAmine other", &[]).unwrap();
        assert_eq!(
            file_after(&[lines], "ssh-ed25519 AAAAmine\n"),
            "ssh-ed25519 AAAAmine\n"
        );
    }

    #[test]
    fn a_project_key_that_is_none_is_an_error() {
        for wrong in ["", "ssh-ed25519", "ssh-ed25519 '; rm -rf ~", "x AAAA"] {
            assert!(authorise(wrong, &[]).is_err(), "{wrong}");
        }
    }
}
