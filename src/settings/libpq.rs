//! The home database from `DATABASE_URL` and libpq's `PG*` variables, for when no setting names it.

use super::error::{Mistake, Mistakes, Origin};
use super::layer::Layer;
use super::overrides;

/// Variables that say "a database is given"; the others (`PGUSER`, `PGPORT`…) are often set by habit alone.
const GIVING: [&str; 4] = ["PGHOST", "PGHOSTADDR", "PGDATABASE", "PGSERVICE"];

/// Variables and the connection parameters they set (PostgreSQL manual, "libpq: Environment Variables").
const PARAMETERS: [(&str, &str); 8] = [
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGPORT", "port"),
    ("PGUSER", "user"),
    ("PGDATABASE", "dbname"),
    ("PGPASSWORD", "password"),
    ("PGSSLMODE", "sslmode"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
];

/// Where libpq looks without a host: the socket folder of the distributions, then the local machine.
const USUAL_HOSTS: &str = "/var/run/postgresql,localhost";

/// The key that this source may set.
pub(super) const URL: &str = "database.url";

/// Reads `DATABASE_URL`, or else the `PG*` variables; an empty one counts as not set.
pub(super) fn layer(variables: &[(String, String)], mistakes: &mut Mistakes) -> Layer {
    let mut layer = Layer::default();
    let get = |wanted: &str| {
        variables
            .iter()
            .find(|(name, value)| name == wanted && !value.is_empty())
            .map(|(_, value)| value.as_str())
    };
    let mut put = |name: &str, url: &str| {
        overrides::put(&mut layer, URL, url, || Origin::Variable(name.to_owned()), mistakes);
    };
    if let Some(url) = get("DATABASE_URL") {
        put("DATABASE_URL", url);
    } else if get("PGSERVICE").is_some() {
        mistakes.add(|| Mistake {
            origin: Origin::Variable("PGSERVICE".to_owned()),
            message: format!(
                "connection services are not supported: unset it and set {URL}, or PGHOST and PGDATABASE"
            ),
        });
    } else if let Some(given) = GIVING.into_iter().find(|name| get(name).is_some()) {
        let host = (get("PGHOST").is_none() && get("PGHOSTADDR").is_none()).then_some(("host", USUAL_HOSTS));
        let set =
            PARAMETERS.into_iter().filter_map(|(name, parameter)| get(name).map(|value| (parameter, value)));
        let pairs =
            host.into_iter().chain(set).map(|(parameter, value)| format!("{parameter}={}", quoted(value)));
        put(given, &pairs.collect::<Vec<_>>().join(" "));
    }
    layer
}

/// Quotes a value of libpq's `key=value` form where it needs it.
fn quoted(value: &str) -> String {
    if value.chars().all(|c| c.is_alphanumeric() || "/._-,:".contains(c)) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}
