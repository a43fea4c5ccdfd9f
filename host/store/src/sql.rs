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
        out = Cow::Owned(numbered(&out));
    }
    out
}

/// `?N` as `$N`; a question mark without a number is text.
fn numbered(text: &str) -> String {
    let mut letters = text.chars().peekable();
    let mut out = String::with_capacity(text.len());
    while let Some(letter) = letters.next() {
        let is_parameter = letter == '?' && letters.peek().is_some_and(char::is_ascii_digit);
        out.push(if is_parameter { '$' } else { letter });
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
        let question = sql!("SELECT 'why?' WHERE a = ?1");
        assert_eq!(
            question.render(Dialect::Postgres),
            "SELECT 'why?' WHERE a = $1"
        );
    }
}
