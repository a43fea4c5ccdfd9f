//! The user's own git login within the job; taken away when the job ends.

use std::io;
use std::path::{Path, PathBuf};

use dstack_agent_protocol::runner::RepoCredentials;

use crate::files;
use crate::users::Account;

/// Files that were made; removed on drop. Files that were there before are not touched.
#[derive(Debug, Default)]
pub(crate) struct GitLogin(Option<PathBuf>);

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
        let Some((protocol, rest)) = credentials.clone_url.split_once("://") else {
            return Ok(Self::default());
        };
        match (protocol, &credentials.private_key, &credentials.oauth_token) {
            ("ssh", Some(key), _) if !key.is_empty() => {
                let dir = home.join(".ssh");
                files::private_dir(&dir, account)?;
                let path = dir.join("id_rsa");
                files::new_private_file(&path, key.expose(), account)?;
                Ok(Self(Some(path)))
            }
            ("https", _, Some(token)) if !token.is_empty() => {
                let host = rest.split('/').next().unwrap_or_default();
                let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
                let dir = home.join(".config/gh");
                if !home.join(".config").is_dir() {
                    files::private_dir(&home.join(".config"), account)?;
                }
                if !dir.is_dir() {
                    files::private_dir(&dir, account)?;
                }
                let path = dir.join("hosts.yml");
                let text = format!("{host}:\n  oauth_token: \"{}\"\n", token.expose());
                files::new_private_file(&path, &text, account)?;
                Ok(Self(Some(path)))
            }
            _ => Ok(Self::default()),
        }
    }
}

impl Drop for GitLogin {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = files::remove(path)
        {
            tracing::warn!(path = %path.display(), %error, "git credentials are left behind");
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
            oauth_token: Some("tok".into()),
            ..RepoCredentials::default()
        };
        let path = home.path().join(".config/gh/hosts.yml");
        let login = GitLogin::write(&credentials, home.path(), &Account::default()).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "git.example:\n  oauth_token: \"tok\"\n"
        );
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop(login);
        assert!(!path.exists());
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
