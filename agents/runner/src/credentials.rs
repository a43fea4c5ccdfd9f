//! The user's own git login within the job; taken away when the job ends.

use std::io;
use std::path::{Path, PathBuf};

use dstack_agent_protocol::runner::RepoCredentials;

use crate::files;
use crate::users::Account;

/// Files that were made; removed on drop. Files that were there before are not touched.
#[derive(Debug, Default)]
pub(crate) struct GitLogin {
    files: Vec<PathBuf>,
    /// Variables that make git use the token.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl GitLogin {
    /// Writes the key or token where git and `gh` look for it.
    ///
    /// # Errors
    /// If such a file exists already, or cannot be written.
    pub(crate) fn write(
        credentials: &RepoCredentials,
        home: &Path,
        account: &Account,
    ) -> io::Result<Self> {
        let mut login = Self::default();
        let Some((protocol, rest)) = credentials.clone_url.split_once("://") else {
            return Ok(login);
        };
        match (protocol, &credentials.private_key, &credentials.oauth_token) {
            ("ssh", Some(key), _) if !key.is_empty() => {
                let dir = home.join(".ssh");
                files::private_dir(&dir, account)?;
                login.add(dir.join("id_rsa"), key.expose(), account)?;
            }
            ("https", _, Some(token)) if !token.is_empty() => {
                let host = rest.split('/').next().unwrap_or_default();
                let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
                login.write_token(host, token.expose(), home, account)?;
            }
            _ => {}
        }
        Ok(login)
    }

    fn write_token(
        &mut self,
        host: &str,
        token: &str,
        home: &Path,
        account: &Account,
    ) -> io::Result<()> {
        for dir in [".config", ".config/gh", ".config/dstack"] {
            if !home.join(dir).is_dir() {
                files::private_dir(&home.join(dir), account)?;
            }
        }
        let store = home.join(".config/dstack/git-credentials");
        files::remove(&store)?;
        let line = format!("https://anything:{}@{host}\n", percent_encode(token));
        self.add(store.clone(), &line, account)?;
        // The empty one takes away what the image configured: its helper would be asked first, and may fail or wait.
        let key = format!("credential.https://{host}.helper");
        let helper = format!("store --file='{}'", store.display());
        self.variables = vec![
            ("GIT_CONFIG_COUNT", "2".to_owned()),
            ("GIT_CONFIG_KEY_0", key.clone()),
            ("GIT_CONFIG_VALUE_0", String::new()),
            ("GIT_CONFIG_KEY_1", key),
            ("GIT_CONFIG_VALUE_1", helper),
        ];
        let text = format!("{host}:\n  oauth_token: \"{token}\"\n");
        if let Err(error) = self.add(home.join(".config/gh/hosts.yml"), &text, account) {
            tracing::warn!(%error, "gh is not logged in");
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf, text: &str, account: &Account) -> io::Result<()> {
        files::new_private_file(&path, text, account)?;
        self.files.push(path);
        Ok(())
    }
}

/// A token as a part of a URL.
fn percent_encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| match byte {
            byte if is_plain(byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

impl Drop for GitLogin {
    fn drop(&mut self) {
        for path in &self.files {
            if let Err(error) = files::remove(path) {
                tracing::warn!(path = %path.display(), %error, "git credentials are left behind");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_token_lands_in_the_file_of_gh_and_goes_with_the_job() {
        let home = tempfile::tempdir().unwrap();
        let credentials = RepoCredentials {
            clone_url: "https://user@git.example/org/p.git".to_owned(),
            oauth_token: Some("to/k".into()),
            ..RepoCredentials::default()
        };
        let path = home.path().join(".config/gh/hosts.yml");
        let login = GitLogin::write(&credentials, home.path(), &Account::default()).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "git.example:\n  oauth_token: \"to/k\"\n"
        );
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let store = home.path().join(".config/dstack/git-credentials");
        assert_eq!(mode(&store), 0o600);
        let mut git = std::process::Command::new("git");
        git.args(["credential", "fill"]).env("HOME", home.path());
        git.envs(login.variables.iter().map(|(key, value)| (key, value)));
        let asked = "protocol=https\nhost=git.example\n\n";
        std::fs::write(home.path().join("asked"), asked).unwrap();
        let output = git
            .stdin(std::fs::File::open(home.path().join("asked")).unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("password=to/k\n"), "{said}");
        drop(login);
        assert!(!path.exists() && !store.exists());
    }

    #[test]
    fn a_key_of_the_image_is_never_overwritten_nor_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(".ssh/id_rsa");
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        std::fs::write(&path, "image's").unwrap();
        let credentials = RepoCredentials {
            clone_url: "ssh://git@h/p.git".to_owned(),
            private_key: Some("KEY".into()),
            ..RepoCredentials::default()
        };
        assert!(GitLogin::write(&credentials, home.path(), &Account::default()).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "image's");
        std::fs::remove_file(&path).unwrap();
        let login = GitLogin::write(&credentials, home.path(), &Account::default()).unwrap();
        assert_eq!(
            (
                std::fs::read_to_string(&path).unwrap().as_str(),
                mode(&path)
            ),
            ("KEY", 0o600)
        );
        drop(login);
        assert!(!path.exists());
    }
}
