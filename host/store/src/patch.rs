//! UPDATE statements that name only the columns that change.

use crate::error::DbError;
use crate::tx::{Query, Tx, Value};

/// An UPDATE under construction.
pub(crate) struct Patch<'a> {
    query: Query<'a>,
    sets: u32,
}

impl<'a> Patch<'a> {
    pub(crate) fn of(table: &str) -> Self {
        let mut query = Query::new("UPDATE ");
        query.text(table).text(" SET ");
        Self { query, sets: 0 }
    }

    fn column(&mut self, column: &str) -> &mut Query<'a> {
        if self.sets > 0 {
            self.query.text(", ");
        }
        self.sets += 1;
        self.query.text(column).text(" = ")
    }

    /// Sets a column when there is a new value.
    pub(crate) fn set(&mut self, column: &str, value: Option<impl Into<Value<'a>>>) {
        if let Some(value) = value {
            self.column(column).bind(value);
        }
    }

    /// Adds to a counter that never falls below zero.
    pub(crate) fn add(&mut self, column: &str, delta: i32) {
        if delta != 0 {
            self.column(column)
                .text("CASE WHEN ")
                .text(column)
                .text(" + ")
                .bind(delta)
                .text(" < 0 THEN 0 ELSE ");
            self.query.text(column).text(" + ").bind(delta).text(" END");
        }
    }

    /// Runs it on one row, unless nothing changes; answers how many rows it touched.
    pub(crate) fn run(mut self, tx: &mut dyn Tx, id: impl Into<Value<'a>>) -> Result<u64, DbError> {
        if self.sets == 0 {
            return Ok(0);
        }
        self.query.text(" WHERE id = ").bind(id);
        tx.exec_of(&self.query)
    }
}
