//! Whatever bytes a client sends, the parsers answer with a request or with a problem that names what is wrong.
//! Called by cargo-fuzz (`fuzz_targets/request_parsers.rs`) and by the driver on stable Rust (`tests/core/requests.rs`).

use headcount::api::admin::campaigns::{CampaignBody, CampaignPatchBody};
use headcount::api::admin::events::EventBody;
use headcount::api::body::inflate;
use headcount::api::id;
use headcount::api::problem::Problem;
use headcount::api::query::Known;
use headcount::api::request::{COUNT_QUERY, ClaimBody, CountsBody, LINES_MAX, VisitBody, VisitLines, days_of};
use hyper::Uri;

/// Feeds the bytes to every parser; the number that took them.
pub fn request_parsers(bytes: &[u8]) -> usize {
    let visit = || {
        let body = VisitBody::parse(bytes)?;
        body.at()?;
        let visitors = body.visitors(None)?;
        assert!((1..=1_000).contains(&visitors.as_slice().len()));
        Ok(())
    };
    let claim = || {
        let body = ClaimBody::parse(bytes)?;
        body.user(None)?;
        body.campaign(None).map(drop)
    };
    let lines = || {
        let lines = VisitLines::parse(bytes)?;
        let checked = lines.check();
        assert!(checked.visits.len() + checked.rejected.len() <= LINES_MAX);
        assert_eq!(checked.visits.len(), checked.lines.len());
        checked.rejected.into_iter().for_each(|(_, problem)| explained(problem));
        if checked.visits.is_empty() { Err(refusal()) } else { Ok(()) }
    };
    let uri = || {
        let uri: Uri = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(refusal)?;
        id::campaign(&uri, Known::default()).map(drop).unwrap_or_else(explained);
        let (_, query) = id::event(&uri, COUNT_QUERY)?;
        days_of(&query).map(drop)
    };
    let answers = [
        visit(),
        claim(),
        lines(),
        uri(),
        CountsBody::parse(bytes).map(drop),
        CampaignBody::parse(bytes).map(drop),
        CampaignPatchBody::parse(bytes).map(drop),
        EventBody::parse(bytes).map(drop),
        inflate(bytes, 1 << 16).map(drop),
    ];
    answers.into_iter().map(|answer| answer.map_err(explained).is_ok()).filter(|taken| *taken).count()
}

/// A problem is small, whatever it is about, and says what to do.
fn explained(problem: Problem) {
    assert!(problem.status().is_client_error());
    let body = serde_json::to_vec(&problem.into_body()).expect("a problem is JSON");
    assert!(body.len() < 4_096, "{} bytes", body.len());
}

fn refusal() -> Problem {
    Problem::new(headcount::api::problem::Kind::Malformed, "nothing was taken")
}
