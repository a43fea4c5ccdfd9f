//! SQL texts: one for both databases, with named holes where they differ.

use std::borrow::Cow;

/// Which database executes a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The embedded file.
    Sqlite,
    /// A server shared by several replicas.
    Postgres,
}

/// A statement in the common dialect: parameters are `?1`, `?2`, …, differences are `{holes}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sql(&'static str);

/// The holes and what fills them: (name, SQLite, PostgreSQL).
const HOLES: &[(&str, &str, &str)] = &[("{skip_locked}", "", "FOR UPDATE SKIP LOCKED")];

impl Sql {
    /// Wraps a text; use [`sql!`](crate::sql!) in constants.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self(text)
    }

    /// The text as written, holes included.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.0
    }

    /// The text for one database.
    #[must_use]
    pub fn render(self, dialect: Dialect) -> Cow<'static, str> {
        render(self.0, dialect)
    }
}

/// Fills the holes and, for PostgreSQL, writes `?N` as `$N`.
pub(crate) fn render(text: &str, dialect: Dialect) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    for (name, sqlite, postgres) in HOLES {
        if out.contains(name) {
            out = Cow::Owned(out.replace(
                name,
                if dialect == Dialect::Sqlite {
                    sqlite
                } else {
                    postgres
                },
            ));
        }
    }
    if dialect == Dialect::Postgres {
        // No statement of ours has a question mark inside a literal; a test of all constants keeps it so.
        out = Cow::Owned(out.replace('?', "$"));
    }
    out
}

/// A constant statement: `const GET: Sql = sql!("SELECT … WHERE id = ?1");`; several literals are joined.
#[macro_export]
macro_rules! sql {
    ($($text:expr),+ $(,)?) => { $crate::Sql::new(concat!($($text),+)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_parameters_follow_the_database() {
        let claim = sql!("SELECT id FROM jobs WHERE a = ?1 AND b = ?12 LIMIT ?2 {skip_locked}");
        assert_eq!(
            claim.render(Dialect::Sqlite),
            "SELECT id FROM jobs WHERE a = ?1 AND b = ?12 LIMIT ?2 "
        );
        assert_eq!(
            claim.render(Dialect::Postgres),
            "SELECT id FROM jobs WHERE a = $1 AND b = $12 LIMIT $2 FOR UPDATE SKIP LOCKED"
        );
    }
}
