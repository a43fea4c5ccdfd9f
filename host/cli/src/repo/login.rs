//! The login with which a job clones: given, or found among those that Git has on this machine.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use dstack_api::repos::RemoteRepoCreds;

use super::git::{asked, complaint, configured, git, run};
use super::url::{Protocol, RepoUrl};
use crate::error::CliError;

/// What opens a repository. `Debug` shows no secret.
pub(super) struct Login {
    url: RepoUrl,
    token: Option<String>,
    key: Option<Key>,
}

struct Key {
    path: PathBuf,
    text: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Login").field(&self.url).finish()
    }
}

/// What a remote shows.
#[derive(Debug, Default)]
pub(super) struct Refs(Vec<(String, String)>);

impl Refs {
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        Self(
            lines
                .map(|(value, name)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// The branch that clones get if none is named.
    pub(super) fn default_branch(&self) -> Option<&str> {
        self.0.iter().find_map(|(name, value)| {
            (name == "HEAD").then(|| value.strip_prefix("ref: refs/heads/"))?
        })
    }

    /// The commit of a branch, or of the default one.
    pub(super) fn commit(&self, branch: Option<&str>) -> Option<&str> {
        let wanted = branch.map_or_else(|| "HEAD".to_owned(), |name| format!("refs/heads/{name}"));
        self.0.iter().find_map(|(name, value)| {
            (*name == wanted && !value.starts_with("ref:")).then_some(value.as_str())
        })
    }
}

impl Login {
    /// The login that the server keeps for this person.
    pub(super) fn kept(creds: &RemoteRepoCreds) -> Option<Self> {
        Some(Self {
            url: RepoUrl::parse(&creds.clone_url).ok()?,
            token: creds
                .oauth_token
                .as_ref()
                .map(|token| token.expose().clone()),
            key: creds.private_key.as_ref().map(|key| Key {
                path: PathBuf::new(),
                text: key.expose().clone(),
            }),
        })
    }

    /// As the server keeps it.
    pub(super) fn creds(&self) -> RemoteRepoCreds {
        RemoteRepoCreds {
            clone_url: self.url.text(),
            private_key: self.key.as_ref().map(|key| key.text.clone().into()),
            oauth_token: self.token.clone().map(Into::into),
        }
    }

    /// What is told to the person: which of their secrets leaves the machine.
    pub(super) fn note(&self) -> Option<String> {
        match (&self.token, &self.key) {
            (Some(_), _) => Some(format!("the token for {}", self.url.host)),
            (None, Some(key)) => Some(format!("the SSH key {}", key.path.display())),
            (None, None) => None,
        }
    }

    /// Asks the remote for its branches with it.
    pub(super) fn try_it(
        &self,
        branch: Option<&str>,
        home: &Path,
    ) -> Result<Result<Refs, String>, CliError> {
        let mut git = git(home);
        let mut settings = vec![("credential.helper", "")];
        let header = self.token.as_ref().map(|token| {
            let basic =
                base64::engine::general_purpose::STANDARD.encode(format!("anything:{token}"));
            format!("Authorization: Basic {basic}")
        });
        if let Some(header) = &header {
            settings.push(("http.extraHeader", header));
        }
        configured(&mut git, &settings);
        let mut file = None;
        if self.url.protocol == Protocol::Ssh {
            let mut ssh =
                "ssh -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking=accept-new"
                    .to_owned();
            if let Some(key) = &self.key {
                let path = if key.path.as_os_str().is_empty() {
                    file.insert(PrivateFile::write(&key.text)?).0.clone()
                } else {
                    key.path.clone()
                };
                ssh.push_str(&format!(
                    " -o IdentitiesOnly=yes -o IdentityAgent=none -i {}",
                    quoted(&path)
                ));
            }
            git.env("GIT_SSH_COMMAND", ssh);
        }
        git.args(["ls-remote", "--symref", "--", &self.url.text(), "HEAD"]);
        if let Some(branch) = branch {
            git.arg(format!("refs/heads/{branch}"));
        }
        let output = run(&mut git)?;
        drop(file);
        if output.status.success() {
            return Ok(Ok(Refs::parse(&String::from_utf8_lossy(&output.stdout))));
        }
        Ok(Err(complaint(&output)))
    }
}

/// The login that `--token` or `--git-identity` names.
pub(super) fn given(
    url: &RepoUrl,
    token: Option<&str>,
    identity: Option<&Path>,
) -> Result<Option<Login>, CliError> {
    if let Some(token) = token {
        if url.protocol == Protocol::File {
            return Err(CliError::message(format!(
                "{url:?} is a path, which takes no token"
            )));
        }
        return Ok(Some(Login {
            url: url.by_https(),
            token: Some(token.to_owned()),
            key: None,
        }));
    }
    let Some(path) = identity else {
        return Ok(None);
    };
    Ok(Some(Login {
        url: url.by_ssh(),
        token: None,
        key: Some(Key {
            text: read_key(path)?,
            path: path.to_owned(),
        }),
    }))
}

/// The first login of this machine that opens the repository: none at all, Git's own helpers, `gh`, SSH keys.
pub(super) fn find(
    url: &RepoUrl,
    branch: Option<&str>,
    home: &Path,
) -> Result<(Login, Refs), CliError> {
    let mut tried = Vec::new();
    let plain = Login {
        url: url.by_https(),
        token: url.token.clone(),
        key: None,
    };
    match plain.try_it(branch, home)? {
        Ok(refs) => return Ok((plain, refs)),
        Err(why) => tried.push(format!("{:?}: {why}", plain.url)),
    }
    if matches!(url.protocol, Protocol::Https | Protocol::Http) && url.token.is_none() {
        for (name, token) in [
            ("git's credential helper", helper(url, home)?),
            ("gh", gh(url, home)),
        ] {
            let Some(token) = token else { continue };
            let login = Login {
                url: url.clone(),
                token: Some(token),
                key: None,
            };
            match login.try_it(branch, home)? {
                Ok(refs) => return Ok((login, refs)),
                Err(why) => tried.push(format!("{url:?} with the token of {name}: {why}")),
            }
        }
    }
    if url.protocol == Protocol::Ssh {
        let url = real_host(url);
        for path in crate::ssh::identities_for(&url.host) {
            let text = match read_key(&path) {
                Ok(text) => text,
                Err(error) => {
                    tried.push(error.to_string());
                    continue;
                }
            };
            let key = Some(Key {
                path: path.clone(),
                text,
            });
            let login = Login {
                url: url.clone(),
                token: None,
                key,
            };
            match login.try_it(branch, home)? {
                Ok(refs) => return Ok((login, refs)),
                Err(why) => tried.push(format!("{url:?} with {}: {why}", path.display())),
            }
        }
    }
    Err(CliError::message(format!(
        "no login opens the repository {url:?}:\n  {}\nName one: --token TOKEN or --git-identity KEY, once with `dstack init`.",
        tried.join("\n  ")
    )))
}

/// The token that Git's credential helpers have.
fn helper(url: &RepoUrl, home: &Path) -> Result<Option<String>, CliError> {
    let protocol = if url.protocol == Protocol::Http {
        "http"
    } else {
        "https"
    };
    let port = url.port.map(|port| format!(":{port}")).unwrap_or_default();
    let mut git = git(home);
    git.args(["credential", "fill"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(mut child) = git.spawn() else {
        return Ok(None);
    };
    if let Some(mut input) = child.stdin.take() {
        // A helper that reads nothing has nothing.
        drop(write!(
            input,
            "protocol={protocol}\nhost={}{port}\n\n",
            url.host
        ));
    }
    let Ok(output) = child.wait_with_output() else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let password = text.lines().find_map(|line| line.strip_prefix("password="));
    Ok(password.filter(|it| !it.is_empty()).map(str::to_owned))
}

/// The token of GitHub's own client, if it is there and logged in.
fn gh(url: &RepoUrl, home: &Path) -> Option<String> {
    let mut gh = Command::new("gh");
    gh.args(["auth", "token", "--hostname", &url.host])
        .env("HOME", home)
        .stdin(Stdio::null());
    // It is not there on most machines.
    let token = asked(&mut gh).ok()??;
    (!token.is_empty()).then_some(token)
}

/// Names of the person's own SSH configuration mean nothing to a job.
fn real_host(url: &RepoUrl) -> RepoUrl {
    let mut real = url.clone();
    let Ok(output) = Command::new("ssh")
        .args(["-G", "--", &url.host])
        .stdin(Stdio::null())
        .output()
    else {
        return real;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
    };
    if let Some(host) = value("hostname") {
        host.clone_into(&mut real.host);
    }
    let port = value("port").and_then(|port| port.parse().ok());
    real.port = url.port.or(port.filter(|port| *port != 22));
    real
}

/// A private key without a passphrase, since nobody can type one for a job.
fn read_key(path: &Path) -> Result<String, CliError> {
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    match crate::ssh::public_line(path) {
        Some(_) => Ok(text),
        None => Err(CliError::message(format!(
            "{}: a job cannot use this key: it is no private key, or it has a passphrase; make one without for the \
             repository (ssh-keygen -t ed25519 -N '')",
            path.display()
        ))),
    }
}

/// A word of the shell that Git runs `GIT_SSH_COMMAND` with.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// A secret in a file for as long as a child needs it.
struct PrivateFile(PathBuf);

impl PrivateFile {
    fn write(text: &str) -> Result<Self, CliError> {
        let path =
            std::env::temp_dir().join(format!("dstack-key-{}", uuid::Uuid::new_v4().simple()));
        crate::ssh::write_private(&path, text)?;
        Ok(Self(path))
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_found_among_what_a_remote_shows() {
        let refs = Refs::parse(
            "ref: refs/heads/main\tHEAD\nabc\tHEAD\nabc\trefs/heads/main\ndef\trefs/heads/x\n",
        );
        assert_eq!(refs.default_branch(), Some("main"));
        assert_eq!(
            (
                refs.commit(None),
                refs.commit(Some("x")),
                refs.commit(Some("y"))
            ),
            (Some("abc"), Some("def"), None)
        );
    }

    #[test]
    fn logins_show_no_secret() {
        let url = RepoUrl::parse("https://git.example/a").unwrap();
        let login = given(&url, Some("S3CRET"), None).unwrap().unwrap();
        assert!(!format!("{login:?}").contains("S3CRET"));
        assert_eq!(login.creds().oauth_token.unwrap().expose(), "S3CRET");
    }
}
