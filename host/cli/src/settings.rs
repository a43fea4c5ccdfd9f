//! The environment of the client, read once.

use std::path::PathBuf;

/// Where variables come from; a test gives a map.
pub trait Vars {
    /// The value of a variable, if it is set and UTF-8.
    fn get(&self, name: &str) -> Option<String>;
}

/// The variables of this process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessVars;

impl Vars for ProcessVars {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place of the client that reads the environment"
    )]
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Settings of the client, each from one variable of the environment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `HOME`: the folder with `.dstack/` and `.ssh/`.
    pub home: PathBuf,
    /// `DSTACK_PROJECT`: the project of commands without `--project`.
    pub project: Option<String>,
    /// `DSTACK_SERVER_URL`: with `DSTACK_TOKEN`, used instead of the configuration file.
    pub server_url: Option<String>,
    /// `DSTACK_TOKEN`: replaces the configured token.
    pub token: Option<Token>,
    /// `DSTACK_CLIENT_API_VERSION`: what is sent as `X-API-VERSION`. Default: the release that we are compatible with.
    pub api_version: String,
    /// `DSTACK_PROFILE`: the profile of `apply` without `--profile`.
    pub profile: Option<String>,
    /// `DSTACK_NO_PROFILE` says yes: no profile, not even the default one.
    pub no_profile: bool,
    /// `NO_COLOR` is set and not empty, or `TERM` is `dumb`.
    pub is_plain: bool,
}

/// A token; printing it shows stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub(crate) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The release of the reference whose API and language we speak.
pub const COMPATIBLE_VERSION: &str = "0.22.5";
/// Our own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Settings {
    /// Reads all variables.
    #[must_use]
    pub fn from_env(vars: &dyn Vars) -> Self {
        let set = |name: &str| vars.get(name).filter(|value| !value.is_empty());
        Self {
            home: PathBuf::from(set("HOME").unwrap_or_else(|| ".".to_owned())),
            project: set("DSTACK_PROJECT"),
            server_url: set("DSTACK_SERVER_URL"),
            token: set("DSTACK_TOKEN").map(Token),
            api_version: set("DSTACK_CLIENT_API_VERSION")
                .unwrap_or_else(|| COMPATIBLE_VERSION.to_owned()),
            profile: set("DSTACK_PROFILE"),
            no_profile: set("DSTACK_NO_PROFILE").is_some_and(|value| {
                matches!(
                    value.to_lowercase().as_str(),
                    "1" | "true" | "yes" | "on" | "t" | "y"
                )
            }),
            is_plain: set("NO_COLOR").is_some() || set("TERM").as_deref() == Some("dumb"),
        }
    }
}
