//! `/livez` and `/readyz`.

use actix_web::{HttpResponse, web};
use serde_json::json;

use super::state::State;
use crate::db::inspect::service;
use crate::model::yard::Mode;

/// 200 while the Monitor answers: a process that fails this is to be restarted.
pub(super) async fn livez(state: web::Data<State>) -> HttpResponse {
    match state.snapshot().await {
        Some(_) => HttpResponse::Ok().json(json!({ "live": true })),
        None => HttpResponse::ServiceUnavailable()
            .json(json!({ "live": false, "reason": "the Monitor does not answer" })),
    }
}

/// 200 while the catalog answers, some service leads it and this one is not leaving.
pub(super) async fn readyz(state: web::Data<State>) -> HttpResponse {
    let refuse =
        |reason: String| HttpResponse::ServiceUnavailable().json(json!({ "ready": false, "reason": reason }));
    match state.snapshot().await {
        None => return refuse("the Monitor does not answer".to_owned()),
        Some(snapshot) => match snapshot.mode {
            Mode::Standby | Mode::Accepting => {}
            Mode::CancellingAll | Mode::Draining | Mode::Interrupting | Mode::Stopped => {
                return refuse("it is leaving".to_owned());
            }
        },
    }
    match state.readers.ask(async |client| service::leader(client).await).await {
        Ok(leader) if leader.alive => HttpResponse::Ok()
            .json(json!({ "ready": true, "leader": leader.instance, "epoch": leader.epoch.to_string() })),
        Ok(_) => refuse("no service leads the catalog".to_owned()),
        Err(e) => refuse(e.to_string()),
    }
}
