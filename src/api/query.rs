//! Query parameters: each known, each at most once, all UTF-8.

use std::borrow::Cow;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use super::error::not_in_this_version;
use super::problem::{Kind, Problem};

/// What a call takes from the query.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    pub names: &'static [&'static str],
    /// Words of a later version.
    pub later: &'static [&'static str],
}

/// The parameters of one request, decoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Reads a query as forms are written: `&` between, `+` for a space, percent-encoded. `also`: one more known name.
    pub fn parse(uri: &Uri, known: Known, also: Option<&'static str>) -> Result<Self, Problem> {
        let Some(query) = uri.query() else { return Ok(Self::default()) };
        let mut found = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name, "query")?;
            let Some(known_name) = known.names.iter().copied().chain(also).find(|known| *known == name) else {
                return Err(unknown(&name, known, also));
            };
            if found.iter().any(|(earlier, _)| *earlier == known_name) {
                return Err(Problem::field(Kind::InvalidField, known_name, "must be given only once"));
            }
            found.push((known_name, decode(value, known_name)?.into_owned()));
        }
        Ok(Self(found))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    pub fn required(&self, name: &'static str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| Problem::field(Kind::InvalidField, name, "is required in the query"))
    }
}

/// Percent-decodes a part of a query.
fn decode<'a>(text: &'a str, field: &'static str) -> Result<Cow<'a, str>, Problem> {
    if !text.contains(['+', '%']) {
        return Ok(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(decoded) => Ok(Cow::Owned(decoded.into_owned())),
        Err(_) => Err(Problem::field(Kind::Malformed, field, "must be UTF-8 when percent-decoded")),
    }
}

fn unknown(name: &str, known: Known, also: Option<&'static str>) -> Problem {
    if let Some(later) = known.later.iter().find(|later| **later == name) {
        return not_in_this_version(*later, "this version counts all users of an event, by day");
    }
    let names: Vec<&str> = known.names.iter().copied().chain(also).collect();
    let rule = match names.as_slice() {
        [] => "is not a known parameter; this call takes none".to_owned(),
        names => format!("is not a known parameter; known are {}", names.join(", ")),
    };
    let shown: String = name.chars().take(64).collect();
    Problem::field(Kind::InvalidField, shown, rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known { names: &["date", "period"], later: &["dim"] };

    fn parse(query: &str) -> Result<Query, Problem> {
        Query::parse(&format!("/v1/count?{query}").parse().unwrap(), KNOWN, Some("event"))
    }

    #[test]
    fn values_are_decoded_as_forms_are() {
        let query = parse("event=%2Fa%2fb%2B%E5%8F%8C&date=2015-05-17&period=").unwrap();
        assert_eq!(query.get("event"), Some("/a/b+双"));
        assert_eq!(query.get("date"), Some("2015-05-17"));
        assert_eq!(query.get("period"), Some(""));
        assert_eq!(parse("event=a+b").unwrap().get("event"), Some("a b"));
        assert_eq!(parse("event=/a/b").unwrap().get("event"), Some("/a/b"));
    }

    #[test]
    fn unknown_later_repeated_and_unreadable_parameters_are_refused() {
        let cases = [
            ("colour=red", "/problems/invalid-field", "colour"),
            ("dim=geo:Zhejiang", "/problems/not-in-this-version", "dim"),
            ("date=1&date=2", "/problems/invalid-field", "date"),
            ("event=%ff", "/problems/malformed", "event"),
            ("%ff=1", "/problems/malformed", "query"),
        ];
        for (query, kind, field) in cases {
            let problem = parse(query).unwrap_err();
            let (kind_is, field_is, _) = problem.named();
            assert_eq!((kind_is, field_is), (kind, field), "{query}");
        }
    }
}
