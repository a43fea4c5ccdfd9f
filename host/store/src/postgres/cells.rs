//! Values on their way to PostgreSQL and back.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::session::refused;
use crate::error::DbError;
use crate::tx::{Cell, Columns, Value};

type Failure = Box<dyn Error + Sync + Send>;

/// The type that a value has where nothing else says so.
pub(super) fn type_of(value: &Value<'_>) -> Type {
    match value {
        Value::Null => Type::UNKNOWN,
        Value::Int(_) => Type::INT8,
        Value::Real(_) => Type::FLOAT8,
        Value::Text(_) => Type::TEXT,
        Value::Blob(_) => Type::BYTEA,
    }
}

/// Written as the database wants it: a constant beside it may have made a smaller integer of it.
impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(it) => match *ty {
                Type::INT2 => i16::try_from(*it)?.to_sql(ty, out),
                Type::INT4 => i32::try_from(*it)?.to_sql(ty, out),
                Type::FLOAT8 => real(*it).to_sql(ty, out),
                _ => it.to_sql(ty, out),
            },
            Self::Real(it) => it.to_sql(ty, out),
            // The one character that PostgreSQL's texts cannot hold.
            Self::Text(it) if it.contains('\0') => it.replace('\0', "\u{fffd}").to_sql(ty, out),
            Self::Text(it) => it.as_ref().to_sql(ty, out),
            Self::Blob(it) => it.as_ref().to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a whole price is far below 2^53"
)]
fn real(it: i64) -> f64 {
    it as f64
}

/// A column as it came.
struct Raw<'a>(Cell<'a>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(Self(match *ty {
            Type::BOOL => Cell::Int(i64::from(bool::from_sql(ty, raw)?)),
            Type::INT2 => Cell::Int(i64::from(i16::from_sql(ty, raw)?)),
            Type::INT4 => Cell::Int(i64::from(i32::from_sql(ty, raw)?)),
            Type::INT8 => Cell::Int(i64::from_sql(ty, raw)?),
            Type::FLOAT4 => Cell::Real(f64::from(f32::from_sql(ty, raw)?)),
            Type::FLOAT8 => Cell::Real(f64::from_sql(ty, raw)?),
            Type::TEXT | Type::VARCHAR | Type::NAME | Type::UNKNOWN => {
                Cell::Text(std::str::from_utf8(raw)?)
            }
            Type::BYTEA => Cell::Blob(raw),
            ref other => return Err(format!("a column of type {other} is not known here").into()),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Failure> {
        Ok(Self(Cell::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Columns for Row {
    fn cell(&self, index: usize) -> Result<Cell<'_>, DbError> {
        let raw: Raw<'_> = self.try_get(index).map_err(|error| refused(&error))?;
        Ok(raw.0)
    }

    fn name(&self, index: usize) -> String {
        self.columns()
            .get(index)
            .map_or_else(|| format!("#{index}"), |it| it.name().to_owned())
    }
}
