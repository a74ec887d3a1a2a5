//! The OpenAPI 3.1 document, made from the handlers.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::admin::{campaigns, claims as books, events, ledger, packets};
use super::ops;
use super::problem::Problem;
use super::public::{claims, counts, gate, remaining, single, visits};
use super::response::json_no_store;
use super::state::AppState;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Headcount",
        description = "How many different people came, and how many places are left. Calls tagged `visits`, `counts` and `claims` are on the public listener, all others on the admin listener.",
    ),
    servers((url = "/")),
    paths(
        visits::record,
        visits::record_lines,
        counts::count,
        counts::counts,
        claims::claim,
        single::lookup,
        single::get,
        single::release,
        single::confirm,
        remaining::remaining,
        gate::gate,
        gate::check,
        campaigns::list,
        campaigns::get,
        campaigns::put,
        campaigns::patch,
        campaigns::close,
        campaigns::remove,
        books::audit,
        books::list,
        books::void,
        packets::add,
        packets::results,
        ledger::reconcile,
        ledger::erase,
        events::list,
        events::get,
        events::put,
        events::reset,
        ops::livez,
        ops::readyz,
        ops::metrics,
        openapi,
    ),
    modifiers(&SecondForms, &Token)
)]
pub struct Document;

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "ops",
    responses((status = 200, description = "The OpenAPI 3.1 document", body = Object))
)]
pub async fn openapi(_: Arc<AppState>, _: Request) -> Result<Response, Problem> {
    Ok(json_no_store(StatusCode::OK, &Document::openapi()))
}

/// Calls that answer as another one does: the form without an id in the path, or another method.
/// (method, path, method of the other, path of the other)
const SECOND_FORMS: [(&str, &str, &str, &str); 21] = [
    ("POST", "/v1/campaign/reconcile", "POST", "/v1/campaigns/{campaign}/reconcile"),
    ("POST", "/v1/campaign/packets", "POST", "/v1/campaigns/{campaign}/packets"),
    ("GET", "/v1/campaign/results", "GET", "/v1/campaigns/{campaign}/results"),
    ("GET", "/v1/count", "GET", "/v1/events/{event}/count"),
    ("POST", "/v1/claims", "POST", "/v1/campaigns/{campaign}/claims"),
    ("POST", "/v1/claims/lookup", "POST", "/v1/campaigns/{campaign}/claims/lookup"),
    ("GET", "/v1/claim", "GET", "/v1/campaigns/{campaign}/claims/{claim_id}"),
    ("DELETE", "/v1/claim", "DELETE", "/v1/campaigns/{campaign}/claims/{claim_id}"),
    ("POST", "/v1/claim/confirm", "POST", "/v1/campaigns/{campaign}/claims/{claim_id}/confirm"),
    ("POST", "/v1/claim/void", "POST", "/v1/campaigns/{campaign}/claims/{claim_id}/void"),
    ("GET", "/v1/remaining", "GET", "/v1/campaigns/{campaign}/remaining"),
    ("GET", "/v1/campaign", "GET", "/v1/campaigns/{campaign}"),
    ("PUT", "/v1/campaign", "PUT", "/v1/campaigns/{campaign}"),
    ("PATCH", "/v1/campaign", "PATCH", "/v1/campaigns/{campaign}"),
    ("DELETE", "/v1/campaign", "DELETE", "/v1/campaigns/{campaign}"),
    ("POST", "/v1/campaign/close", "POST", "/v1/campaigns/{campaign}/close"),
    ("GET", "/v1/campaign/audit", "GET", "/v1/campaigns/{campaign}/audit"),
    ("GET", "/v1/campaign/claims", "GET", "/v1/campaigns/{campaign}/claims"),
    ("GET", "/v1/event", "GET", "/v1/events/{event}"),
    ("PUT", "/v1/event", "PUT", "/v1/events/{event}"),
    ("DELETE", "/v1/event", "DELETE", "/v1/events/{event}"),
];

