//! Who the job runs as. Reads the image's user database itself: a static binary has no name service.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dstack_agent_protocol::runner::UnixUser;

/// Home of a user who has none of use.
const NO_HOME: &str = "/";

/// A resolved user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// All groups, the primary one too; sorted.
    pub(crate) groups: Vec<u32>,
    /// Empty for a number without an entry.
    pub(crate) name: String,
    pub(crate) home: PathBuf,
    /// Whether the job becomes this user, or runs as the runner itself does.
    pub(crate) is_switched: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UserError {
    #[error("neither uid nor username is set")]
    Unset,
    #[error("unknown user {0}")]
    UnknownUser(String),
    #[error("unknown group {0}")]
    UnknownGroup(String),
}

/// The user database of the image.
#[derive(Debug, Default)]
pub(crate) struct Database {
    users: Vec<User>,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

#[derive(Debug)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

impl Database {
    /// Reads both files; an image without them has no users.
    pub(crate) fn read(passwd: &Path, group: &Path) -> Self {
        let read = |path| std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned());
        Self::parse(
            &read(passwd).unwrap_or_default(),
            &read(group).unwrap_or_default(),
        )
    }

    /// Lines that are not understood are passed over, as the system's own reader does.
    fn parse(passwd: &str, group: &str) -> Self {
        let users = passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            let home = PathBuf::from(fields.nth(1)?);
            Some(User {
                name,
                uid,
                gid,
                home,
            })
        });
        let groups = group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
            let gid = fields.nth(1)?.parse().ok()?;
            let members = fields
                .next()
                .unwrap_or_default()
                .split(',')
                .map(str::to_owned)
                .collect();
            Some(Group { name, gid, members })
        });
        Self {
            users: users.collect(),
            groups: groups.collect(),
        }
    }

    fn by_uid(&self, uid: u32) -> Option<&User> {
        self.users.iter().find(|user| user.uid == uid)
    }

    fn groups_of(&self, user: &User) -> Vec<u32> {
        let named = self
            .groups
            .iter()
            .filter(|g| g.members.contains(&user.name))
            .map(|g| g.gid);
        BTreeSet::from_iter(named.chain([user.gid]))
            .into_iter()
            .collect()
    }

    /// Home of a user by number.
    pub(crate) fn home_of(&self, uid: u32) -> Option<PathBuf> {
        self.by_uid(uid)
            .map(|user| user.home.clone())
            .filter(|home| home.is_absolute())
    }

    /// The runner's own user, for a job that names none.
    pub(crate) fn own(&self, uid: u32, gid: u32, home: PathBuf) -> Account {
        let name = self
            .by_uid(uid)
            .map(|user| user.name.clone())
            .unwrap_or_default();
        Account {
            uid,
            gid,
            groups: vec![gid],
            name,
            home,
            is_switched: false,
        }
    }

    /// The user a job names. Its home is checked: one that cannot be used becomes `/`.
    pub(crate) fn resolve(&self, wanted: &UnixUser) -> Result<Account, UserError> {
        let user = match (wanted.uid, &wanted.username) {
            (Some(uid), _) => self.by_uid(uid),
            (None, Some(name)) => {
                let found = self.users.iter().find(|user| user.name == *name);
                Some(found.ok_or_else(|| UserError::UnknownUser(name.clone()))?)
            }
            (None, None) => return Err(UserError::Unset),
        };
        let (gid, groups) = match (wanted.gid, &wanted.groupname, user) {
            (Some(gid), _, _) => (gid, vec![gid]),
            (None, Some(name), _) => {
                let found = self.groups.iter().find(|group| group.name == *name);
                let gid = found
                    .ok_or_else(|| UserError::UnknownGroup(name.clone()))?
                    .gid;
                (gid, vec![gid])
            }
            (None, None, Some(user)) => (user.gid, self.groups_of(user)),
            (None, None, None) => (0, vec![0]),
        };
        let home = user.map(|user| user.home.clone()).unwrap_or_default();
        Ok(Account {
            uid: wanted
                .uid
                .or_else(|| user.map(|user| user.uid))
                .unwrap_or_default(),
            gid,
            groups,
            name: user.map(|user| user.name.clone()).unwrap_or_default(),
            home: usable_home(home),
            is_switched: true,
        })
    }
}

