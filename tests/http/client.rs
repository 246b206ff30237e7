//! Requests to a service's page.

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::support::{Launch, PATIENCE, Service, eventually};

/// Where a service's page is.
#[derive(Clone)]
pub struct Site {
    /// `http://127.0.0.1:PORT`
    pub root: String,
    agent: Agent,
}

/// The token of [`with_token`].
pub const TOKEN: &str = "open-sesame-0123456789";

/// What came back.
pub struct Answer {
    pub status: u16,
    pub kind: String,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
}

/// A launch whose page can steer, and the file that holds its token.
pub fn with_token(launch: Launch) -> (Launch, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{TOKEN}\n")).unwrap();
    (launch.set("http.token_file", file.path().to_str().unwrap()), file)
}

impl Site {
    /// Waits until the service says where its page is.
    pub async fn of(service: &Service) -> Site {
        let found = eventually(PATIENCE, async || {
            let log = service.log();
            let (_, rest) = log.split_once("page and API at ")?;
            Some(rest.split_once("/ (")?.0.to_owned())
        });
        let root = found.await.expect("the service says where its page is");
        let config =
            Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build();
        Site { root, agent: config.into() }
    }

    /// `127.0.0.1:PORT`
    pub fn authority(&self) -> &str {
        self.root.trim_start_matches("http://")
    }

    pub fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[])
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.agent.get(format!("{}{path}", self.root));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.call().unwrap_or_else(|e| panic!("GET {path}: {e}")))
    }

    pub fn post(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.agent.post(format!("{}{path}", self.root));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.send_empty().unwrap_or_else(|e| panic!("POST {path}: {e}")))
    }
}

fn answer(mut response: Response<Body>) -> Answer {
    let kind =
        response.headers().get("content-type").and_then(|k| k.to_str().ok()).unwrap_or_default().to_owned();
    let status = response.status().as_u16();
    Answer { status, kind, text: response.body_mut().read_to_string().unwrap() }
}
