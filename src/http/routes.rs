//! Every address that is served, in one list: the router is made of it, and the test of the API's description reads it.

use actix_web::{HttpRequest, HttpResponse, ResponseError, web};

use super::error::Problem;
use super::{actions, api, assets, live, metrics, pages, probes};
use actix_web::http::StatusCode;

macro_rules! routes {
    ($($method:ident $path:literal => $handler:path;)+) => {
        /// Method and path of each.
        #[cfg(test)]
        pub(super) const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path)),+];

        /// Makes the router.
        pub(super) fn configure(config: &mut web::ServiceConfig) {
            config
                .app_data(web::QueryConfig::default().error_handler(|e, _| Problem::bad(e.to_string()).into()))
                $(.route($path, web::$method().to($handler)))+
                .default_service(web::to(nothing_here));
        }
    };
}

routes! {
    get "/livez" => probes::livez;
    get "/readyz" => probes::readyz;
    get "/metrics" => metrics::metrics;
    get "/" => pages::jobs::page;
    get "/jobs/{job_id}" => pages::job::page;
    get "/tasks/{task_id}" => pages::task::page;
    get "/nodes" => pages::nodes::page;
    get "/live" => live::stream;
    get "/assets/page.css" => assets::style;
    get "/assets/page.js" => assets::script;
    get "/assets/icon.svg" => assets::icon;
    get "/api/openapi.json" => assets::openapi;
    get "/api/v1/overview" => api::overview;
    get "/api/v1/jobs" => api::jobs;
    get "/api/v1/jobs/{job_id}" => api::job;
    get "/api/v1/jobs/{job_id}/tasks" => api::tasks;
    get "/api/v1/jobs/{job_id}/graph" => api::graph;
    get "/api/v1/jobs/{job_id}/attempts" => api::attempts;
    get "/api/v1/tasks/{task_id}" => api::task;
    get "/api/v1/nodes" => api::nodes;
    get "/api/v1/requests/{request_id}" => api::request;
    post "/api/v1/jobs/{job_id}/{action}" => actions::job;
    post "/api/v1/tasks/{task_id}/{action}" => actions::task;
}

async fn nothing_here(request: HttpRequest) -> HttpResponse {
    let problem = Problem::new(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {} {}", request.method(), request.path()),
    );
    if request.path().starts_with("/api/") {
        problem.hint("see /api/openapi.json").error_response()
    } else {
        pages::Failed(problem).error_response()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ROUTES;

    #[test]
    fn the_description_of_the_api_has_every_address_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(super::assets::OPENAPI).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                methods
                    .as_object()
                    .unwrap()
                    .keys()
                    .filter(|key| *key != "parameters")
                    .map(|m| (m.clone(), path.clone()))
            })
            .collect();
        let served = ROUTES.iter().filter(|(_, path)| {
            path.starts_with("/api/v1/") || ["/livez", "/readyz", "/metrics"].contains(path)
        });
        let served: BTreeSet<(String, String)> =
            served.map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(described, served);
    }
}
