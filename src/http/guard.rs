//! What holds for every request: which host it names, and what browsers are told.

use std::net::IpAddr;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, ResponseError};

use super::error::Problem;

/// Nothing from elsewhere, nothing inline, no frames: text that came from SQL stays text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Refuses a Host that only a stranger's name server could have sent here, and adds the headers.
pub(super) async fn guard<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let probe = matches!(request.path(), "/livez" | "/readyz" | "/metrics");
    let named = request.headers().get("host").and_then(|h| h.to_str().ok()).unwrap_or_default().to_owned();
    let mut response = if probe || is_ours(&named) {
        next.call(request).await?.map_into_left_body()
    } else {
        let problem =
            Problem::new(StatusCode::MISDIRECTED_REQUEST, format!("the host {named:?} is not known here"))
                .hint("use the address, localhost or the machine's own name");
        request.into_response(problem.error_response()).map_into_right_body()
    };
    add_headers(response.headers_mut());
    Ok(response)
}

fn add_headers(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// A page of a stranger can make a browser send it here under the stranger's own name (DNS rebinding), never under an
/// address, `localhost` or the machine's name.
fn is_ours(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let machine = nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok()).unwrap_or_default();
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || (!machine.is_empty() && name.eq_ignore_ascii_case(&machine))
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn a_strangers_name_is_refused() {
        for host in ["127.0.0.1:8380", "[::1]:8380", "localhost", "LOCALHOST:8380", "10.1.2.3"] {
            assert!(is_ours(host), "{host}");
        }
        for host in ["evil.example", "evil.example:8380", "127.0.0.1.evil.example", "", "localhost.evil"] {
            assert!(!is_ours(host), "{host}");
        }
    }
}
