//! Asking a running gateway, as commands do: its admin listener, over HTTP.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

/// A gateway that does not take the connection by then is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An audit reads every claim of the campaign, up to ten million of them.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Between two lines of a long answer.
const SILENCE: Duration = Duration::from_secs(120);
/// Ten million claims in which every other unit is held would be 90 MB of ranges.
const BYTES_MAX: usize = 256 << 20;
/// What is encoded in an id; signs that cannot be mistaken stay, for people who read logs.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// What is asked of whom.
pub struct Question {
    /// The admin listener: `http://127.0.0.1:9090`.
    pub url: String,
    /// The value of the `Authorization` header.
    pub bearer: Option<String>,
    pub campaign: String,
}

/// Why there is no answer; each a sentence that says what to do, but for what only the caller knows.
#[derive(Debug, PartialEq, Eq)]
pub enum NoAnswer {
    Unauthorized,
    Unreachable(String),
    Other(String),
}

/// The part of a problem that is for people.
#[derive(Deserialize)]
struct Problem {
    title: String,
    #[serde(default)]
    detail: String,
}

impl Question {
    /// `GET …/campaigns/{campaign}/{call}`: the whole answer.
    pub fn whole(&self, call: &str) -> Result<Bytes, NoAnswer> {
        let answer = async {
            let answer = self.send(Method::GET, call, Bytes::new()).await?;
            let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
            body.map(|body| body.to_bytes()).map_err(|error| self.unreachable(error.as_ref()))
        };
        let late = NoAnswer::Other(format!("{} did not answer within {} s; try again", self.url, TIMEOUT.as_secs()));
        run(async { tokio::time::timeout(TIMEOUT, answer).await.unwrap_or(Err(late)) })
    }

    /// `POST …/campaigns/{campaign}/{call}`: the lines of the answer as they come.
    pub fn lines(&self, call: &str, body: Bytes, mut line: impl FnMut(&[u8])) -> Result<(), NoAnswer> {
        let silent =
            || NoAnswer::Other(format!("{} has said nothing for {} s; try again", self.url, SILENCE.as_secs()));
        run(async {
            let answer = tokio::time::timeout(SILENCE, self.send(Method::POST, call, body)).await;
            let mut body = answer.unwrap_or_else(|_| Err(silent()))?.into_body();
            let mut rest: Vec<u8> = Vec::new();
            while let Some(frame) = tokio::time::timeout(SILENCE, body.frame()).await.map_err(|_| silent())? {
                let frame = frame.map_err(|error| self.unreachable(&error))?;
                rest.extend(frame.data_ref().map(|data| &data[..]).unwrap_or_default());
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    line(&rest[..end]);
                    rest.drain(..=end);
                }
            }
            if !rest.is_empty() {
                line(&rest);
            }
            Ok(())
        })
    }

    /// The answer, if it is a good one.
    async fn send(&self, method: Method, call: &str, body: Bytes) -> Result<Response<Incoming>, NoAnswer> {
        let mut request = Request::builder().method(method).uri(self.uri(call)?).header(header::ACCEPT, "*/*");
        if let Some(bearer) = &self.bearer {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| NoAnswer::Other(error.to_string()))?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let answer = client.request(request).await.map_err(|error| self.unreachable(&error))?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            StatusCode::UNAUTHORIZED => Err(NoAnswer::Unauthorized),
            status => {
                let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
                let body = body.map_err(|error| self.unreachable(error.as_ref()))?.to_bytes();
                Err(NoAnswer::Other(match serde_json::from_slice::<Problem>(&body) {
                    Ok(problem) => format!("{}: {}: {}", self.campaign, problem.title, problem.detail),
                    Err(_) => format!("{} answers {status}, as no admin listener does; check --url", self.url),
                }))
            }
        }
    }

    fn uri(&self, call: &str) -> Result<Uri, NoAnswer> {
        let Question { url, campaign, .. } = self;
        if !url.starts_with("http://") {
            let rule = "must begin with http://, for the admin listener speaks plain HTTP";
            return Err(NoAnswer::Other(format!("--url {url:?} {rule}")));
        }
        let campaign = utf8_percent_encode(campaign, SEGMENT);
        let text = format!("{}/v1/campaigns/{campaign}/{call}", url.trim_end_matches('/'));
        text.parse().map_err(|error| NoAnswer::Other(format!("--url {url:?} cannot be used: {error}")))
    }

    /// The innermost reason: "connection refused" says more than "client error".
    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> NoAnswer {
        let innermost = std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error);
        NoAnswer::Unreachable(format!("{} cannot be asked: {innermost}", self.url))
    }
}

fn run<T>(asking: impl Future<Output = Result<T, NoAnswer>>) -> Result<T, NoAnswer> {
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build();
    threads.map_err(|error| NoAnswer::Other(format!("cannot start: {error}")))?.block_on(asking)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_encoded_and_only_plain_http_is_spoken() {
        let asked = |url: &str, campaign: &str| {
            Question { url: url.into(), bearer: None, campaign: campaign.into() }
                .uri("audit")
                .map(|uri| uri.to_string())
        };
        let path = "http://localhost:9090/v1/campaigns/a%2Fb%3F%E5%8F%8C-1/audit";
        assert_eq!(asked("http://localhost:9090/", "a/b?双-1").unwrap(), path);
        assert!(asked("https://localhost:9090", "a").is_err());
        assert!(asked("http://", "a").is_err());
    }
}