struct SecondForms;

impl Modify for SecondForms {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        name_operations(document);
        for (method, path, other_method, other_path) in SECOND_FORMS {
            let paths = &mut document.paths.paths;
            let Some(other) = paths.get_mut(other_path).and_then(|item| slot(item, other_method).clone()) else {
                continue;
            };
            *slot(paths.entry(path.to_owned()).or_default(), method) = Some(second_form(other, method, path));
        }
    }
}

/// Operation ids from method and path: unique, and readable in generated clients.
fn name_operations(document: &mut utoipa::openapi::OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            if let Some(operation) = slot(item, method) {
                operation.operation_id = Some(operation_id(method, path));
            }
        }
    }
}

fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(['/', '.', '{', '}']).filter(|word| !word.is_empty() && *word != "v1");
    words.fold(method.to_ascii_lowercase(), |id, word| id + "_" + word)
}

/// What the path no longer carries is in the query, or in the body where there is one that has a field for it.
fn second_form(mut operation: Operation, method: &str, path: &str) -> Operation {
    operation.operation_id = Some(operation_id(method, path));
    let in_body = path.starts_with("/v1/claims");
    let parameters = operation.parameters.take().unwrap_or_default().into_iter();
    let parameters = parameters.filter_map(|parameter| {
        let RefOr::T(mut parameter) = parameter else { return Some(parameter) };
        let is_in_path = path.contains(&format!("{{{}}}", parameter.name));
        if parameter.parameter_in == ParameterIn::Path && !is_in_path {
            if in_body {
                return None;
            }
            parameter.parameter_in = ParameterIn::Query;
        }
        Some(RefOr::T(parameter))
    });
    operation.parameters = Some(parameters.collect());
    operation
}

fn slot<'a>(item: &'a mut PathItem, method: &str) -> &'a mut Option<Operation> {
    match method {
        "GET" => &mut item.get,
        "POST" => &mut item.post,
        "PUT" => &mut item.put,
        "PATCH" => &mut item.patch,
        _ => &mut item.delete,
    }
}

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::router::{admin_routes, public_routes};

    #[test]
    fn every_route_is_in_the_document_and_the_other_way_round() {
        let (public, admin) = (public_routes(), admin_routes());
        let routes: BTreeSet<(String, String)> = public
            .documented()
            .iter()
            .chain(admin.documented())
            .map(|(method, path)| (method.to_ascii_lowercase(), (*path).to_owned()))
            .collect();
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let documented: BTreeSet<(String, String)> = paths
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())))
            .collect();
        assert_eq!(routes, documented);
    }

    #[test]
    fn the_document_is_openapi_3_1_with_unique_operations_and_known_schemas() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
        let text = document.to_string();
        let ids: Vec<&str> =
            text.split("\"operationId\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{ids:?}");
        for reference in text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(document["components"]["schemas"].get(reference).is_some(), "{reference} is not defined");
        }
        // A parameter that the path does not carry must not be said to be in it.
        for (path, item) in document["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let name = parameter["name"].as_str().unwrap();
                    let in_path = path.contains(&format!("{{{name}}}"));
                    assert_eq!(parameter["in"] == "path", in_path, "{path} {name}");
                }
            }
        }
    }

    #[test]
    fn every_call_stands_in_the_page_for_callers() {
        let page = include_str!("../../docs/API.md");
        let (public, admin) = (public_routes(), admin_routes());
        for (method, path) in public.documented().iter().chain(admin.documented()) {
            let named = page.lines().any(|line| {
                let ends = ["`", "?", " "].map(|end| format!("{path}{end}"));
                line.contains(method) && ends.iter().any(|whole| line.contains(whole.as_str()))
            });
            let in_curl = path.replace("{event}", "launch").replace("{campaign}", "tickets");
            let shown = page.lines().any(|line| line.starts_with("curl") && line.contains(&in_curl));
            assert!(named || shown, "{method} {path} is not in docs/API.md");
        }
    }
}
