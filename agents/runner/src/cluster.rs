//! Lets the nodes of a replica log in to each other.

use std::io;
use std::path::Path;

use dstack_agent_protocol::runner::{ClusterInfo, JobSshKey};

use crate::files;
use crate::users::Account;

/// Writes the replica's key and the client configuration for its nodes.
pub(crate) fn write_client(
    key: &JobSshKey,
    cluster: &ClusterInfo,
    ssh_port: u16,
    home: &Path,
    account: &Account,
) -> io::Result<()> {
    let dir = home.join(".ssh");
    files::private_dir(&dir, account)?;
    let path = dir.join("dstack_job");
    files::private_file(&path, key.private.expose(), account)?;
    let hosts = cluster.job_ips.iter().filter(|ip| !ip.is_empty());
    let blocks: String = hosts.map(|ip| block(ip, ssh_port, &path)).collect();
    files::append_private(&dir.join("config"), &blocks, account)
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
        write_client(&key, &cluster, 10022, home.path(), &Account::default()).unwrap();
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
    }
}
