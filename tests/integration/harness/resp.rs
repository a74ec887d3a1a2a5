//! A small blocking Redis client for what a test does behind the gateway's back. Not the adapter's client, so that a
//! fault of that one does not hide itself.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A stopped server does not answer; a test that asks one is wrong and shall fail, not hang.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a server answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Text(String),
    Error(String),
    Int(i64),
    Bytes(Vec<u8>),
    Nil,
    List(Vec<Reply>),
}

impl Reply {
    /// As text; panics on anything that is not.
    #[track_caller]
    pub fn text(self) -> String {
        match self {
            Reply::Text(text) => text,
            Reply::Bytes(bytes) => String::from_utf8(bytes).expect("text"),
            other => panic!("no text: {other:?}"),
        }
    }

    #[track_caller]
    pub fn int(self) -> i64 {
        match self {
            Reply::Int(int) => int,
            other => panic!("no number: {other:?}"),
        }
    }

    #[track_caller]
    pub fn list(self) -> Vec<Reply> {
        match self {
            Reply::List(list) => list,
            other => panic!("no list: {other:?}"),
        }
    }

    /// Panics where the server answered `OK` with anything else.
    #[track_caller]
    pub fn ok(self) {
        assert_eq!(self, Reply::Text("OK".to_owned()));
    }
}

pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// One command, one reply; an error of the server is a reply.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            request.extend(format!("${}\r\n", arg.len()).bytes());
            request.extend(arg);
            request.extend(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rest = line[1..].trim_end();
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        match line.as_bytes()[0] {
            b'+' => Ok(Reply::Text(rest.to_owned())),
            b'-' => Ok(Reply::Error(rest.to_owned())),
            b':' => Ok(Reply::Int(number()?)),
            b'$' => match usize::try_from(number()?) {
                Ok(length) => self.bytes(length),
                Err(_) => Ok(Reply::Nil),
            },
            b'*' => match usize::try_from(number()?) {
                Ok(length) => (0..length).map(|_| self.reply()).collect::<io::Result<_>>().map(Reply::List),
                Err(_) => Ok(Reply::Nil),
            },
            _ => Err(io::Error::other(line)),
        }
    }

    fn bytes(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bytes(bytes))
    }
}
