//! What stands behind a proxy: answers 200 to everything, and remembers what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request that reached the shop.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    /// A header that is there once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let values: Vec<_> = self.headers.get_all(name).iter().collect();
        assert!(values.len() <= 1, "{name} is there {} times: {:?}", values.len(), self.headers);
        values.first().map(|value| value.to_str().expect("text"))
    }
}

pub struct Shop {
    pub authority: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    listener: JoinHandle<()>,
}

impl Shop {
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let authority = listener.local_addr().expect("an address").to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let book = seen.clone();
        let listener = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let book = book.clone();
                let service = hyper::service::service_fn(move |request| serve(request, book.clone()));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { authority, seen, listener }
    }

    /// What has come since this was last asked.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(request: Request<Incoming>, book: Arc<Mutex<Vec<Seen>>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let seen = Seen { method: head.method, path: head.uri.to_string(), headers: head.headers, body };
    book.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    Ok(Response::new(Full::new(Bytes::from_static(b"from the shop"))))
}
