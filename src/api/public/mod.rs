//! Handlers of the public listener.

pub mod claims;
pub mod counts;
pub mod gate;
pub mod remaining;
pub mod single;
pub mod visits;

use axum::http::HeaderMap;

use super::id::user_named;
use super::problem::{Kind, Problem};
use super::state::AppState;
use crate::domain::id::UserId;

/// The user that the ingress names, where the deployment is set up so; then it must be there.
fn user_by_ingress<'a>(app: &AppState, headers: &'a HeaderMap) -> Result<Option<UserId<'a>>, Problem> {
    let Some(name) = &app.config.user_header else { return Ok(None) };
    let field = || name.as_str().to_owned();
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => {
            let text = std::str::from_utf8(value.as_bytes())
                .map_err(|_| Problem::field(Kind::Malformed, field(), "must be UTF-8"))?;
            user_named(text, field()).map(Some)
        }
        (None, _) => Err(Problem::field(Kind::InvalidField, field(), "is required: the ingress must set it")),
        (Some(_), Some(_)) => Err(Problem::field(Kind::InvalidField, field(), "must be given only once")),
    }
}
