//! The page, the API, the probes and the figures, on `[http] listen`.
//!
//! It runs on a thread of its own and asks the catalog on connections of its own ([`Readers`]), so whatever a browser does
//! can hold up no turn. Of the actors it knows the Monitor alone, by the message `GetSnapshot`. It decides nothing: what
//! it is asked to do becomes a request row, as from the command line.

mod actions;
mod api;
mod assets;
mod error;
mod guard;
mod live;
mod metrics;
mod pages;
mod probes;
mod query;
mod routes;
mod state;
mod token;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix::Recipient;
use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, middleware, web};

use crate::messages::GetSnapshot;
use crate::settings::Http;
use state::State;
use token::Token;

/// Connections that are kept; more wait in the system's queue.
const MAX_CONNECTIONS: usize = 256;
/// A request must have come whole after this.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// A connection without requests is closed after this.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Requests under way may end for so long, in seconds, when the service leaves.
const STOP_LIMIT: u64 = 2;
/// The largest body that is read, in bytes.
const MAX_BODY: usize = 16 * 1024;

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be listened on.
    #[error("http.listen = {listen}: {source}")]
    Listen {
        /// As configured.
        listen: SocketAddr,
        /// Most often: in use.
        source: std::io::Error,
    },
    /// The token cannot be used.
    #[error("http.token_file = {}: {reason}", path.display())]
    Token {
        /// As configured.
        path: std::path::PathBuf,
        /// Why.
        reason: String,
    },
}

impl HttpError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            HttpError::Listen { .. } => {
                "another service or program may hold the port: choose another one, or port 0 for any free one, with --set http.listen=127.0.0.1:0"
            }
            HttpError::Token { .. } => {
                "name a file that the service can read, or leave the key out for a read-only page"
            }
        }
    }
}

/// The address is ours and the token is read, before anything is started that would have to be stopped again.
pub struct Bound {
    listener: TcpListener,
    token: Option<Token>,
}

impl Bound {
    /// Listens; nobody is answered yet.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn new(http: &Http) -> Result<Bound, HttpError> {
        let failed = |source| HttpError::Listen { listen: http.listen, source };
        let token = http.token_file.as_deref().map(Token::read).transpose()?;
        Ok(Bound { listener: TcpListener::bind(http.listen).map_err(failed)?, token })
    }

    /// Serves until [`Server::stop`]; `home_url` is where the catalog is. Must be called inside an actix system.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn serve(self, home_url: &str, monitor: Recipient<GetSnapshot>) -> Result<Server, HttpError> {
        let Bound { listener, token } = self;
        let listen = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        let steering =
            if token.is_some() { "steering with the token" } else { "read-only: no http.token_file" };
        let state = web::Data::new(State::new(token, home_url, monitor));
        let shared = state.clone();
        let running = HttpServer::new(move || {
            App::new()
                .app_data(shared.clone())
                .app_data(web::PayloadConfig::new(MAX_BODY))
                .wrap(middleware::from_fn(guard::guard))
                .configure(routes::configure)
        })
        .workers(1)
        .max_connections(MAX_CONNECTIONS)
        .client_request_timeout(REQUEST_LIMIT)
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(STOP_LIMIT)
        .disable_signals()
        .listen(listener)
        .map_err(|source| HttpError::Listen { listen, source })?
        .run();
        let handle = running.handle();
        actix_rt::spawn(live::look(state.clone()));
        actix_rt::spawn(async move {
            if let Err(e) = running.await {
                tracing::error!("the page is not served any more: {e}");
            }
        });
        tracing::info!("page and API at http://{listen}/ ({steering})");
        Ok(Server { handle, state })
    }
}

/// A page that is being served.
pub struct Server {
    handle: ServerHandle,
    state: web::Data<State>,
}

impl Server {
    /// Ends it: event streams at once, requests under way within two seconds.
    pub async fn stop(self) {
        self.state.close();
        self.handle.stop(true).await;
    }
}
