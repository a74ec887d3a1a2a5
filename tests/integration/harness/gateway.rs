//! The real binary as a process, and a client for its two listeners.

use std::process::{Command, ExitStatus};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::eventually;
use super::process::{Process, free_port, fresh_dir};

/// A running gateway. Dropped, it is killed; after a panic the last lines of its log are shown.
pub struct Gateway {
    pub public: Api,
    pub admin: Api,
    pub process: Process,
}

impl Gateway {
    /// Starts one with these variables and waits until it is ready.
    pub async fn start(env: &[(&str, &str)]) -> Self {
        let mut gateway = Self::spawn(env);
        gateway.ready().await;
        gateway
    }

    /// Starts one and does not wait. It listens on free loopback ports and has a data folder of its own, unless `env`
    /// says otherwise; variables of the test's own environment do not reach it.
    pub fn spawn(env: &[(&str, &str)]) -> Self {
        let [public, admin] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_headcount"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HEADCOUNT_") {
                command.env_remove(name);
            }
        }
        command.env("HEADCOUNT_LISTEN", &public).env("HEADCOUNT_ADMIN_LISTEN", &admin);
        command.env("HEADCOUNT_DATA_DIR", fresh_dir("data")).envs(env.iter().copied());
        let process = Process::start("headcount", &mut command, 40);
        Self { public: Api::of(&public), admin: Api::of(&admin), process }
    }

    /// Waits until `/readyz` says yes; panics with the log if the process ends instead.
    pub async fn ready(&mut self) {
        let Self { admin, process, .. } = self;
        eventually("a gateway that is ready", async || {
            if let Some(status) = process.exited() {
                panic!("the gateway ended with {status}: {}", process.log());
            }
            admin.try_send(Method::GET, "/readyz", &[], Bytes::new()).await.is_ok_and(|answer| answer.status == 200)
        })
        .await;
    }

    /// Creates a campaign (its id as it stands in a path), and waits until its stock is laid out: until then claims are
    /// told to come back.
    pub async fn offer(&self, campaign: &str, body: &Value) {
        self.admin.put(&format!("/v1/campaigns/{campaign}"), body).await.expect(201);
        eventually("stock that is laid out", async || {
            self.public.get(&format!("/v1/campaigns/{campaign}/remaining")).await.status == 200
        })
        .await;
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// kill -9 while others still call it.
    pub fn send_kill(&self) {
        self.process.signal("KILL");
    }

    /// SIGTERM; `end` waits for what follows.
    pub fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Waits for the process's end.
    pub async fn end(&mut self) -> ExitStatus {
        self.process.end().await
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.process.exited().is_none()
    }

    /// All it has logged and printed.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// A client of one listener.
#[derive(Clone)]
pub struct Api {
    client: Client<HttpConnector, Full<Bytes>>,
    /// `127.0.0.1:17000`.
    pub authority: String,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Panics with the answer unless its status is this one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {:?}", self.text(), self.headers);
        self
    }
}

impl Api {
    /// Of whatever listens there.
    pub fn of(authority: &str) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), authority: authority.to_owned() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send_json(Method::POST, path, body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send_json(Method::PUT, path, body).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send_json(Method::PATCH, path, body).await
    }

    /// The same client, for another address.
    pub fn at(&self, authority: &str) -> Self {
        Self { client: self.client.clone(), authority: authority.to_owned() }
    }

    async fn send_json(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.send(method, path, &[("content-type", "application/json")], body.to_string().into()).await
    }

    /// Any request; panics where no answer comes.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let told = format!("{method} {path} on {}", self.authority);
        self.try_send(method, path, headers, body).await.unwrap_or_else(|error| panic!("{told}: {error}"))
    }

    /// Any request, to a gateway that may be gone.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.authority));
        for (name, value) in headers {
            request = request.header(HeaderName::try_from(*name)?, HeaderValue::try_from(*value)?);
        }
        let answer = self.client.request(request.body(Full::new(body))?).await?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}
