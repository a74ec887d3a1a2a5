//! Load from wrk, and the bare server beside which it is measured.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use headcount::runtime::open_files;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use crate::harness;
use crate::harness::gateway::Answer;
use crate::harness::process::{Process, free_port, fresh_dir};

/// One run of wrk.
pub struct Figures {
    pub answered: u64,
    pub seconds: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub cpu_seconds: f64,
    /// Broken connections, and answers later than wrk waits.
    pub broken: u64,
    /// Statuses of 400 and above.
    pub refused: u64,
}

/// Whom wrk asks.
#[derive(Clone, Copy)]
pub struct Server<'a> {
    pub authority: &'a str,
    pub process: &'a Process,
}

impl Server<'_> {
    /// Processor time it has taken: Linux counts it in hundredths of a second.
    fn cpu_seconds(self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid())).unwrap_or_default();
        // The name may contain spaces; from the state behind it on, user and system time are the 12th and 13th field.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
    }
}

pub fn wrk(crowd: &[String], server: Server<'_>, path: &str, (connections, seconds): (usize, u64)) -> Figures {
    let cpu_before = server.cpu_seconds();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/wrk/crowd.lua");
    let output = Command::new("wrk")
        .args(["--threads", "1", "--latency", "--timeout", "20s"])
        .args(["--connections", &connections.to_string(), "--duration", &format!("{seconds}s"), "--script"])
        .arg(script)
        .args([&format!("http://{}{path}", server.authority), "--"])
        .args(crowd)
        .output()
        .unwrap_or_else(|error| panic!("wrk cannot be started: {error}; try scripts/install-test-tools.sh"));
    let text = String::from_utf8_lossy(&output.stdout);
    let last: Vec<f64> =
        text.lines().last().unwrap_or_default().split(' ').filter_map(|word| word.parse().ok()).collect();
    let [answered, seconds, p50_us, p99_us, broken, late, refused] = last[..] else {
        panic!("wrk printed {text}{}", String::from_utf8_lossy(&output.stderr));
    };
    Figures {
        answered: answered as u64,
        seconds,
        p50_ms: p50_us / 1e3,
        p99_ms: p99_us / 1e3,
        cpu_seconds: server.cpu_seconds() - cpu_before,
        broken: (broken + late) as u64,
        refused: refused as u64,
    }
}

/// The bare server: this program again, as a process of its own.
pub struct Bare {
    pub authority: String,
    pub process: Process,
}

impl Bare {
    pub async fn start(answer: &Answer) -> Self {
        let authority = format!("127.0.0.1:{}", free_port());
        let body = fresh_dir("bare").join("body");
        std::fs::write(&body, &answer.body).expect("a file");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["bare", &authority, &answer.status.to_string()]).arg(body);
        for (name, value) in answer.headers.iter().filter(|(name, _)| !OF_THE_SERVER.contains(name)) {
            command.args([name.as_str(), value.to_str().expect("a header in ASCII")]);
        }
        let process = Process::start("bare", &mut command, 40);
        harness::eventually("a bare server", async || TcpStream::connect(&authority).is_ok()).await;
        Self { authority, process }
    }
}

/// Headers that hyper writes by itself.
pub const OF_THE_SERVER: [HeaderName; 3] = [DATE, CONTENT_LENGTH, CONNECTION];

/// hyper with nothing around it, and as many threads as the gateway's. Arguments: address, status, file of the body, names and
/// values of headers.
pub async fn bare(args: &[String]) {
    let [address, status, body, headers @ ..] = args else {
        panic!("bare <address> <status> <body file> [<header> <value>]...")
    };
    let address: SocketAddr = address.parse().expect("an address");
    let body = Bytes::from(std::fs::read(PathBuf::from(body)).expect("the body"));
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status.parse().expect("a status");
    for header in headers.chunks_exact(2) {
        let name = HeaderName::from_bytes(header[0].as_bytes()).expect("a header");
        answer.headers_mut().insert(name, header[1].parse().expect("its value"));
    }
    serve(address, move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move {
            let _ = request.into_body().collect().await;
            answer
        }
    })
    .await;
}

/// Serves with hyper and nothing around it, until the process is ended.
pub async fn serve<F, A>(address: SocketAddr, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    open_files::raise().expect("a limit of open files");
    let (listener, _) = headcount::api::server::bind(address).expect("a free port");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let answer = answer.clone();
        let conversation = async move {
            let _ = stream.set_nodelay(true);
            let service = service_fn(|request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        };
        #[allow(clippy::disallowed_methods, reason = "whoever tracks tasks is not bare")]
        tokio::spawn(conversation);
    }
}
