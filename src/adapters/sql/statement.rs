//! One statement: its text, with `?` for values, and the values.

use std::fmt::Write;

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Arguments, AssertSqlSafe};

use super::dialect::Dialect;
use super::error::Fault;

/// How many rows or keys one statement carries: SQLite takes 32,766 values at most.
pub(super) const ROWS_MAX: usize = 500;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Value::Int(value)
    }
}

impl From<u16> for Value {
    fn from(value: u16) -> Self {
        Value::Int(Some(value.into()))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Value::Int(Some(value.into()))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(Some(value))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Value::Text(value)
    }
}

/// Databases have no unsigned numbers; ours stay below 2^63, since Lua counts them.
pub(super) fn signed(number: u64) -> Result<i64, Fault> {
    i64::try_from(number)
        .map_err(|_| Fault::Corrupt(format!("{number} is no number of a unit, version or incarnation")))
}

#[derive(Default)]
pub(super) struct Statement {
    text: String,
    values: Vec<Value>,
}

impl Statement {
    /// The text has a `?` for each value.
    pub(super) fn new(text: &str, values: impl IntoIterator<Item = Value>) -> Self {
        Self { text: text.to_owned(), values: values.into_iter().collect() }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn bind(&mut self, text: &str, values: impl IntoIterator<Item = Value>) {
        self.text.push_str(text);
        self.values.extend(values);
    }

    /// `(?, ?, …)`: one row, or the keys of an IN.
    pub(super) fn list(&mut self, values: impl IntoIterator<Item = Value>) {
        let before = self.values.len();
        self.values.extend(values);
        let marks = vec!["?"; self.values.len() - before].join(", ");
        let _ = write!(self.text, "({marks})");
    }

    /// Inserts rows, as many as there are.
    pub(super) fn insert(table: &str, columns: &str, rows: impl IntoIterator<Item = Vec<Value>>) -> Self {
        let mut statement = Self::new(&format!("INSERT INTO {table} ({columns}) VALUES "), []);
        for (index, row) in rows.into_iter().enumerate() {
            statement.push(if index == 0 { "" } else { ", " });
            statement.list(row);
        }
        statement
    }

    /// How many rows it met; those that it found as it would have left them count.
    pub(super) async fn run(self, on: &mut AnyConnection, dialect: Dialect) -> Result<u64, Fault> {
        Ok(self.query(dialect)?.execute(on).await?.rows_affected())
    }

    pub(super) async fn rows(self, on: &mut AnyConnection, dialect: Dialect) -> Result<Vec<AnyRow>, Fault> {
        Ok(self.query(dialect)?.fetch_all(on).await?)
    }

    fn query(self, dialect: Dialect) -> Result<Query<'static, Any, AnyArguments>, Fault> {
        let mut arguments = AnyArguments::default();
        for value in self.values {
            let added = match value {
                Value::Int(value) => arguments.add(value),
                Value::Text(value) => arguments.add(value),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
        let text = dialect.translate(&self.text);
        // Texts are made of constants alone, values are bound. They differ with the number of rows, so a server that kept
        // them prepared would keep very many.
        Ok(sqlx::query_with(AssertSqlSafe(text), arguments).persistent(false))
    }
}
