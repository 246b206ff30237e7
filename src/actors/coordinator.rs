//! Takes nodes from a home that is a Citus coordinator, if the settings say so (`database.citus_nodes`).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use actix::Recipient;
use tokio::sync::watch;
use tokio_postgres::Client;

use crate::db::catalog::citus;
use crate::db::{DbError, Target};
use crate::messages::NodesFound;
use crate::settings::Settings;

/// How often the coordinator is asked whether it knows other nodes than before.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The urls of the coordinator's nodes by id: home's own, but for host and port. None without the setting.
pub(super) async fn nodes(
    home: &Client,
    home_url: &str,
    settings: &Settings,
) -> Result<BTreeMap<String, String>, DbError> {
    if !settings.database.citus_nodes {
        return Ok(BTreeMap::new());
    }
    let found = citus::nodes(home).await?.unwrap_or_default();
    let url = |(id, (host, port)): (String, (String, u16))| {
        let url = Target::elsewhere(home_url, &host, port).map_err(|e| DbError::Url(e.to_string()))?;
        Ok((id, url))
    };
    found.into_iter().map(url).collect()
}

/// Looks again and again, and tells `superior` what there is, as long as the term lasts.
pub(super) async fn watch_nodes(
    home: &Client,
    home_url: &str,
    settings: watch::Receiver<Settings>,
    superior: Recipient<NodesFound>,
) -> Infallible {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = settings.borrow().clone();
        match nodes(home, home_url, &now).await {
            Ok(found) => superior.do_send(NodesFound(found)),
            Err(e) => tracing::debug!("{e}"),
        }
    }
}
