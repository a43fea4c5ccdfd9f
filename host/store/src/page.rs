//! Paging by a time and an id, the way all lists of the API do it.
//!
//! Newest first means time descending and id *ascending*; oldest first reverses both. The cursor is the last row of
//! the previous page.

use jiff::Timestamp;
use uuid::Uuid;

use crate::tx::Query;

/// Which part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Time of the last row of the previous page.
    pub prev_at: Option<Timestamp>,
    /// Its id; without one, rows of exactly that time are skipped.
    pub prev_id: Option<Uuid>,
    /// At most this many rows.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            prev_at: None,
            prev_id: None,
            limit: 100,
            ascending: false,
        }
    }
}

impl Page {
    /// Appends the cursor's condition, the order and the limit to a query that has a WHERE already.
    pub(crate) fn append(&self, query: &mut Query<'_>, time: &str, id: &str) {
        let (before, after) = if self.ascending {
            (" > ", " < ")
        } else {
            (" < ", " > ")
        };
        match (self.prev_at, self.prev_id) {
            (Some(at), Some(prev)) => {
                // The first bound lets the index start at the cursor; the bracket then drops what was shown.
                let edge = if self.ascending { " >= " } else { " <= " };
                query.text(" AND ").text(time).text(edge).bind(at);
                query.text(" AND (").text(time).text(before).bind(at);
                query.text(" OR ").text(id).text(after).bind(prev).text(")");
            }
            (Some(at), None) => {
                query.text(" AND ").text(time).text(before).bind(at);
            }
            (None, _) => {}
        }
        let (by_time, by_id) = if self.ascending {
            (" ASC, ", " DESC")
        } else {
            (" DESC, ", " ASC")
        };
        query
            .text(" ORDER BY ")
            .text(time)
            .text(by_time)
            .text(id)
            .text(by_id)
            .text(" LIMIT ")
            .bind(self.limit);
    }

    /// Puts pages of several sources into one.
    pub(crate) fn merge<T>(&self, rows: &mut Vec<T>, key: impl Fn(&T) -> (Timestamp, Uuid)) {
        rows.sort_by(|a, b| {
            let ((a_at, a_id), (b_at, b_id)) = (key(a), key(b));
            let newest_first = b_at.cmp(&a_at).then(a_id.cmp(&b_id));
            if self.ascending {
                newest_first.reverse()
            } else {
                newest_first
            }
        });
        rows.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
    }
}
