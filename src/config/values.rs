//! How each kind of value is read. Errors are rules that read on from the variable's name.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{StatusCode, Uri};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::adapters::redis::replicas::ClaimReplicas;
use crate::domain::period::Retention;
use crate::domain::ring::Shards;

pub fn number(text: &str, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    if text.contains("://") {
        return Err("must be a number, not a URL; this is what a Kubernetes service link looks like".into());
    }
    match text.parse::<u64>() {
        Ok(number) if bounds.contains(&number) => Ok(number),
        _ => Err(format!("must be a whole number from {} to {}", bounds.start(), bounds.end())),
    }
}

/// A status that turns a client away.
pub fn deny_status(text: &str) -> Result<StatusCode, String> {
    let status = number(text, 400..=499).ok().and_then(|status| StatusCode::from_u16(status as u16).ok());
    status.ok_or_else(|| "must be a status from 400 to 499".into())
}

pub fn count(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<usize, String> {
    // Every bound in the table is far below 2^32.
    move |text| number(text, bounds.clone()).map(|number| number as usize)
}

pub fn number_u32(bounds: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> {
    let bounds = u64::from(*bounds.start())..=u64::from(*bounds.end());
    move |text| number(text, bounds.clone()).map(|number| number as u32)
}

pub fn megabytes(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<usize, String> {
    move |text| number(text, bounds.clone()).map(|number| (number as usize) << 20)
}

pub fn milliseconds(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| number(text, bounds.clone()).map(Duration::from_millis)
}

pub fn seconds(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| number(text, bounds.clone()).map(Duration::from_secs)
}

pub fn address(text: &str) -> Result<SocketAddr, String> {
    if text.contains("://") {
        return Err("must be an address and a port like 0.0.0.0:8080, not a URL".into());
    }
    text.parse().map_err(|_| "must be an address and a port like 0.0.0.0:8080 or [::]:8080".to_owned())
}

pub fn shards(text: &str) -> Result<Shards, String> {
    text.parse().ok().and_then(Shards::new).ok_or_else(|| "must be a power of two from 1 to 1024".to_owned())
}

pub fn claim_replicas(text: &str) -> Result<ClaimReplicas, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(ClaimReplicas::Auto),
        ("all", _) => Ok(ClaimReplicas::All),
        (_, Ok(count @ 1..=16)) => Ok(ClaimReplicas::Count(count)),
        _ => Err("must be auto, all, or a number from 1 to 16".into()),
    }
}

pub fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| "must be a header's name like X-User-Id".to_owned())
}

pub fn token(text: &str) -> Result<String, String> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err("must be visible ASCII without spaces, because it travels in a header".into())
}

pub fn pem_file(path: &str) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    match CertificateDer::pem_slice_iter(&bytes).next() {
        Some(Ok(_)) => Ok(bytes),
        _ => Err("must be a file of PEM certificates (-----BEGIN CERTIFICATE-----)".into()),
    }
}

/// Origins as browsers send them: scheme, host, and the port where it is not the usual one; or `*`.
pub fn origins(text: &str) -> Result<Vec<HeaderValue>, String> {
    let origin = |part: &str| {
        let uri: Option<Uri> = part.parse().ok();
        let is_origin = uri.is_some_and(|uri| uri.scheme().is_some() && uri.authority().is_some())
            && !part.ends_with('/')
            && part.matches('/').count() == 2
            && part == part.to_ascii_lowercase();
        (part == "*" || is_origin).then(|| HeaderValue::from_str(part).ok()).flatten().ok_or_else(|| {
            "must be origins like https://shop.example, lower case, without a path, separated by commas".to_owned()
        })
    };
    text.split(',').map(str::trim).map(origin).collect()
}

pub fn log_filter(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("must be levels like info or headcount=debug,warn: {error}")),
    }
}

pub fn retention(text: &str) -> Result<Retention, String> {
    let days = number(text, 1..=u64::from(Retention::DAYS_MAX))?;
    // Within the bounds that were just checked.
    Ok(Retention::days(days as u32).unwrap_or(Retention::DEFAULT))
}
