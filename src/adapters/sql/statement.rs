//! One statement: its text, with `?` for values, and the values.

use std::fmt::Write;

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Arguments, AssertSqlSafe};

use super::dialect::Dialect;
use super::error::Fault;

/// How many rows or keys one statement carries: SQLite takes 32,766 values at most.
pub(super) const ROWS_MAX: usize = 512;

/// The lengths of lists, so that there are few texts: databases keep statements prepared by their text, and MySQL's client
/// library pays 40 ms for each that it forgets (it sends two packets without TCP_NODELAY).
const LENGTHS: [usize; 6] = [1, 4, 16, 64, 256, ROWS_MAX];

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

    /// `(?, ?, …)`: the keys of an IN, at least one and at most `ROWS_MAX`. The last one may stand there several times.
    pub(super) fn keys(&mut self, keys: impl IntoIterator<Item = Value>) {
        let mut keys: Vec<Value> = keys.into_iter().collect();
        fill_up(&mut keys);
        self.list(keys);
    }

    /// `(?, ?, …)`: one row.
    fn list(&mut self, values: impl IntoIterator<Item = Value>) {
        let before = self.values.len();
        self.values.extend(values);
        let marks = vec!["?"; self.values.len() - before].join(", ");
        let _ = write!(self.text, "({marks})");
    }

    /// Inserts rows, in as many statements as it takes.
    pub(super) fn inserts(table: &str, columns: &str, rows: Vec<Vec<Value>>) -> Vec<Self> {
        let mut rows = rows.into_iter();
        let mut statements = Vec::new();
        while let Some(length) = LENGTHS.into_iter().rev().find(|length| *length <= rows.len()) {
            let mut statement = Self::new(&format!("INSERT INTO {table} ({columns}) VALUES "), []);
            for (index, row) in rows.by_ref().take(length).enumerate() {
                statement.push(if index == 0 { "" } else { ", " });
                statement.list(row);
            }
            statements.push(statement);
        }
        statements
    }

    pub(super) fn insert(table: &str, columns: &str, row: Vec<Value>) -> Self {
        let mut statement = Self::new(&format!("INSERT INTO {table} ({columns}) VALUES "), []);
        statement.list(row);
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
        // Safe: texts are made of constants alone, and values are bound.
        Ok(sqlx::query_with(AssertSqlSafe(text), arguments))
    }
}

/// Repeats the last one up to the next of `LENGTHS`.
pub(super) fn fill_up<T: Clone>(list: &mut Vec<T>) {
    let length = LENGTHS.into_iter().find(|length| *length >= list.len()).unwrap_or(list.len());
    if let Some(last) = list.last().cloned() {
        list.resize(length, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_few_lengths() {
        let keys = |count: i64| {
            let mut statement = Statement::new("IN ", []);
            statement.keys((1..=count).map(Value::from));
            assert_eq!(statement.text.matches('?').count(), statement.values.len());
            statement.values
        };
        assert_eq!(keys(1), [Value::from(1i64)]);
        assert_eq!(keys(3), [1i64, 2, 3, 3].map(Value::from));
        assert_eq!((keys(5).len(), keys(257).len(), keys(512).len()), (16, 512, 512));
        let rows: Vec<Vec<Value>> = (0..341i64).map(|row| vec![row.into(), "x".into()]).collect();
        let statements = Statement::inserts("t", "a, b", rows.clone());
        let lengths: Vec<usize> = statements.iter().map(|statement| statement.values.len() / 2).collect();
        assert_eq!(lengths, [256, 64, 16, 4, 1]);
        let values: Vec<Value> = statements.into_iter().flat_map(|statement| statement.values).collect();
        assert_eq!(values, rows.concat());
        assert!(Statement::inserts("t", "a", vec![]).is_empty());
    }

    #[test]
    fn numbers_beyond_those_of_databases_are_told() {
        assert_eq!(signed(7), Ok(7));
        assert!(matches!(signed(u64::MAX), Err(Fault::Corrupt(_))));
    }
}
