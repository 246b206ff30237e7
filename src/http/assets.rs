//! The files that the binary brings along.

use actix_web::HttpResponse;

const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
const ICON: &str = include_str!("assets/icon.svg");
/// The description of the API.
pub(super) const OPENAPI: &str = include_str!("assets/openapi.json");

fn file(kind: &'static str, text: &'static str) -> HttpResponse {
    HttpResponse::Ok().content_type(kind).body(text)
}

pub(super) async fn style() -> HttpResponse {
    file("text/css; charset=utf-8", STYLE)
}

pub(super) async fn script() -> HttpResponse {
    file("text/javascript; charset=utf-8", SCRIPT)
}

pub(super) async fn icon() -> HttpResponse {
    file("image/svg+xml", ICON)
}

pub(super) async fn openapi() -> HttpResponse {
    file("application/json", OPENAPI)
}
