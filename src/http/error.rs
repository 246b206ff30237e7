//! Errors as people and programs get them: JSON below `/api`, a page elsewhere.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
use serde_json::json;

use crate::db::ConnectError;
use crate::db::inspect::QueryError;
use crate::db::reader::ReadError;

/// Why a request was not served.
#[derive(Debug)]
pub(super) struct Problem {
    /// What kind.
    pub status: StatusCode,
    /// What is wrong, naming the input and the rule.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// PostgreSQL's, if it refused.
    pub sqlstate: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Problem {
        Problem { status, message: message.into(), hint: None, sqlstate: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn bad(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn unknown(what: &str, id: impl fmt::Display) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, format!("{what} {id} does not exist"))
    }

    pub(super) fn internal(e: &dyn fmt::Display) -> Problem {
        tracing::error!("page: {e}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let error = json!({ "message": self.message, "hint": self.hint, "sqlstate": self.sqlstate });
        HttpResponse::build(self.status).json(json!({ "error": error }))
    }
}

impl From<QueryError> for Problem {
    fn from(e: QueryError) -> Problem {
        let status = match &e {
            QueryError::Lost(_) | QueryError::NoCatalog(_) => StatusCode::SERVICE_UNAVAILABLE,
            QueryError::Denied { .. } => StatusCode::FORBIDDEN,
            // 42704: an id that names nothing; 57014: the statement took too long.
            QueryError::Refused { sqlstate, .. } if sqlstate == "42704" => StatusCode::NOT_FOUND,
            QueryError::Refused { .. } => StatusCode::CONFLICT,
            QueryError::Unexpected(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let sqlstate = match &e {
            QueryError::Refused { sqlstate, .. } => Some(sqlstate.clone()),
            _ => None,
        };
        Problem { status, message: e.to_string(), hint: e.hint(), sqlstate }
    }
}

impl From<ConnectError> for Problem {
    fn from(e: ConnectError) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string())
    }
}

impl From<ReadError> for Problem {
    fn from(e: ReadError) -> Problem {
        match e {
            ReadError::Connect(e) => e.into(),
            ReadError::Query(e) => e.into(),
            ReadError::Busy => Problem::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string()),
        }
    }
}
