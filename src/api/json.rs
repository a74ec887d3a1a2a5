//! JSON in, with errors that name the field and the rule.
//!
//! The first pass is plain `serde_json`, borrowing from the body. Only when it fails the body is read a second time, by
//! a slower reader that keeps the path to where it stands, and its sentence is turned into a field and a rule.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;

use super::problem::{Kind, Problem};

/// A string that borrows from the body where it has no escapes.
///
/// Not `Cow<str>`: inside an `Option` or a `Vec` serde reads that as an owned string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// An object inside a body, and nothing but an object: serde's derived structs also take arrays, field by field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<M: MapAccess<'de>>(self, fields: M) -> Result<T, M::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// Reads one JSON object, all of the input.
pub fn object<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    // As for `Object`: nobody who sends an array means a struct.
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes)),
        Some(_) if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() => {
            Err(Problem::field(Kind::InvalidField, "body", "must be a JSON object"))
        }
        Some(_) => Err(explain::<T>(bytes)),
        None => Err(Problem::field(Kind::Malformed, "body", "must be a JSON object, and is empty")),
    }
}

#[cold]
fn explain<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Problem {
    if let Err(error) = std::str::from_utf8(bytes) {
        let rule = format!("must be UTF-8, and is not at byte {}", error.valid_up_to());
        return Problem::field(Kind::Malformed, "body", rule);
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let (path, error) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => (error.path().to_string(), error.into_inner()),
        Ok(_) => match reader.end() {
            Err(error) => (String::new(), error),
            // Read twice with the same rules, it fails twice; were it not so, this is still true.
            Ok(()) => return Problem::field(Kind::Malformed, "body", "must be JSON"),
        },
    };
    match error.classify() {
        Category::Data => rule_of(&path, &error.to_string()),
        Category::Syntax | Category::Eof | Category::Io => {
            Problem::field(Kind::Malformed, "body", format!("must be JSON: {}", short(&error.to_string(), 120)))
        }
    }
}

/// Turns serde's sentence into a field and a rule.
fn rule_of(path: &str, sentence: &str) -> Problem {
    let sentence = sentence.rsplit_once(" at line ").map_or(sentence, |(head, _)| head);
    let path = if path == "." { "" } else { path };
    let quoted = |prefix: &str| sentence.strip_prefix(prefix).and_then(|rest| rest.split_once('`'));
    let within = |name: &str| match path {
        "" => short(name, 64),
        _ if path == name || path.ends_with(&format!(".{name}")) => short(path, 128),
        _ => short(&format!("{path}.{name}"), 128),
    };
    let (field, rule) = if let Some((name, rest)) = quoted("unknown field `") {
        let known = rest.trim_start_matches(", expected ").trim_start_matches("one of ");
        (within(name), format!("is not a known field; known are {known}"))
    } else if let Some((name, _)) = quoted("missing field `") {
        (within(name), "is required".to_owned())
    } else if let Some((name, _)) = quoted("duplicate field `") {
        (within(name), "must be given only once".to_owned())
    } else if let Some((got, expected)) = wrong_kind(sentence) {
        (within_or_body(path), format!("must be {}, not {}", in_words(expected), short(got, 60)))
    } else {
        (within_or_body(path), short(sentence, 120))
    };
    Problem::field(Kind::InvalidField, field, rule)
}

fn wrong_kind(sentence: &str) -> Option<(&str, &str)> {
    sentence
        .strip_prefix("invalid type: ")
        .or_else(|| sentence.strip_prefix("invalid value: "))?
        .rsplit_once(", expected ")
}

fn within_or_body(path: &str) -> String {
    if path.is_empty() { "body".to_owned() } else { short(path, 128) }
}

/// Serde's names of types, as a caller without Rust would say them.
fn in_words(expected: &str) -> &str {
    match expected {
        "u64" | "u32" => "a whole number, 0 or more",
        "i64" => "a whole number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        _ if expected.starts_with("struct ") => "a JSON object",
        other => other,
    }
}

/// What the caller sent is shown back in part only.
fn short(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Sample<'a> {
        #[serde(borrow)]
        user: Text<'a>,
        users: Option<Vec<Text<'a>>>,
        n: Option<u64>,
    }

    #[test]
    fn strings_are_borrowed_unless_escaped() {
        let sample: Sample = object(br#"{"user":"u1","users":["a","b\n"],"n":3}"#).unwrap();
        assert!(matches!(sample.user.0, Cow::Borrowed("u1")));
        let users = sample.users.unwrap();
        assert!(matches!(users[0].0, Cow::Borrowed("a")));
        assert!(matches!(&users[1].0, Cow::Owned(text) if text == "b\n"));
        assert_eq!(sample.n, Some(3));
    }

    #[test]
    fn errors_name_the_field_and_the_rule() {
        let cases: [(&[u8], &str, &str); 15] = [
            (br#"{"user":1}"#, "user", "must be a string, not integer `1`"),
            (br#"{"user":null}"#, "user", "must be a string, not null"),
            (br#"{"user":"a","users":["b",7]}"#, "users[1]", "must be a string, not integer `7`"),
            (br#"{"user":"a","users":"b"}"#, "users", "must be a list, not string \"b\""),
            (br#"{"user":"a","n":-1}"#, "n", "must be a whole number, 0 or more, not integer `-1`"),
            (br#"{"user":"a","n":1.5}"#, "n", "must be a whole number, 0 or more, not floating point `1.5`"),
            (br#"{"user":"a","colour":1}"#, "colour", "is not a known field; known are `user`, `users`, `n`"),
            (br#"{}"#, "user", "is required"),
            (br#"{"user":"a","user":"b"}"#, "user", "must be given only once"),
            (br#"["a"]"#, "body", "must be a JSON object"),
            (br#"{"user":"a"} x"#, "body", "must be JSON: trailing characters at line 1 column 14"),
            (br#"{"user":"a""#, "body", "must be JSON: EOF while parsing an object at line 1 column 11"),
            (br#"user=a"#, "body", "must be JSON: expected value at line 1 column 1"),
            (b"{\"user\":\"\xff\"}", "body", "must be UTF-8, and is not at byte 9"),
            (b" \n", "body", "must be a JSON object, and is empty"),
        ];
        for (body, field, rule) in cases {
            let problem = object::<Sample>(body).unwrap_err();
            let (_, field_is, rule_is) = problem.named();
            assert_eq!((field_is, rule_is), (field, rule), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_long_wrong_name_is_not_sent_back_whole() {
        let body = format!("{{\"user\":\"a\",\"{}\":1}}", "x".repeat(5_000));
        let problem = object::<Sample>(body.as_bytes()).unwrap_err();
        assert!(serde_json::to_string(&problem.into_body()).unwrap().len() < 600);
    }
}
