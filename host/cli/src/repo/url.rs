//! Addresses of Git repositories in the forms that people and Git write them.

use sha2::{Digest as _, Sha256};

use crate::error::CliError;

/// How a repository is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Https,
    Http,
    Ssh,
    /// A path of this machine, which only jobs on the same machine see.
    File,
}

/// An address, taken apart. `Debug` shows no login.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RepoUrl {
    pub(crate) protocol: Protocol,
    /// Account of an SSH login.
    pub(crate) user: Option<String>,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// Without a slash at the start; of a file: absolute.
    path: String,
    /// A password that stood in the address.
    pub(crate) token: Option<String>,
}

impl std::fmt::Debug for RepoUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

impl RepoUrl {
    /// Reads `https://…`, `ssh://…`, `user@host:path`, `file://…` and absolute paths.
    pub(crate) fn parse(text: &str) -> Result<Self, CliError> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("file://") {
            return Self::file(path, text);
        }
        if text.starts_with('/') {
            return Self::file(text, text);
        }
        if let Some((protocol, rest)) = text.split_once("://") {
            let protocol = match protocol.to_ascii_lowercase().as_str() {
                "https" => Protocol::Https,
                "http" => Protocol::Http,
                "ssh" | "git+ssh" => Protocol::Ssh,
                other => {
                    return Err(CliError::message(format!(
                        "repositories cannot be cloned by {other}://; use https:// or ssh://"
                    )));
                }
            };
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            return Self::of_authority(protocol, authority, path);
        }
        // What Git calls the scp form: the colon comes before any slash.
        match text.split_once(':') {
            Some((authority, path)) if !authority.contains('/') && !path.is_empty() => {
                let mut url = Self::of_authority(Protocol::Ssh, authority, "-")?;
                url.path = match path.strip_prefix('/') {
                    Some(absolute) => absolute.to_owned(),
                    // Forges have no home folders; elsewhere such a path starts at the account's.
                    None if url.user.as_deref().is_none_or(|user| user == "git") => path.to_owned(),
                    None => format!("~/{path}"),
                };
                url.checked(text)
            }
            _ => Err(CliError::message(format!(
                "{text} is no address of a Git repository, such as https://HOST/PATH or git@HOST:PATH"
            ))),
        }
    }

    fn file(path: &str, text: &str) -> Result<Self, CliError> {
        let url = Self {
            protocol: Protocol::File,
            user: None,
            host: String::new(),
            port: None,
            path: path.to_owned(),
            token: None,
        };
        url.checked(text)
    }

    fn of_authority(protocol: Protocol, authority: &str, path: &str) -> Result<Self, CliError> {
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                let port = port.parse().map_err(|_| {
                    CliError::message(format!("\"{port}\" is no port of a repository's host"))
                })?;
                (host, Some(port))
            }
            _ => (place, None),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            Some((user, password)) => (Some(user.to_owned()), password),
            None => (None, ""),
        };
        let url = Self {
            protocol,
            user: user.filter(|_| protocol == Protocol::Ssh),
            host: host.to_ascii_lowercase(),
            port,
            path: path.trim_matches('/').to_owned(),
            token: (!password.is_empty() && protocol != Protocol::Ssh).then(|| password.to_owned()),
        };
        url.checked(place)
    }

    fn checked(self, text: &str) -> Result<Self, CliError> {
        let has_host = self.protocol == Protocol::File || !self.host.is_empty();
        if has_host && !self.name().is_empty() && !self.host.starts_with('-') {
            return Ok(self);
        }
        Err(CliError::message(format!(
            "{text}: the address names no repository"
        )))
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        let path = self.path.trim_end_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        path.trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or_default()
    }

    /// The name by which the project knows it: the same for all protocols and users.
    pub(crate) fn id(&self) -> String {
        let path = self.path.trim_end_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let path = path.strip_prefix("~/").unwrap_or(path);
        let digest = Sha256::digest(format!("{}/{path}", self.host));
        let mut id = self.name().to_owned();
        id.push('-');
        for byte in digest.iter().take(4) {
            id.push_str(&format!("{byte:02x}"));
        }
        id
    }

    /// The address as Git takes it, without a login but for the account of SSH.
    pub(crate) fn text(&self) -> String {
        let (name, user) = match self.protocol {
            Protocol::File => return format!("file://{}", self.path),
            Protocol::Https => ("https", None),
            Protocol::Http => ("http", None),
            Protocol::Ssh => ("ssh", Some(self.user.as_deref().unwrap_or("git"))),
        };
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{name}://{user}{}{port}/{}", self.host, self.path)
    }

    /// The same repository by HTTPS, where that is the host's usual way.
    pub(crate) fn by_https(&self) -> Self {
        match self.protocol {
            Protocol::Ssh => Self {
                protocol: Protocol::Https,
                user: None,
                port: None,
                ..self.clone()
            },
            _ => self.clone(),
        }
    }

    /// The same repository by SSH.
    pub(crate) fn by_ssh(&self) -> Self {
        match self.protocol {
            Protocol::Https | Protocol::Http => Self {
                protocol: Protocol::Ssh,
                user: None,
                port: None,
                token: None,
                ..self.clone()
            },
            _ => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_one_repository_have_one_id_and_show_no_login() {
        let forms = [
            (
                "https://git.example/org/code.git",
                "https://git.example/org/code.git",
            ),
            (
                "https://me:S3CRET@Git.Example/org/code",
                "https://git.example/org/code",
            ),
            (
                "git@git.example:org/code.git",
                "ssh://git@git.example/org/code.git",
            ),
            (
                "ssh://git.example:2222/org/code/",
                "ssh://git@git.example:2222/org/code",
            ),
            (
                "me@git.example:org/code.git",
                "ssh://me@git.example/~/org/code.git",
            ),
        ];
        let id = RepoUrl::parse(forms[0].0).unwrap().id();
        assert!(id.starts_with("code-") && id.len() == 13, "{id}");
        for (text, wanted) in forms {
            let url = RepoUrl::parse(text).unwrap();
            assert_eq!(url.text(), wanted);
            assert_eq!((url.id(), url.name()), (id.clone(), "code"), "{text}");
            assert!(!format!("{url:?}").contains("S3CRET"));
        }
        let other = RepoUrl::parse("https://git.example/other/code").unwrap();
        assert_ne!(other.id(), id);
        let url = RepoUrl::parse("https://me:S3CRET@git.example/org/code").unwrap();
        assert_eq!(url.token.as_deref(), Some("S3CRET"));
        assert_eq!(url.by_ssh().text(), "ssh://git@git.example/org/code");
        assert_eq!(
            RepoUrl::parse("git@h:a/b").unwrap().by_https().text(),
            "https://h/a/b"
        );
        assert_eq!(
            RepoUrl::parse("/srv/x.git").unwrap().text(),
            "file:///srv/x.git"
        );
    }

    #[test]
    fn what_is_no_repository_is_refused() {
        for text in [
            "",
            "code",
            "git://h/x",
            "https://h",
            "https://h:x/y",
            "h:",
            "-oProxyCommand=x:y",
            "ssh://-oX/y",
        ] {
            assert!(RepoUrl::parse(text).is_err(), "{text}");
        }
    }
}
