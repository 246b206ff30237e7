//! The pages, made here and sent whole; the script only fetches them again and sends requests.
//!
//! All text goes through maud, which escapes it, and the policy of [`super::guard`] allows no inline script or style
//! besides: what comes from SQL is shown, never obeyed.

mod frame;
mod gantt;
mod graph;
pub(super) mod job;
pub(super) mod jobs;
pub(super) mod nodes;
mod parts;
pub(super) mod task;

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
use maud::{Markup, html};

use super::error::Problem;
use crate::db::reader::ReadError;

/// A problem that is shown as a page.
#[derive(Debug)]
pub(super) struct Failed(pub Problem);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for Failed {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse {
        let title = self.0.status.canonical_reason().unwrap_or("Error");
        let body = html! {
            section.card.problem {
                h1 { (title) }
                p { (self.0.message) }
                @if let Some(hint) = &self.0.hint { p.hint { (hint) } }
                p { a href="/" { "All jobs" } }
            }
        };
        page(self.0.status, &frame::Frame { title, live: None, now: None, steerable: false, here: "" }, &body)
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Failed {
        Failed(problem)
    }
}

impl From<ReadError> for Failed {
    fn from(e: ReadError) -> Failed {
        Failed(e.into())
    }
}

type Page = Result<HttpResponse, Failed>;

fn page(status: StatusCode, frame: &frame::Frame<'_>, body: &Markup) -> HttpResponse {
    HttpResponse::build(status)
        .content_type("text/html; charset=utf-8")
        .body(frame.around(body).into_string())
}
