//! One transaction, whatever the database: parameters, rows, and the helpers every table file uses.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::{Dialect, Sql};

/// A parameter of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// Integers, booleans (0, 1) and times (microseconds since 1970, UTC).
    Int(i64),
    /// Floating point.
    Real(f64),
    /// Text, ids and JSON.
    Text(Cow<'a, str>),
    /// Bytes.
    Blob(Cow<'a, [u8]>),
}

macro_rules! value_from {
    ($($type:ty => |$it:ident| $to:expr),+ $(,)?) => { $(
        impl<'a> From<$type> for Value<'a> { fn from($it: $type) -> Self { $to } }
    )+ };
}
value_from! {
    i64 => |it| Value::Int(it),
    i32 => |it| Value::Int(i64::from(it)),
    u32 => |it| Value::Int(i64::from(it)),
    u16 => |it| Value::Int(i64::from(it)),
    bool => |it| Value::Int(i64::from(it)),
    f64 => |it| Value::Real(it),
    String => |it| Value::Text(Cow::Owned(it)),
    &'a String => |it| Value::Text(Cow::Borrowed(it.as_str())),
    &'a str => |it| Value::Text(Cow::Borrowed(it)),
    Vec<u8> => |it| Value::Blob(Cow::Owned(it)),
    &'a [u8] => |it| Value::Blob(Cow::Borrowed(it)),
    &'a Vec<u8> => |it| Value::Blob(Cow::Borrowed(it.as_slice())),
    Uuid => |it| Value::Text(Cow::Owned(it.hyphenated().to_string())),
    &Uuid => |it| Value::Text(Cow::Owned(it.hyphenated().to_string())),
    Timestamp => |it| Value::Int(it.as_microsecond()),
}
impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(it: Option<T>) -> Self {
        it.map_or(Value::Null, Into::into)
    }
}

impl Value<'_> {
    /// The same value without borrows.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Int(it) => Value::Int(it),
            Value::Real(it) => Value::Real(it),
            Value::Text(it) => Value::Text(Cow::Owned(it.into_owned())),
            Value::Blob(it) => Value::Blob(Cow::Owned(it.into_owned())),
        }
    }
}

/// The parameters of a statement: `params![id, name]`.
#[macro_export]
macro_rules! params {
    ($($it:expr),* $(,)?) => { &[$($crate::Value::from($it)),*] as &[$crate::Value<'_>] };
}

/// A stored value as the driver hands it over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// SQL NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A floating point number.
    Real(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
}

/// What a driver implements for one result row.
pub trait Columns {
    /// The value of column `index`, counted from 0.
    fn cell(&self, index: usize) -> Result<Cell<'_>, DbError>;
    /// The name of column `index`, for error messages.
    fn name(&self, index: usize) -> String;
}

/// A result row, read column by column in the order of the SELECT list.
pub struct Row<'a> {
    columns: &'a dyn Columns,
    at: usize,
}

impl<'a> Row<'a> {
    pub(crate) fn new(columns: &'a dyn Columns) -> Self {
        Self { columns, at: 0 }
    }

    /// Reads the next column.
    pub fn take<T: FromCell>(&mut self) -> Result<T, DbError> {
        let index = self.at;
        self.at += 1;
        let cell = self.columns.cell(index)?;
        T::from_cell(cell).map_err(|reason| DbError::Column {
            column: self.columns.name(index),
            reason,
        })
    }

    /// Reads the next column as JSON.
    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T, DbError> {
        self.take::<Json<T>>().map(|it| it.0)
    }

    /// Reads the next column as JSON, or `None` when it is NULL.
    pub fn json_opt<T: DeserializeOwned>(&mut self) -> Result<Option<T>, DbError> {
        Ok(self.take::<Option<Json<T>>>()?.map(|it| it.0))
    }
}

/// A type that a column can hold.
pub trait FromCell: Sized {
    /// Converts, or says what is wrong without repeating the value.
    fn from_cell(cell: Cell<'_>) -> Result<Self, String>;
}

fn kind(cell: Cell<'_>) -> &'static str {
    match cell {
        Cell::Null => "NULL",
        Cell::Int(_) => "an integer",
        Cell::Real(_) => "a float",
        Cell::Text(_) => "text",
        Cell::Blob(_) => "bytes",
    }
}

impl FromCell for i64 {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Int(it) => Ok(it),
            other => Err(format!("expected an integer, found {}", kind(other))),
        }
    }
}
macro_rules! narrow_from_cell {
    ($($type:ty),+) => { $(
        impl FromCell for $type {
            fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
                let it = i64::from_cell(cell)?;
                Self::try_from(it).map_err(|_| format!("the number {it} is out of range"))
            }
        }
    )+ };
}
narrow_from_cell!(i32, u16, u32, u64, usize);

impl FromCell for bool {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        i64::from_cell(cell).map(|it| it != 0)
    }
}
impl FromCell for f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a price stored as a whole number is far below 2^53"
    )]
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Real(it) => Ok(it),
            Cell::Int(it) => Ok(it as Self),
            other => Err(format!("expected a number, found {}", kind(other))),
        }
    }
}
fn text(cell: Cell<'_>) -> Result<&str, String> {
    match cell {
        Cell::Text(it) => Ok(it),
        other => Err(format!("expected text, found {}", kind(other))),
    }
}
impl FromCell for String {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        text(cell).map(str::to_owned)
    }
}
impl FromCell for Vec<u8> {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Blob(it) => Ok(it.to_vec()),
            other => Err(format!("expected bytes, found {}", kind(other))),
        }
    }
}
impl FromCell for Uuid {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        Self::try_parse(text(cell)?).map_err(|error| error.to_string())
    }
}
impl FromCell for Timestamp {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        Self::from_microsecond(i64::from_cell(cell)?).map_err(|error| error.to_string())
    }
}
impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Null => Ok(None),
            other => T::from_cell(other).map(Some),
        }
    }
}