/// A home that does not exist is left as it is, unless its name says that it never will.
fn usable_home(home: PathBuf) -> PathBuf {
    let is_usable = home.is_absolute()
        && match home.metadata() {
            Ok(found) => found.is_dir(),
            Err(_) => !home.to_string_lossy().contains("nonexistent"),
        };
    if is_usable {
        return home;
    }
    tracing::warn!(home = %home.display(), "the user's home cannot be used, taking /");
    PathBuf::from(NO_HOME)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n# broken\napp:x:1000:1000::/tmp:/bin/sh\n\
        nobody:x:65534:65534:nobody:/nonexistent:/bin/false\nfile:x:7:7::/etc/passwd:\nrel:x:8:8::home:\ngone:x:9:9::/no/such/home:";
    const GROUP: &str = "root:x:0:\napp:x:1000:\nextra:x:900:other,app\nvideo:x:44:app\n";

    fn resolve(
        uid: Option<u32>,
        gid: Option<u32>,
        user: Option<&str>,
        group: Option<&str>,
    ) -> Result<Account, UserError> {
        let wanted = UnixUser {
            uid,
            gid,
            username: user.map(str::to_owned),
            groupname: group.map(str::to_owned),
        };
        Database::parse(PASSWD, GROUP).resolve(&wanted)
    }

    fn ids(account: &Account) -> (u32, u32, &[u32], &str, &str) {
        (
            account.uid,
            account.gid,
            &account.groups,
            &account.name,
            account.home.to_str().unwrap(),
        )
    }

    #[test]
    fn users_are_found_by_number_or_name_with_their_groups() {
        let by_name = resolve(None, None, Some("app"), None).unwrap();
        assert_eq!(
            ids(&by_name),
            (1000, 1000, &[44, 900, 1000][..], "app", "/tmp")
        );
        assert_eq!(resolve(Some(1000), None, None, None).unwrap(), by_name);
        // The number wins over the name.
        assert_eq!(
            resolve(Some(1000), None, Some("root"), None).unwrap(),
            by_name
        );
    }

    #[test]
    fn an_unknown_number_has_no_name_and_group_0() {
        let account = resolve(Some(4242), None, None, None).unwrap();
        assert_eq!(ids(&account), (4242, 0, &[0][..], "", "/"));
    }

    #[test]
    fn a_given_group_is_the_only_one() {
        assert_eq!(
            ids(&resolve(None, Some(5), Some("app"), None).unwrap()).2,
            [5]
        );
        assert_eq!(
            ids(&resolve(None, None, Some("app"), Some("video")).unwrap()).1,
            44
        );
        assert_eq!(
            ids(&resolve(Some(4242), None, None, Some("extra")).unwrap()).2,
            [900]
        );
    }

    #[test]
    fn what_cannot_be_resolved_is_an_error() {
        let error = |got: Result<Account, UserError>| got.unwrap_err().to_string();
        assert_eq!(
            error(resolve(None, None, None, None)),
            "neither uid nor username is set"
        );
        assert_eq!(
            error(resolve(None, None, Some("x"), None)),
            "unknown user x"
        );
        assert_eq!(
            error(resolve(None, None, Some("app"), Some("y"))),
            "unknown group y"
        );
    }

    #[test]
    fn a_home_that_cannot_be_used_becomes_the_root() {
        for (name, home) in [
            ("nobody", "/"),
            ("file", "/"),
            ("rel", "/"),
            ("gone", "/no/such/home"),
        ] {
            assert_eq!(
                resolve(None, None, Some(name), None).unwrap().home,
                Path::new(home),
                "{name}"
            );
        }
    }
}
