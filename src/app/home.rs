//! The home database: the one that settings name, or a private PostgreSQL that we start and keep.

use super::AppError;
use crate::cluster::{Binaries, Cluster, ClusterOptions, StopMode};
use crate::db::connect::Access;
use crate::db::{bootstrap, connect};
use crate::settings::Settings;

/// Where the catalog is.
#[derive(Debug)]
pub struct Home {
    /// The URL by which the service logs in.
    pub service_url: String,
    /// The URL by which a person submits: as themselves, or as the default owner of a private server.
    pub submit_url: String,
    cluster: Option<Cluster>,
}

impl Home {
    /// Finds home. Without a database in the settings a private PostgreSQL is started under `data_dir`, and its
    /// superuser may own tasks.
    ///
    /// # Errors
    /// When there are no binaries, the server does not start, or a second instance holds it.
    pub async fn prepare(settings: &mut Settings) -> Result<Home, AppError> {
        if let Some(url) = &settings.database.url {
            return Ok(Home { service_url: url.clone(), submit_url: url.clone(), cluster: None });
        }
        let binaries = Binaries::find_for(&settings.data_dir)?;
        let cluster = Cluster::start(&binaries, ClusterOptions::new(&settings.data_dir)).await?;
        bootstrap::bootstrap(&connect::parse_url(&cluster.url(bootstrap::OWNER, "postgres"))?).await?;
        settings.allow_superuser_owners = true;
        tracing::info!(pid = cluster.pid(), "private PostgreSQL {} started", binaries.version);
        Ok(Home {
            service_url: cluster.url(bootstrap::SERVICE_ROLE, bootstrap::DATABASE),
            submit_url: cluster.url(bootstrap::OWNER, bootstrap::DATABASE),
            cluster: Some(cluster),
        })
    }

    /// The service's connection settings.
    ///
    /// # Errors
    /// When the URL cannot be parsed.
    pub fn config(&self) -> Result<Access, AppError> {
        Ok(connect::parse_url(&self.service_url)?)
    }

    /// Is it a private server of ours?
    pub fn is_private(&self) -> bool {
        self.cluster.is_some()
    }

    /// Keeps a private server running: starts it again when it dies. Never returns; does nothing for a server that is
    /// not ours.
    pub async fn keep(&mut self) {
        let Some(cluster) = &mut self.cluster else { return std::future::pending().await };
        loop {
            match cluster.exited().await {
                Ok(status) => tracing::warn!("the private PostgreSQL ended ({status}); starting it again"),
                Err(e) => tracing::warn!("the private PostgreSQL cannot be watched: {e}"),
            }
            while let Err(e) = cluster.restart(StopMode::Fast).await {
                tracing::error!("the private PostgreSQL does not start, trying again: {e}");
                tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            }
        }
    }

    /// Stops a private server in order.
    pub async fn close(self) {
        if let Some(cluster) = self.cluster
            && let Err(e) = cluster.stop(StopMode::Fast).await
        {
            tracing::warn!("stopping the private PostgreSQL: {e}");
        }
    }
}
