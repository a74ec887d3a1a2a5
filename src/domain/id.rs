//! Names that come from outside, checked once: whoever holds one need not check it again.
//!
//! An id is bytes with a meaning to its owner only. It is never parsed as a number, trimmed or folded:
//! `1` and `01` are two users.

use std::fmt;
use std::sync::Arc;

/// The longest event or campaign id in bytes: it is part of every key, so it is kept short.
pub const NAME_BYTES_MAX: usize = 128;
/// The longest user id in bytes: enough for a UUID, an e-mail address or an opaque token.
pub const USER_BYTES_MAX: usize = 256;

/// Why a text cannot be an id. The text says the rule, ready for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("must not be empty")]
    Empty,
    #[error("must be at most {max} bytes of UTF-8, got {got}")]
    TooLong { max: usize, got: usize },
    #[error("must not contain control characters")]
    Control,
    #[error("must not contain white space")]
    WhiteSpace,
    #[error("must not be '.' or '..', which proxies take for folders")]
    Dots,
}

/// The name of something whose unique users are counted.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Arc<str>);

/// The name of a limited offer.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CampaignId(Arc<str>);

/// A user as the caller names them; known only until the element is made.
///
/// It deliberately has no `Debug` or `Display` that shows it: user ids do not go into logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserId<'a>(&'a str);

impl EventId {
    /// Checks an event's name.
    pub fn new(text: &str) -> Result<Self, IdError> {
        check_name(text).map(|()| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl CampaignId {
    /// Checks a campaign's name; the rules are those of events.
    pub fn new(text: &str) -> Result<Self, IdError> {
        check_name(text).map(|()| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> UserId<'a> {
    /// Checks a user's id: 1 to 256 bytes of UTF-8 without control characters.
    pub fn new(text: &'a str) -> Result<Self, IdError> {
        check_length(text, USER_BYTES_MAX)?;
        if text.chars().any(char::is_control) {
            return Err(IdError::Control);
        }
        Ok(Self(text))
    }

    pub fn as_str(&self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CampaignId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UserId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("user")
    }
}

fn check_length(text: &str, max: usize) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > max {
        return Err(IdError::TooLong { max, got: text.len() });
    }
    Ok(())
}

fn check_name(text: &str) -> Result<(), IdError> {
    check_length(text, NAME_BYTES_MAX)?;
    if text == "." || text == ".." {
        return Err(IdError::Dots);
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    if text.chars().any(char::is_whitespace) {
        return Err(IdError::WhiteSpace);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        let long = "a".repeat(129);
        let cases = [
            ("", Err(IdError::Empty)),
            (".", Err(IdError::Dots)),
            ("..", Err(IdError::Dots)),
            ("a b", Err(IdError::WhiteSpace)),
            ("a\u{3000}b", Err(IdError::WhiteSpace)),
            ("a\u{1f}b", Err(IdError::Control)),
            ("a\u{7f}b", Err(IdError::Control)),
            (&long, Err(IdError::TooLong { max: 128, got: 129 })),
            ("...", Ok(())),
            ("/images/web/2009/banner.png", Ok(())),
            ("双十一", Ok(())),
        ];
        for (text, expected) in cases {
            assert_eq!(EventId::new(text).map(|_| ()), expected, "{text:?}");
            assert_eq!(CampaignId::new(text).map(|_| ()), expected, "{text:?}");
        }
    }

    #[test]
    fn users_may_contain_spaces_but_no_control_characters() {
        assert!(UserId::new("Ada Lovelace").is_ok());
        assert_eq!(UserId::new("a\nb"), Err(IdError::Control));
        assert_eq!(UserId::new(&"x".repeat(257)), Err(IdError::TooLong { max: 256, got: 257 }));
    }
}
