//! A TCP proxy that can lose answers: the request reaches the gateway, what it says to it does not come back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Ends with the test's runtime, or when dropped.
pub struct Proxy {
    pub authority: String,
    state: Arc<State>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    loses: AtomicBool,
    lost: Mutex<Vec<u8>>,
}

impl Proxy {
    /// A proxy before this address.
    pub async fn before(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let authority = listener.local_addr().expect("an address").to_string();
        let (state, upstream) = (Arc::<State>::default(), upstream.to_owned());
        let listening = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let server = TcpStream::connect(&upstream).await.expect("the gateway");
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::spawn(forward(from_client, to_server));
                    tokio::spawn(answer(from_server, to_client, state.clone()));
                }
            }
        });
        Self { authority, state, listening }
    }

    /// From now on answers are lost, and their connections with them; or they pass again.
    pub fn lose(&self, loses: bool) {
        self.state.loses.store(loses, Ordering::SeqCst);
    }

    /// What was lost since the last time.
    pub fn lost(&self) -> String {
        let bytes = std::mem::take(&mut *self.state.lost.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    // Whichever side goes away first ends it.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: Arc<State>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if state.loses.load(Ordering::SeqCst) {
            // A small answer comes in one piece. Dropping both halves cuts the client off.
            state.lost.lock().unwrap_or_else(PoisonError::into_inner).extend(&buffer[..count]);
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
