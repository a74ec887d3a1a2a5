//! A listener: accepts connections within bounds, and ends the ones that are silent, half-open or idle.
//!
//! axum's own server leaves such connections open for ever (it sets no timer), so this is a loop of our own on hyper's
//! `http1::Builder`. What bounds what:
//!
//! | what | bound | who is refused |
//! |---|---|---|
//! | connections | `connections_max` | the next one waits in the kernel's backlog, unaccepted |
//! | requests under way | `requests_max` | 503 with `Retry-After`, at once |
//! | a request's header, and an idle connection | `header_timeout` | the connection is closed |
//! | a request's body | size and `body_timeout` (request.rs) | 413, 408 |
//! | header and write buffer of a connection | 64 KiB | 431; a slow reader is waited for |

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::admission::Admission;
use super::problem::{Kind, Problem};
use crate::runtime::tasks::Tasks;

/// Bounds of one listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// Open connections. Each costs a file descriptor and about 20 KB while in use.
    pub connections_max: usize,
    /// Requests being answered at one time; more get 503 at once.
    pub requests_max: usize,
    /// From the first byte (or the last answer) to the end of a request's header; it also ends idle connections.
    /// Must be longer than an ingress keeps its idle connections, or it will now and then reuse one that is being closed.
    pub header_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { connections_max: 15_000, requests_max: 10_000, header_timeout: Duration::from_secs(75) }
    }
}

impl ServerConfig {
    /// The admin listener's bounds: a quarter of the connections and requests, and the same timeouts.
    #[must_use]
    pub fn for_admin(self) -> Self {
        Self {
            connections_max: (self.connections_max / 4).max(1),
            requests_max: (self.requests_max / 4).max(1),
            ..self
        }
    }
}

/// Connections that the kernel completes while the accept loop is busy; the kernel caps it at `somaxconn`.
const BACKLOG: u32 = 4_096;

/// Header and write buffer of one connection: 10,000 slow ones hold 640 MB at worst, not hyper's 4 GB.
const CONNECTION_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The first pause after an accept that failed for want of file descriptors; doubles up to a second.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(20);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// Binds a listener; the address tells the port when 0 was asked.
pub fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Serves until `stop` is cancelled, then lets requests under way end, and returns when the last connection is closed.
/// It waits as long as they take: put a deadline around it.
pub async fn serve(
    name: &'static str,
    listener: TcpListener,
    router: Router,
    config: ServerConfig,
    tasks: &Tasks,
    stop: CancellationToken,
) {
    let admission = Admission::new(name, config.requests_max);
    let server = Arc::new(Server {
        router,
        admission: Arc::clone(&admission),
        http: http_settings(&config),
        stopping: AtomicBool::new(false),
        closing: CancellationToken::new(),
        open: TaskTracker::new(),
    });
    let publish_until = stop.clone();
    tasks.spawn("http gauge", async move {
        while publish_until.run_until_cancelled(tokio::time::sleep(GAUGE_INTERVAL)).await.is_some() {
            admission.publish();
        }
    });
    stop.run_until_cancelled(accept_loop(name, &listener, &server, config.connections_max, tasks)).await;
    drop(listener);
    server.stopping.store(true, Ordering::Release);
    server.closing.cancel();
    server.open.close();
    server.open.wait().await;
}

struct Server {
    router: Router,
    admission: Arc<Admission>,
    http: http1::Builder,
    /// Set just before `closing`, which wakes every connection to look at it.
    stopping: AtomicBool,
    closing: CancellationToken,
    open: TaskTracker,
}

fn http_settings(config: &ServerConfig) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(config.header_timeout).max_buf_size(CONNECTION_BUFFER_BYTES_MAX);
    http
}

async fn accept_loop(
    name: &'static str,
    listener: &TcpListener,
    server: &Arc<Server>,
    connections_max: usize,
    tasks: &Tasks,
) {
    let places = Arc::new(Semaphore::new(connections_max));
    let mut pause = ACCEPT_PAUSE_MIN;
    loop {
        // A semaphore is closed only by `close`, which nobody calls.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                pause = ACCEPT_PAUSE_MIN;
                let server = Arc::clone(server);
                let token = server.open.token();
                tasks.spawn("http connection", async move {
                    connection(&server, stream, place).await;
                    drop(token);
                });
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // No descriptors or memory left: existing connections must go on, and may free some.
                tracing::warn!(listener = name, %error, pause_ms = pause.as_millis(), "cannot accept connections for now");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn connection(server: &Server, stream: TcpStream, _place: OwnedSemaphorePermit) {
    // Without it an answer of two writes waits for the client's delayed acknowledgement, 40 ms. Fails only when the
    // connection is already gone, which the first read will show.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let mut router = server.router.clone();
        let place = server.admission.enter();
        async move {
            let Some(_place) = place else { return Ok::<_, Infallible>(shed().into_response()) };
            router.call(request).await
        }
    });
    let mut conversation = pin!(server.http.serve_connection(TokioIo::new(stream), service));
    let mut closing = pin!(server.closing.cancelled());
    let mut waker_is_left = false;
    let mut told = false;
    poll_fn(|context| {
        // Once is enough, because a task's waker stays the same; and each poll takes a lock that all connections share.
        // Whoever comes too late to be woken sees the switch, which is set first.
        if !waker_is_left {
            waker_is_left = true;
            let _ = closing.as_mut().poll(context);
        }
        if !told && server.stopping.load(Ordering::Acquire) {
            told = true;
            conversation.as_mut().graceful_shutdown();
        }
        // A failed conversation is the client's doing (it left, was too slow, spoke something else): not worth a line.
        conversation.as_mut().poll(context).map(|_| ())
    })
    .await;
}