/// A column that holds JSON text.
#[derive(Debug, Clone, PartialEq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromCell for Json<T> {
    fn from_cell(cell: Cell<'_>) -> Result<Self, String> {
        serde_json::from_str(text(cell)?)
            .map(Json)
            .map_err(|error| error.to_string())
    }
}

/// JSON text for a parameter.
pub(crate) fn json<T: Serialize + ?Sized>(what: &'static str, it: &T) -> Result<String, DbError> {
    serde_json::to_string(it).map_err(|error| DbError::Encode {
        what,
        reason: error.to_string(),
    })
}

/// JSON text for a nullable parameter.
pub(crate) fn json_opt<T: Serialize>(
    what: &'static str,
    it: Option<&T>,
) -> Result<Option<String>, DbError> {
    it.map(|it| json(what, it)).transpose()
}

/// One transaction. Table functions take `&mut dyn Tx` and never begin or end one.
///
/// After a statement has failed, the transaction is over: PostgreSQL undoes all of it. What may fail and be lived with runs in
/// [`attempt`](#method.attempt).
pub trait Tx {
    /// Which database is behind.
    fn dialect(&self) -> Dialect;
    /// Whether events are written down.
    fn keeps_events(&self) -> bool;
    /// Runs a statement and hands over each result row.
    fn query(
        &mut self,
        text: &str,
        params: &[Value<'_>],
        each: &mut dyn FnMut(Row<'_>) -> Result<(), DbError>,
    ) -> Result<(), DbError>;
    /// Begins a part that can be undone by itself. Use [`attempt`](#method.attempt).
    fn begin_part(&mut self) -> Result<(), DbError>;
    /// Ends the part that was begun last, with or without what it has changed.
    fn end_part(&mut self, keeps: bool) -> Result<(), DbError>;
    /// Runs a statement without results; answers how many rows it changed.
    fn change(&mut self, text: &str, params: &[Value<'_>]) -> Result<u64, DbError>;
}

impl dyn Tx + '_ {
    /// Runs a part of the transaction that may fail: then it alone is undone, and the transaction goes on.
    pub fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Tx) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        self.begin_part()?;
        let result = work(self);
        self.end_part(result.is_ok())?;
        result
    }

    /// All rows, converted.
    pub fn all<T>(
        &mut self,
        sql: Sql,
        params: &[Value<'_>],
        mut from_row: impl FnMut(Row<'_>) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        let text = sql.render(self.dialect());
        let mut out = Vec::new();
        self.query(&text, params, &mut |row| {
            out.push(from_row(row)?);
            Ok(())
        })?;
        Ok(out)
    }

    /// The first row, if there is one. Statements that may have many rows carry `LIMIT 1`.
    pub fn first<T>(
        &mut self,
        sql: Sql,
        params: &[Value<'_>],
        mut from_row: impl FnMut(Row<'_>) -> Result<T, DbError>,
    ) -> Result<Option<T>, DbError> {
        let text = sql.render(self.dialect());
        let mut out = None;
        self.query(&text, params, &mut |row| {
            if out.is_none() {
                out = Some(from_row(row)?);
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// Runs a change; answers how many rows it touched.
    pub fn exec(&mut self, sql: Sql, params: &[Value<'_>]) -> Result<u64, DbError> {
        let text = sql.render(self.dialect());
        self.change(&text, params)
    }

    /// All rows of a statement put together at run time.
    pub fn all_of<T>(
        &mut self,
        query: &Query<'_>,
        mut from_row: impl FnMut(Row<'_>) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        let text = crate::sql::render(&query.text, self.dialect());
        let mut out = Vec::new();
        self.query(&text, &query.params, &mut |row| {
            out.push(from_row(row)?);
            Ok(())
        })?;
        Ok(out)
    }

    /// Runs a change put together at run time.
    pub fn exec_of(&mut self, query: &Query<'_>) -> Result<u64, DbError> {
        let text = crate::sql::render(&query.text, self.dialect());
        self.change(&text, &query.params)
    }
}

/// A statement whose conditions depend on the request, so that each shape can use its own index.
///
/// Only constant texts are appended; everything from outside is a parameter.
#[derive(Debug, Default)]
pub struct Query<'a> {
    text: String,
    params: Vec<Value<'a>>,
}

impl<'a> Query<'a> {
    /// Starts with a constant text without parameters.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            params: Vec::new(),
        }
    }

    /// Appends a constant text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a parameter.
    pub fn bind(&mut self, value: impl Into<Value<'a>>) -> &mut Self {
        self.params.push(value.into());
        self.text.push('?');
        self.text.push_str(&self.params.len().to_string());
        self
    }

    /// Appends `(?7, ?8, …)`; an empty list becomes `(NULL)`, which matches nothing.
    pub fn bind_list<V: Into<Value<'a>>>(
        &mut self,
        values: impl IntoIterator<Item = V>,
    ) -> &mut Self {
        self.text.push('(');
        let before = self.params.len();
        for value in values {
            if self.params.len() > before {
                self.text.push_str(", ");
            }
            self.bind(value);
        }
        if self.params.len() == before {
            self.text.push_str("NULL");
        }
        self.text.push(')');
        self
    }

    /// The text so far, for tests of query plans.
    #[must_use]
    pub fn as_text(&self) -> &str {
        &self.text
    }
}
