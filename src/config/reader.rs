//! Reads values against a table of variables, and collects all that is wrong before anything is said.

use super::environment::Environment;
use super::variable::{BadValue, Effective, Shown, Variable, shown};

/// Reads values one by one.
pub struct Reader<'e> {
    environment: &'e Environment,
    variables: &'static [Variable],
    bad: Vec<BadValue>,
}

impl<'e> Reader<'e> {
    pub fn new(environment: &'e Environment, variables: &'static [Variable]) -> Self {
        Self { environment, variables, bad: Vec::new() }
    }

    /// The value of a variable that has a default. A bad one is noted, and the default stands in for it, so that
    /// reading goes on.
    pub fn value<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let default = self.variable(name).default;
        self.optional(name, &parse).unwrap_or_else(|| match parse(default) {
            Ok(value) => value,
            // A test parses every default of the table.
            Err(rule) => unreachable!("the default of {name} {rule}"),
        })
    }

    /// The value of a variable without a default; None where it is not set, or bad and noted.
    pub fn optional<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let variable = self.variable(name);
        let text = match self.text(&variable) {
            Ok(text) => text?,
            Err(rule) => {
                self.bad.push(BadValue { name: name.to_owned(), value: None, rule });
                return None;
            }
        };
        parse(&text).map_err(|rule| self.note(&variable, &text, rule)).ok()
    }

    /// Notes what is wrong with a value only in the company of others.
    pub fn reject(&mut self, name: &'static str, rule: impl Into<String>) {
        let variable = self.variable(name);
        let text = self.text(&variable).ok().flatten().unwrap_or_default();
        self.note(&variable, &text, rule.into());
    }

    pub fn is_given(&self, name: &'static str) -> bool {
        !matches!(self.text(&self.variable(name)), Ok(None))
    }

    pub fn is_bad(&self, name: &str) -> bool {
        self.bad.iter().any(|bad| bad.name == name)
    }

    /// All values in force, as they may be shown.
    pub fn effective(&self) -> Vec<Effective> {
        let line = |variable: &Variable| {
            let given = self.text(variable).ok().flatten();
            let value = shown(variable.shown, given.as_deref().unwrap_or(variable.default));
            Effective { name: variable.name, value, is_default: given.is_none() }
        };
        self.variables.iter().map(line).collect()
    }

    pub fn finish(self) -> Result<(), Vec<BadValue>> {
        if self.bad.is_empty() { Ok(()) } else { Err(self.bad) }
    }

    fn variable(&self, name: &'static str) -> Variable {
        match self.variables.iter().find(|variable| variable.name == name) {
            Some(variable) => *variable,
            // `load` reads every name on each start, so that a wrong one does not outlive the first test.
            None => unreachable!("{name} is not in the table"),
        }
    }

    /// What was given, from the variable or the file that it names.
    fn text(&self, variable: &Variable) -> Result<Option<String>, String> {
        let direct = match self.environment.get(variable.name) {
            Some(Ok(text)) => Some(text.trim().to_owned()),
            Some(Err(())) => return Err("must be UTF-8".into()),
            None => None,
        };
        if !variable.has_file_form() {
            return Ok(direct);
        }
        let file_name = variable.file_name();
        match (direct, self.environment.get(&file_name)) {
            (direct, None) => Ok(direct),
            (None, Some(Ok(path))) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(Some(text.trim().to_owned())),
                Err(error) => Err(format!("cannot be read from {file_name}={path:?}: {error}")),
            },
            (Some(_), Some(_)) => Err(format!("must not be set beside {file_name}")),
            (None, Some(Err(()))) => Err(format!("cannot be read: {file_name} must be UTF-8")),
        }
    }

    fn note(&mut self, variable: &Variable, text: &str, rule: String) {
        let value = (variable.shown == Shown::Plain && !text.is_empty()).then(|| text.to_owned());
        self.bad.push(BadValue { name: variable.name.to_owned(), value, rule });
    }
}
