//! A proxy before PostgreSQL that halts its client at one point of a transaction, so that a test knows how far a process
//! has come when it kills it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// Its BEGIN does not reach the server.
    Begin,
    /// Its COMMIT does not, of a transaction that has written entries.
    Commit,
    /// That COMMIT does, and the server's answer does not come back.
    Committed,
}

/// The longest word that is looked for.
const WORD_MAX: usize = 32;

/// Ends with the test's runtime, or when dropped.
pub struct Halt {
    /// The database's URL through the proxy.
    pub url: String,
    state: Arc<State>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    at: Mutex<Option<Point>>,
    halted: AtomicU64,
}

impl Halt {
    /// A proxy before a database on this machine; everything passes.
    pub async fn before(url: &str) -> Self {
        let upstream = url.split(['@', '/']).find(|part| part.starts_with("127.0.0.1:")).expect("a server").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = url.replace(&upstream, &listener.local_addr().expect("an address").to_string());
        let state = Arc::<State>::default();
        let listening = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let Ok(server) = TcpStream::connect(&upstream).await else { continue };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    let mute = Arc::new(AtomicBool::new(false));
                    tokio::spawn(forward(from_client, to_server, state.clone(), mute.clone()));
                    tokio::spawn(answer(from_server, to_client, mute));
                }
            }
        });
        Self { url, state, listening }
    }

    /// From now on, on every connection.
    pub fn at(&self, point: Point) {
        *self.state.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(point);
    }

    /// How many connections stand still.
    pub fn halted(&self) -> u64 {
        self.state.halted.load(Ordering::SeqCst)
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: Arc<State>, mute: Arc<AtomicBool>) {
    let (mut buffer, mut heard, mut has_written) = (vec![0; 64 * 1024], Vec::<u8>::new(), false);
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        // With the end of what came before: a word may come in two pieces.
        heard.extend(&buffer[..count]);
        let says = |word: &str| heard.windows(word.len()).any(|part| part == word.as_bytes());
        // A statement's text comes once on a connection; later it is called by its name.
        has_written |= says("INSERT INTO ledger_entries");
        let point = *state.at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = match point {
            None => false,
            Some(Point::Begin) => says("BEGIN\0"),
            Some(Point::Commit | Point::Committed) => has_written && says("COMMIT\0"),
        };
        heard.drain(..heard.len().saturating_sub(WORD_MAX));
        if is_there && point != Some(Point::Committed) {
            state.halted.fetch_add(1, Ordering::SeqCst);
            // Until the client is gone; the server then hears that too.
            while let Ok(1..) = from.read(&mut buffer).await {}
            return;
        }
        if is_there {
            mute.store(true, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        if is_there {
            state.halted.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mute: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !mute.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
