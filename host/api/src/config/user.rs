//! The Unix user of a job.

use crate::jobs::UnixUser;

/// Why a text is no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a user; write `user` or `user:group`, each a name or a number")]
pub struct BadUser(pub String);

impl UnixUser {
    /// Reads `user[:group]`.
    ///
    /// # Errors
    /// [`BadUser`] if a part is empty or negative, or there are more than two.
    pub fn parse(text: &str) -> Result<Self, BadUser> {
        let bad = || BadUser(text.to_owned());
        let part = |part: &str| match part.parse::<i64>() {
            Ok(number) => Ok((Some(u32::try_from(number).map_err(|_| bad())?), None)),
            Err(_) if part.is_empty() => Err(bad()),
            Err(_) => Ok((None, Some(part.to_owned()))),
        };
        let (user, group) = match text.split_once(':') {
            Some((_, group)) if group.contains(':') => return Err(bad()),
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let (uid, username) = part(user)?;
        let (gid, groupname) = group.map(part).transpose()?.unwrap_or_default();
        Ok(Self {
            uid,
            gid,
            username,
            groupname,
        })
    }
}
