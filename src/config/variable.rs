//! A variable, and what can be said of one.

use std::fmt;

/// How a value may be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    Plain,
    /// Never; it may also come from a file, named by `<NAME>_FILE`.
    Secret,
    /// Without what stands before the `@`; it too may come from a file.
    Url,
}

/// One variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub name: &'static str,
    /// Empty: not set.
    pub default: &'static str,
    /// What it does, and why the default is what it is.
    pub meaning: &'static str,
    pub shown: Shown,
}

impl Variable {
    pub const fn plain(name: &'static str, default: &'static str, meaning: &'static str) -> Self {
        Self { name, default, meaning, shown: Shown::Plain }
    }

    pub const fn secret(name: &'static str, meaning: &'static str) -> Self {
        Self { name, default: "", meaning, shown: Shown::Secret }
    }

    pub const fn url(name: &'static str, meaning: &'static str) -> Self {
        Self { name, default: "", meaning, shown: Shown::Url }
    }

    /// Secrets may be mounted as files.
    pub fn has_file_form(&self) -> bool {
        self.shown != Shown::Plain
    }

    pub fn file_name(&self) -> String {
        format!("{}_FILE", self.name)
    }
}

/// A value that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadValue {
    pub name: String,
    /// None where it is a secret, or not set.
    pub value: Option<String>,
    pub rule: String,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value:?} {}", self.name, self.rule),
            None => write!(f, "{} {}", self.name, self.rule),
        }
    }
}

/// A name that begins like ours and is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownName {
    pub name: String,
    pub nearest: Option<&'static str>,
    /// Kubernetes put it there; nobody mistyped anything.
    pub is_service_link: bool,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.nearest {
            _ if self.is_service_link => {
                write!(
                    f,
                    "{name} is ignored: it is a Kubernetes service link (enableServiceLinks: false keeps them out)"
                )
            }
            Some(nearest) => write!(f, "{name} is not a variable of Headcount; did you mean {nearest}?"),
            None => write!(f, "{name} is not a variable of Headcount; `headcount config` lists them"),
        }
    }
}

/// A value in force, as it may be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effective {
    pub name: &'static str,
    pub value: String,
    pub is_default: bool,
}

/// A value as anybody may see it.
pub fn shown(how: Shown, text: &str) -> String {
    match how {
        Shown::Plain => text.to_owned(),
        Shown::Secret if text.is_empty() => String::new(),
        Shown::Secret => "(secret)".to_owned(),
        Shown::Url => match (text.split_once("://"), text.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, place))) => format!("{scheme}://(secret)@{place}"),
            _ => text.to_owned(),
        },
    }
}
