//! What goes to a Redis server and what comes back, in words of our own: nothing above `node.rs` knows the client.

use bytes::Bytes;

use super::scripts::Script;
use crate::store::error::StoreError;

/// One command.
#[derive(Clone, Debug)]
pub struct Command {
    pub name: &'static str,
    pub arguments: Vec<Bytes>,
    /// The script behind an EVALSHA, for a server that does not know it yet.
    pub script: Option<&'static Script>,
}

impl Command {
    pub fn new(name: &'static str) -> Self {
        Self { name, arguments: Vec::new(), script: None }
    }

    #[must_use]
    pub fn arg(mut self, argument: impl Into<Bytes>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    #[must_use]
    pub fn number(self, argument: impl std::fmt::Display) -> Self {
        self.arg(argument.to_string())
    }
}

/// A server's answer. RESP2 has texts and bytes apart only by framing, so both are bytes here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// There is no such key or field: not the same as an empty value.
    Nil,
    Number(i64),
    Bytes(Bytes),
    List(Vec<Reply>),
}

impl Reply {
    pub fn into_bytes(self) -> Result<Option<Bytes>, StoreError> {
        match self {
            Reply::Nil => Ok(None),
            Reply::Bytes(bytes) => Ok(Some(bytes)),
            other => Err(unexpected("bytes", &other)),
        }
    }

    pub fn into_text(self) -> Option<String> {
        match self {
            Reply::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            _ => None,
        }
    }

    /// A number, also one in digits: hash fields and script replies come as text.
    pub fn number(&self) -> Result<i64, StoreError> {
        match self {
            Reply::Number(number) => Ok(*number),
            Reply::Bytes(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| unexpected("a number", self)),
            _ => Err(unexpected("a number", self)),
        }
    }

    pub fn unsigned(&self) -> Result<u64, StoreError> {
        u64::try_from(self.number()?).map_err(|_| unexpected("a number from 0 up", self))
    }

    pub fn into_list(self) -> Result<Vec<Reply>, StoreError> {
        match self {
            Reply::List(items) => Ok(items),
            other => Err(unexpected("a list", &other)),
        }
    }

    /// A list of exactly so many items.
    pub fn into_array<const N: usize>(self) -> Result<[Reply; N], StoreError> {
        self.into_list()?.try_into().map_err(|items| unexpected("another length of list", &Reply::List(items)))
    }
}

fn unexpected(wanted: &str, got: &Reply) -> StoreError {
    let shape = match got {
        Reply::Nil => "nothing".to_string(),
        Reply::Number(number) => format!("the number {number}"),
        Reply::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Reply::List(items) => format!("a list of {}", items.len()),
    };
    StoreError::Corrupt(format!("expected {wanted}, got {shape}"))
}

/// A line `name:value` of INFO.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Where a server sends a client on to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub slot: u16,
    /// Empty: the host that answered.
    pub host: String,
    pub port: u16,
}

/// Why a command has no answer.
///
/// The command certainly **did not run** with every kind but `Ambiguous`, `TimedOut`, `ClusterDown` (fred gives
/// all commands under way on a connection the CLUSTERDOWN that one of them got) and the kinds of failure in the middle of a script
/// (`Corrupt`, `WrongType`, `Refused`), where what the script did before stays done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeError {
    Moved(Redirect),
    Ask(Redirect),
    /// Some keys of a command are already moved, some not.
    TryAgain,
    ClusterDown(String),
    /// The server cannot now: it is loading, was demoted, runs a long script, cannot save.
    NotNow(String),
    NoScript,
    WrongType(String),
    /// Redis itself finds a sketch malformed.
    Corrupt(String),
    OutOfMemory(String),
    /// Wrong password, or no permission.
    Denied(String),
    /// Any other error of the server: our mistake or a foreign server. Asking again will not help.
    Refused(String),
    /// Never left this process.
    NotSent(String),
    /// Never left this process: the node failed so often that it is left alone for a moment.
    LeftAlone(String),
    /// Never left this process: too many calls are under way.
    Overloaded(String),
    /// Sent, and the connection broke: it may or may not have run.
    Ambiguous(String),
    /// Sent, and no reply came in time: it may or may not have run, or may run yet.
    TimedOut(String),
}

