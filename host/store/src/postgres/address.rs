//! `postgres://…`: where the database is and how it is reached. The password is never shown.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Connection, Socket};

use super::session::failed;
use super::tls::{Stream, Tls, Trust};
use crate::error::DbError;

/// How long the opening of a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// After so long without an answer of the other side's system, a connection is given up.
const SILENCE: Duration = Duration::from_secs(20);

/// The address of a PostgreSQL database.
#[derive(Clone)]
pub struct Address {
    pub(super) config: tokio_postgres::Config,
    pub(super) trust: Trust,
    /// Statements are not kept prepared, since a pooler hands out another session each time.
    pub(super) is_pooled: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// `user@host:port/database`, without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.config.get_user().unwrap_or("?");
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let name = self.config.get_dbname().unwrap_or(user);
        write!(f, "{user}@{host}:{port}/{name}")
    }
}

fn refused(reason: impl Into<String>) -> DbError {
    DbError::Address {
        reason: reason.into(),
    }
}

impl Address {
    /// Reads `postgres://user:password@host:port/name?key=value`.
    ///
    /// Beside the keys of the PostgreSQL client library that make sense here, `ssl` (the same as `sslmode`), `sslrootcert` (a
    /// file) and `pgbouncer=true` (no statements are kept prepared) are known.
    ///
    /// # Errors
    /// [`DbError::Address`]; its text has nothing of the password.
    pub fn parse(url: &str) -> Result<Self, DbError> {
        let (_, rest) = url.split_once("://").unwrap_or(("", url));
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut kept = Vec::new();
        let (mut ssl, mut root, mut is_pooled) = (None, None, false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_encoding::percent_decode_str(value)
                .decode_utf8_lossy()
                .into_owned();
            match key {
                "ssl" | "sslmode" => ssl = Some(value),
                "sslrootcert" => root = Some(PathBuf::from(value)),
                "pgbouncer" => is_pooled = matches!(value.as_str(), "true" | "1"),
                _ => kept.push(pair),
            }
        }
        let mut text = format!("postgresql://{place}");
        if !kept.is_empty() {
            text.push('?');
            text.push_str(&kept.join("&"));
        }
        let mut config = tokio_postgres::Config::from_str(&text).map_err(|error| {
            let source = std::error::Error::source(&error);
            refused(source.map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        let (mode, trust) = Self::security(ssl.as_deref(), root)?;
        config
            .ssl_mode(mode)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .application_name("dstack")
            .keepalives_idle(SILENCE)
            .keepalives_interval(SILENCE / 4)
            .keepalives_retries(3)
            .tcp_user_timeout(SILENCE);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        Ok(Self {
            config,
            trust,
            is_pooled,
        })
    }

    /// Opens a connection, within the time that the address allows for it.
    pub(super) async fn connect(
        &self,
        tls: Tls,
    ) -> Result<(Client, Connection<Socket, Stream<Socket>>), DbError> {
        let limit = self
            .config
            .get_connect_timeout()
            .copied()
            .unwrap_or(CONNECT);
        match tokio::time::timeout(limit, self.config.connect(tls)).await {
            Ok(connected) => connected.map_err(|error| failed(self, &error)),
            Err(_) => Err(DbError::Unreachable {
                place: self.to_string(),
                reason: format!("no answer within {} s", limit.as_secs()),
            }),
        }
    }

    /// What a mode means, as the PostgreSQL client library has it: certificates are looked at only where one is named or asked
    /// for.
    fn security(ssl: Option<&str>, root: Option<PathBuf>) -> Result<(SslMode, Trust), DbError> {
        let given = |root: Option<PathBuf>| root.map_or(Trust::Anything, Trust::File);
        Ok(match ssl.unwrap_or("prefer") {
            "disable" | "false" => (SslMode::Disable, Trust::Anything),
            "allow" | "prefer" => (SslMode::Prefer, given(root)),
            "require" | "true" => (SslMode::Require, given(root)),
            "verify-ca" | "verify-full" => {
                (SslMode::Require, root.map_or(Trust::System, Trust::File))
            }
            other => {
                return Err(refused(format!(
                    "sslmode {other:?} is none of disable, allow, prefer, require, verify-ca, verify-full"
                )));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_their_passwords() {
        let it =
            Address::parse("postgresql+asyncpg://me:hunter2@db.example:6432/dstack?ssl=require")
                .unwrap();
        assert_eq!(it.to_string(), "me@db.example:6432/dstack");
        assert_eq!(format!("{it:?}"), "Address(me@db.example:6432/dstack)");
        assert_eq!(it.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(it.config.get_password(), Some(&b"hunter2"[..]));
        assert!(!it.is_pooled);
    }

    #[test]
    fn sockets_poolers_and_certificates_are_understood() {
        let it = Address::parse(
            "postgres://me@/dstack?host=%2Frun%2Fpg&pgbouncer=true&sslmode=verify-full&sslrootcert=%2Fca.pem",
        )
        .unwrap();
        assert_eq!(it.to_string(), "me@/run/pg:5432/dstack");
        assert!(it.is_pooled);
        assert_eq!(it.trust, Trust::File("/ca.pem".into()));
        assert_eq!(
            Address::parse("postgres://a@b/c").unwrap().trust,
            Trust::Anything
        );
    }

    #[test]
    fn what_makes_no_sense_is_named_without_the_password() {
        for (url, word) in [
            ("postgres://me:hunter2@db:many/dstack", "port"),
            ("postgres://me:hunter2@db/dstack?sslmode=maybe", "sslmode"),
            ("postgres://me:hunter2@db/dstack?colour=red", "colour"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(
                error.contains(word) && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
