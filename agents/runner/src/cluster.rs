//! Lets the nodes of a replica log in to each other.

use std::io;
use std::path::{Path, PathBuf};

use dstack_agent_protocol::runner::{ClusterInfo, JobSshKey};

use crate::files;
use crate::users::Account;

/// The key and the part of the client configuration that were written; both go when this is dropped.
#[derive(Debug)]
pub(crate) struct NodeLogin {
    key: PathBuf,
    config: PathBuf,
    blocks: String,
}

impl NodeLogin {
    /// Writes the replica's key and the client configuration for its nodes.
    pub(crate) fn write(
        key: &JobSshKey,
        cluster: &ClusterInfo,
        ssh_port: u16,
        home: &Path,
        account: &Account,
    ) -> io::Result<Self> {
        let dir = home.join(".ssh");
        files::private_dir(&dir, account)?;
        let path = dir.join("dstack_job");
        let hosts = cluster.job_ips.iter().filter(|ip| !ip.is_empty());
        let blocks: String = hosts.map(|ip| block(ip, ssh_port, &path)).collect();
        let login = Self {
            key: path,
            config: dir.join("config"),
            blocks,
        };
        files::private_file(&login.key, key.private.expose(), account)?;
        files::append_private(&login.config, &login.blocks, account)?;
        Ok(login)
    }

    fn take_back(&self) -> io::Result<()> {
        files::remove(&self.key)?;
        let text = std::fs::read_to_string(&self.config)?;
        let rest = text.replacen(&self.blocks, "", 1);
        if rest.is_empty() {
            files::remove(&self.config)
        } else {
            // Written over, so that owner and mode stay.
            std::fs::write(&self.config, rest)
        }
    }
}

impl Drop for NodeLogin {
    fn drop(&mut self) {
        if let Err(error) = self.take_back() {
            tracing::warn!(%error, "the key between the nodes, or its configuration, is left behind");
        }
    }
}

fn block(ip: &str, port: u16, key: &Path) -> String {
    let key = key.display();
    format!(
        "\nHost {ip}\n    Port {port}\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    IdentityFile {key}\n"
    )
}

/// Whether the job has other nodes to reach.
pub(crate) fn has_peers(key: Option<&JobSshKey>, cluster: &ClusterInfo) -> bool {
    key.is_some() && cluster.job_ips.len() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_gets_a_block_and_the_images_own_configuration_stays() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        let config = home.path().join(".ssh/config");
        std::fs::write(&config, "Host mine\n").unwrap();
        let cluster = ClusterInfo {
            job_ips: vec!["10.0.0.5".into(), "10.0.0.6".into()],
            ..ClusterInfo::default()
        };
        let key = JobSshKey {
            private: "PRIVATE".into(),
            public: "ssh-rsa A".into(),
        };
        assert!(has_peers(Some(&key), &cluster));
        let login =
            NodeLogin::write(&key, &cluster, 10022, home.path(), &Account::default()).unwrap();
        let text = std::fs::read_to_string(&config).unwrap();
        assert!(
            text.starts_with("Host mine\n\nHost 10.0.0.5\n    Port 10022\n"),
            "{text}"
        );
        assert_eq!(text.matches("StrictHostKeyChecking no").count(), 2);
        assert_eq!(
            std::fs::read_to_string(home.path().join(".ssh/dstack_job")).unwrap(),
            "PRIVATE"
        );
        drop(login);
        assert_eq!(std::fs::read_to_string(&config).unwrap(), "Host mine\n");
        assert!(!home.path().join(".ssh/dstack_job").exists());
    }
}