impl NodeError {
    /// Reads a server's error line.
    pub fn parse(text: &str) -> Self {
        let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
        let own = || text.to_string();
        match code {
            "MOVED" => Redirect::parse(rest).map_or_else(|| NodeError::Refused(own()), NodeError::Moved),
            "ASK" => Redirect::parse(rest).map_or_else(|| NodeError::Refused(own()), NodeError::Ask),
            "TRYAGAIN" => NodeError::TryAgain,
            "CLUSTERDOWN" => NodeError::ClusterDown(own()),
            "LOADING" | "READONLY" | "BUSY" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS" => NodeError::NotNow(own()),
            "NOSCRIPT" => NodeError::NoScript,
            "WRONGTYPE" => NodeError::WrongType(own()),
            "INVALIDOBJ" => NodeError::Corrupt(own()),
            "OOM" => NodeError::OutOfMemory(own()),
            "NOAUTH" | "WRONGPASS" | "NOPERM" => NodeError::Denied(own()),
            _ => NodeError::Refused(own()),
        }
    }
}

impl Redirect {
    /// Reads `3999 127.0.0.1:6381`; the host may be empty, a name, or an IPv6 address.
    fn parse(text: &str) -> Option<Self> {
        let (slot, address) = text.trim().split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        Some(Self {
            slot: slot.parse().ok()?,
            host: if host == "?" { String::new() } else { host.to_string() },
            port: port.parse().ok()?,
        })
    }
}

impl From<NodeError> for StoreError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Moved(to) | NodeError::Ask(to) => {
                StoreError::Unavailable(format!("slot {} is on the move to {}:{}", to.slot, to.host, to.port))
            }
            NodeError::TryAgain => StoreError::Unavailable("a slot is on the move".into()),
            NodeError::NoScript => StoreError::Unavailable("the server forgot a script".into()),
            NodeError::ClusterDown(text)
            | NodeError::NotNow(text)
            | NodeError::NotSent(text)
            | NodeError::LeftAlone(text)
            | NodeError::Ambiguous(text)
            | NodeError::TimedOut(text) => StoreError::Unavailable(text),
            NodeError::Overloaded(text) => StoreError::Overloaded(text),
            NodeError::WrongType(text) | NodeError::Corrupt(text) => StoreError::Corrupt(text),
            NodeError::OutOfMemory(text) | NodeError::Denied(text) | NodeError::Refused(text) => {
                StoreError::Refused(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(slot: u16, host: &str, port: u16) -> Redirect {
        Redirect { slot, host: host.into(), port }
    }

    #[test]
    fn error_lines_become_kinds() {
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", NodeError::Moved(to(3999, "127.0.0.1", 6381))),
            ("MOVED 3999 :6381", NodeError::Moved(to(3999, "", 6381))),
            ("ASK 1 redis-2.redis:6379", NodeError::Ask(to(1, "redis-2.redis", 6379))),
            ("ASK 1 fd00::2:6379", NodeError::Ask(to(1, "fd00::2", 6379))),
            ("MOVED nonsense", NodeError::Refused("MOVED nonsense".into())),
            ("TRYAGAIN Multiple keys request during rehashing of slot", NodeError::TryAgain),
            ("NOSCRIPT No matching script.", NodeError::NoScript),
            (
                "INVALIDOBJ Corrupted HLL object detected",
                NodeError::Corrupt("INVALIDOBJ Corrupted HLL object detected".into()),
            ),
            ("ERR unknown command", NodeError::Refused("ERR unknown command".into())),
            ("LOADING Redis is loading", NodeError::NotNow("LOADING Redis is loading".into())),
        ];
        for (line, expected) in cases {
            assert_eq!(NodeError::parse(line), expected, "{line}");
        }
    }

    #[test]
    fn a_missing_value_is_not_an_empty_one() {
        assert_eq!(Reply::Nil.into_bytes(), Ok(None));
        assert_eq!(Reply::Bytes(Bytes::new()).into_bytes(), Ok(Some(Bytes::new())));
        assert!(Reply::Number(1).into_bytes().is_err());
        assert_eq!(Reply::Bytes(Bytes::from_static(b"-12")).number(), Ok(-12));
        assert!(Reply::Bytes(Bytes::from_static(b"12x")).number().is_err());
    }
}