fn shed() -> Problem {
    Problem::new(Kind::Overloaded, "This process has as many requests under way as it allows itself; send it again.")
        .retry_after_s(1)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";

    struct Running {
        address: SocketAddr,
        stop: CancellationToken,
        tasks: Tasks,
        /// Lets one request that waits in `/slow` go on.
        go: Arc<Notify>,
        /// Told when a request has come to wait in `/slow`.
        waits: Arc<Notify>,
    }

    fn start(config: ServerConfig) -> Running {
        let (go, waits) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (go, waits) = (go.clone(), waits.clone());
            move || async move {
                waits.notify_one();
                go.notified().await;
                "slow"
            }
        };
        let router = Router::new().route("/", get(|| async { "quick" })).route("/slow", get(slow));
        let (listener, address) = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (stop, tasks) = (CancellationToken::new(), Tasks::new());
        let (until, connections) = (stop.clone(), tasks.clone());
        tasks.spawn("serve", async move { serve("test", listener, router, config, &connections, until).await });
        Running { address, stop, tasks, go, waits }
    }

    fn patient() -> ServerConfig {
        ServerConfig { connections_max: 10, requests_max: 10, header_timeout: Duration::from_secs(60) }
    }

    async fn connect(running: &Running, send: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(send).await.unwrap();
        stream
    }

    /// Everything until the server closes.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut text));
        read.await.expect("the server closes").unwrap();
        text
    }

    /// One answer: the word of the quick route, or a problem.
    async fn answer(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        while !(text.ends_with(b"quick") || text.ends_with(b"}")) {
            let read = tokio::time::timeout(Duration::from_secs(20), stream.read_buf(&mut text));
            assert!(read.await.expect("an answer").unwrap() > 0, "{}", String::from_utf8_lossy(&text));
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn silent_half_open_and_idle_connections_are_closed() {
        let running = start(ServerConfig { header_timeout: Duration::from_millis(200), ..patient() });
        let mut silent = connect(&running, b"").await;
        let mut half = connect(&running, b"GET / HTTP/1.1\r\nhost:").await;
        let mut idle = connect(&running, GET).await;
        assert!(answer(&mut idle).await.starts_with("HTTP/1.1 200"));
        // A half header may get a 408 first; what counts is that the server closes.
        for stream in [&mut silent, &mut half, &mut idle] {
            rest(stream).await;
        }
    }

    #[tokio::test]
    async fn stopping_ends_idle_connections_and_lets_requests_under_way_finish() {
        let running = start(patient());
        let mut idle = connect(&running, GET).await;
        answer(&mut idle).await;
        let mut busy = connect(&running, b"GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
        running.waits.notified().await;
        running.stop.cancel();
        assert_eq!(rest(&mut idle).await, "");
        assert!(TcpStream::connect(running.address).await.is_err(), "no new connection is taken");
        running.go.notify_one();
        let last = rest(&mut busy).await;
        assert!(last.starts_with("HTTP/1.1 200") && last.ends_with("slow"), "{last}");
        assert!(running.tasks.finish(Duration::from_secs(20)).await);
    }

    #[tokio::test]
    async fn requests_beyond_the_bound_are_shed_at_once_and_the_connection_lives_on() {
        let running = start(ServerConfig { requests_max: 1, ..patient() });
        let _busy = connect(&running, b"GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
        running.waits.notified().await;
        let mut shed = connect(&running, GET).await;
        let refusal = answer(&mut shed).await;
        assert!(refusal.starts_with("HTTP/1.1 503") && refusal.contains("retry-after: 1"), "{refusal}");
        assert!(refusal.contains("/problems/overloaded"), "{refusal}");
        running.go.notify_one();
        shed.write_all(GET).await.unwrap();
        // The place comes back when the other answer is written, which may be a moment after this request.
        while !answer(&mut shed).await.starts_with("HTTP/1.1 200") {
            shed.write_all(GET).await.unwrap();
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait_for_a_place() {
        let running = start(ServerConfig { connections_max: 1, ..patient() });
        let mut first = connect(&running, GET).await;
        answer(&mut first).await;
        let mut second = connect(&running, GET).await;
        // The kernel took its bytes; the server must not answer while the first is open. Asking the first again takes
        // longer than an answer to the second would.
        for _ in 0..100 {
            first.write_all(GET).await.unwrap();
            answer(&mut first).await;
        }
        assert!(second.try_read(&mut [0; 1]).is_err(), "the second was answered beside the first");
        drop(first);
        assert!(answer(&mut second).await.starts_with("HTTP/1.1 200"));
    }
}
