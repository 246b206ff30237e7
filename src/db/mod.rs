//! All SQL of the service: connections, migrations, owners' sessions, completion records, the catalog.

pub mod catalog;
pub mod connect;
pub mod error;
pub mod migrate;
pub mod pipeline;
