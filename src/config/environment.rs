//! The environment as a map, so that tests bring their own; and names in it that nobody knows.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::variable::{UnknownName, Variable};

/// Names and values. Values that are not UTF-8 are kept apart, to be reported.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, Result<String, OsString>>);

/// How much of a name must agree for it to be suggested: `HEADCOUNT_SHARD` has 0.99, another word 0.8.
const LIKENESS_MIN: f64 = 0.9;

impl Environment {
    /// This process's.
    pub fn of_process() -> Self {
        let values = std::env::vars_os();
        Self(values.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string()))).collect())
    }

    pub fn of<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), Ok(value.into()))).collect())
    }

    /// The value, None where it is not set or empty: manifests often leave empty what they do not need.
    pub fn get(&self, name: &str) -> Option<Result<&str, ()>> {
        match self.0.get(name)? {
            Ok(value) if value.is_empty() => None,
            Ok(value) => Some(Ok(value)),
            Err(_) => Some(Err(())),
        }
    }

    /// Names with our prefix that are no variable of ours.
    pub fn unknown(&self, prefix: &str, variables: &[Variable]) -> Vec<UnknownName> {
        let is_known = |name: &str| {
            variables.iter().any(|known| known.name == name || (known.has_file_form() && name == known.file_name()))
        };
        let ours = self.0.iter().filter(|(name, _)| name.starts_with(prefix) && !is_known(name));
        ours.map(|(name, value)| UnknownName {
            name: name.clone(),
            nearest: nearest(name, variables),
            is_service_link: is_service_link(name, value.as_deref().unwrap_or("")),
        })
        .collect()
    }
}

fn nearest(name: &str, variables: &[Variable]) -> Option<&'static str> {
    let likeness = |known: &Variable| (strsim::jaro_winkler(name, known.name), known.name);
    let best = variables.iter().map(likeness).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= LIKENESS_MIN).then_some(best.1)
}

/// Whether Kubernetes put it there for a Service whose name begins with `headcount`: `HEADCOUNT_SERVICE_HOST`,
/// `HEADCOUNT_SERVICE_PORT_HTTP`, `HEADCOUNT_PORT`, `HEADCOUNT_PORT_8080_TCP_ADDR`.
fn is_service_link(name: &str, value: &str) -> bool {
    let after = |mark: &str| name.rfind(mark).map(|at| &name[at + mark.len()..]);
    let is_port = after("_PORT").is_some_and(|rest| {
        let mut words = rest.trim_start_matches('_').split('_');
        match (words.next(), words.next()) {
            (Some(""), None) => value.contains("://"),
            (Some(port), Some("TCP" | "UDP" | "SCTP")) => port.bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        }
    });
    let is_protocol_part = ["_TCP_PORT", "_UDP_PORT", "_SCTP_PORT"].iter().any(|end| name.ends_with(end));
    is_port || is_protocol_part || name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT")
}
