//! What tests against real servers share. Include it in a test crate with
//!
//! ```ignore
//! #[path = "../support/mod.rs"]
//! mod support;
//! ```
//!
//! - [`cluster`]: one private PostgreSQL for each test binary; it ends with the process, however that ends.
//! - [`another`]: two more of the same kind.
//! - [`own`]: another one, for a test that stops or starves it.
//! - [`Db`]: a database of its own for each test, with the catalog, as people see it: alice and bob submit, carol may
//!   nothing, the superuser looks. The service logs in as `yard_service`, with the rights that the manual names.
//! - [`Service`]: the real binary, with its settings file, its log and real signals.
//! - [`Proxy`]: a network between the two that misbehaves when told to.
//! - [`eventually`]: waits for a condition. Nothing here sleeps and hopes.

// Each test crate uses its own part of this.
#![allow(dead_code, unused_imports)]

mod cluster;
mod db;
mod proxy;
mod service;
mod wait;

pub use cluster::{Private, another, cluster, own};
pub use db::{Db, Task};
pub use proxy::{Proxy, Weather};
pub use service::{Launch, Service, yardmaster};
pub use wait::{PATIENCE, eventually, until};
