//! Bodies in: bounded in size and time, before anything in them is looked at.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::problem::{Kind, Problem};

/// A thousand users of 256 bytes each, four times over.
pub const JSON_BYTES_MAX: usize = 1 << 20;

/// Ten thousand lines of 800 bytes; both the bytes on the wire and what they inflate to.
pub const LINES_BYTES_MAX: usize = 8 << 20;

/// How much of a refused body is read and thrown away, and for how long: what a client sends after the server has
/// closed makes the kernel reset the connection, and the client would never see why it was refused.
const DISCARDED_BYTES_MAX: usize = 32 << 20;
const DISCARDED_WITHIN: Duration = Duration::from_secs(2);

/// The body of a JSON call.
pub async fn json(headers: &HeaderMap, body: Body, within: Duration) -> Result<Bytes, Problem> {
    match encoding(headers) {
        Ok(Encoding::Identity) => read(headers, body, JSON_BYTES_MAX, within).await,
        Ok(Encoding::Gzip) => {
            let rule = "must be absent: only POST /v1/visits takes gzip";
            Err(refuse(headers, body, Problem::field(Kind::UnsupportedEncoding, "Content-Encoding", rule)).await)
        }
        Err(problem) => Err(refuse(headers, body, problem).await),
    }
}

/// The body of an NDJSON call, inflated.
pub async fn lines(headers: &HeaderMap, body: Body, within: Duration) -> Result<Bytes, Problem> {
    let encoding = match encoding(headers) {
        Ok(encoding) => encoding,
        Err(problem) => return Err(refuse(headers, body, problem).await),
    };
    let bytes = read(headers, body, LINES_BYTES_MAX, within).await?;
    match encoding {
        Encoding::Identity => Ok(bytes),
        // Eight megabytes take some 20 ms to inflate: too long for a thread that others wait for.
        Encoding::Gzip => tokio::task::spawn_blocking(move || inflate(&bytes, LINES_BYTES_MAX))
            .await
            // It neither panics nor is cancelled; should the runtime be going down, nobody hears the answer.
            .unwrap_or_else(|_| Err(Problem::field(Kind::Malformed, "body", "could not be inflated"))),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None => Ok(Encoding::Identity),
        Some(name) if name.eq_ignore_ascii_case(b"identity") => Ok(Encoding::Identity),
        Some(name) if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => Ok(Encoding::Gzip),
        Some(_) => {
            Err(Problem::field(Kind::UnsupportedEncoding, "Content-Encoding", "must be gzip, identity or absent"))
        }
    }
}

async fn read(headers: &HeaderMap, mut body: Body, bytes_max: usize, within: Duration) -> Result<Bytes, Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(refuse(headers, body, too_large(bytes_max)).await);
    }
    match tokio::time::timeout(within, Limited::new(&mut body, bytes_max).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(refuse(headers, body, too_large(bytes_max)).await),
        Ok(Err(_)) => Err(Problem::field(Kind::Malformed, "body", "must arrive whole; the connection broke off")),
        Err(_) => Err(Problem::field_with_detail(
            Kind::SlowBody,
            "body",
            format!("must arrive within {} ms", within.as_millis()),
            "Nothing was done; send the request again, in smaller parts if the line is slow.",
        )),
    }
}

/// Passes a problem on after the rest of the body has come in, within bounds. A client that asked whether to send its
/// body (`Expect: 100-continue`) is answered at once.
pub async fn refuse(headers: &HeaderMap, mut body: Body, problem: Problem) -> Problem {
    if !headers.contains_key(header::EXPECT) {
        let discard = async {
            let mut left = DISCARDED_BYTES_MAX;
            while let Some(Ok(frame)) = body.frame().await {
                let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
                left = rest;
            }
        };
        // Out of time or bytes: the client may then see a reset connection instead of the problem.
        let _ = tokio::time::timeout(DISCARDED_WITHIN, discard).await;
    }
    problem
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::field_with_detail(
        Kind::TooLarge,
        "body",
        format!("must be at most {bytes_max} bytes"),
        "Nothing was done; send the same in several requests.",
    )
}

/// Inflates gzip (several members too), and stops at the bound, whatever the body claims to hold.
pub fn inflate(bytes: &[u8], bytes_max: usize) -> Result<Bytes, Problem> {
    let mut inflated = Vec::with_capacity(bytes.len().saturating_mul(4).min(bytes_max));
    let reader = flate2::read::MultiGzDecoder::new(bytes);
    if reader.take(bytes_max as u64 + 1).read_to_end(&mut inflated).is_err() {
        return Err(Problem::field(Kind::Malformed, "body", "must be gzip, as Content-Encoding says"));
    }
    if inflated.len() > bytes_max {
        return Err(Problem::field_with_detail(
            Kind::TooLarge,
            "body",
            format!("must be at most {bytes_max} bytes after inflation"),
            "Nothing was done; send the same in several requests.",
        ));
    }
    Ok(inflated.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_bomb_is_stopped_at_the_bound() {
        let bomb = gzip(&vec![b'a'; 64 << 20]);
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        let problem = inflate(&bomb, LINES_BYTES_MAX).unwrap_err();
        assert_eq!(problem.named().2, "must be at most 8388608 bytes after inflation");
        assert_eq!(inflate(&gzip(&[b'a'; 100]), 100).unwrap().len(), 100);
        assert_eq!(inflate(&gzip(&[b'a'; 101]), 100).unwrap_err().named().0, "/problems/too-large");
        for broken in [&b"not gzip"[..], &gzip(b"cut off")[..15], b""] {
            assert_eq!(inflate(broken, 100).unwrap_err().named().0, "/problems/malformed", "{broken:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let endless = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let problem = json(&HeaderMap::new(), endless, Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(problem.status().as_u16(), 408);
    }

    #[tokio::test]
    async fn a_body_over_its_limit_is_413_announced_or_not() {
        let within = Duration::from_secs(10);
        let big = || Body::from(vec![b' '; JSON_BYTES_MAX + 1]);
        assert_eq!(json(&HeaderMap::new(), big(), within).await.unwrap_err().status().as_u16(), 413);
        let announced = HeaderMap::from_iter([(header::CONTENT_LENGTH, "1048577".parse().unwrap())]);
        assert_eq!(json(&announced, Body::empty(), within).await.unwrap_err().status().as_u16(), 413);
        let exact = Body::from(vec![b' '; JSON_BYTES_MAX]);
        assert_eq!(json(&HeaderMap::new(), exact, within).await.unwrap().len(), JSON_BYTES_MAX);
        let gzip = HeaderMap::from_iter([(header::CONTENT_ENCODING, "gzip".parse().unwrap())]);
        assert_eq!(json(&gzip, Body::empty(), within).await.unwrap_err().status().as_u16(), 415);
    }
}
