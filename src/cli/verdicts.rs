//! What the answers that `doctor` gets mean: facts in, findings out.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::findings::{Finding, Severity};
use super::text;
use crate::db::inspect::doctor::{OldSnapshot, PendingOwner, Server, TableHealth};
use crate::db::inspect::plan::PlannedNode;
use crate::db::inspect::service::Leader;
use crate::db::{OpenError, migrate, passwords};
use crate::settings::Settings;

/// The service's own connections: turns, control, lock, listen, retention, and one to migrate.
const OWN_CONNECTIONS: i64 = 7;
/// Clocks that differ by less are as good as equal.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(2);
/// Dead rows that are worth a word, if there are also several times more than live ones.
const MANY_DEAD: i64 = 50_000;
/// A snapshot this old keeps a busy catalog from being cleaned.
const OLD_SECONDS: f64 = 3600.0;
/// Below this share the queue is left to wake people; SPEC: none are sent when it is half full.
const NOTIFY_HALF: f64 = 0.5;

/// Version, kind and room of a server, and our rights on it.
pub(super) fn of_server(server: &Server, settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![of_server_version(server)];
    if server.is_standby {
        findings.push(Finding::error(
            "server",
            "it is a standby and takes no writes",
            "name the primary, or several hosts with target_session_attrs=read-write",
        ));
    }
    findings.extend(of_rights(server));
    let wanted = i64::from(settings.limits.max_task_executors) + OWN_CONNECTIONS;
    findings.push(if wanted > i64::from(server.connections) {
        Finding::warning(
            "connections",
            format!(
                "the server has {} for ordinary roles, and limits.max_task_executors = {} may need {wanted}",
                server.connections, settings.limits.max_task_executors
            ),
            "raise max_connections, or lower limits.max_task_executors; until then tasks wait for room",
        )
    } else {
        Finding::ok("connections", format!("{wanted} of {} at most", server.connections))
    });
    if !server.autovacuum {
        findings.push(Finding::warning(
            "autovacuum",
            "it is off, and the catalog's tables change all the time",
            "set autovacuum = on in postgresql.conf and reload",
        ));
    }
    let usage = server.notify_usage;
    findings.push(if usage >= NOTIFY_HALF {
        Finding::warning(
            "notify queue",
            format!("{:.0} % full: nobody is woken any more, polls find work within a second", usage * 100.0),
            "end the session that listens and does not read: it is the oldest one in a long transaction",
        )
    } else {
        Finding::ok("notify queue", format!("{:.0} % full", usage * 100.0))
    });
    findings
}

fn of_server_version(server: &Server) -> Finding {
    if (140_000..190_000).contains(&server.version) {
        Finding::ok("server", format!("PostgreSQL {}", server.version_text))
    } else {
        Finding::error(
            "server",
            format!("PostgreSQL {} is not supported", server.version_text),
            "use one of the versions 14 to 18",
        )
    }
}

fn of_rights(server: &Server) -> Vec<Finding> {
    let role = &server.role;
    if server.is_superuser {
        return vec![Finding::note(
            "rights",
            format!("{role} is a superuser, which the service does not need to be"),
        )];
    }
    let needed = [
        ("yardmaster_owner", server.owns_catalog.unwrap_or(false), "to write the catalog"),
        ("pg_read_all_stats", server.reads_stats, "to see which backends of tasks are alive"),
        ("pg_signal_backend", server.signals_backends, "to end backends of tasks"),
    ];
    let lacking: Vec<Finding> = needed
        .into_iter()
        .filter(|(_, has, _)| !has)
        .map(|(group, _, why)| {
            Finding::error(
                "rights",
                format!("{role} is not a member of {group}, which the service needs {why}"),
                format!("GRANT {group} TO {role}; if another role serves, run doctor with its settings"),
            )
        })
        .collect();
    if lacking.is_empty() {
        vec![Finding::ok("rights", format!("{role} has what a service needs"))]
    } else {
        lacking
    }
}

/// The server's clock beside ours; the answer took `round_trip`.
pub(super) fn of_clock(server: Timestamp, ours: Timestamp, round_trip: Duration) -> Finding {
    let skew = ours.duration_since(server).abs();
    let blur = SignedDuration::try_from(round_trip).unwrap_or(SignedDuration::MAX);
    if skew.saturating_sub(blur) <= MAX_SKEW {
        return Finding::ok("clock", "agrees with the server's");
    }
    Finding::warning(
        "clock",
        format!(
            "differs from the server's by {}; not_before and schedules go by the server's",
            text::duration(skew)
        ),
        "synchronise both machines, for instance with chrony",
    )
}

/// A transaction pooler in between.
pub(super) fn of_pooler(is_pooled: bool) -> Finding {
    if is_pooled {
        Finding::error(
            "pooler",
            "a transaction pooler is in between: locks and LISTEN are silently wrong through it",
            "connect the service to PostgreSQL directly, or in session mode; submitting through it is fine",
        )
    } else {
        Finding::ok("pooler", "none that changes backends between transactions")
    }
}

/// The schema is not there.
pub(super) fn no_catalog() -> Finding {
    Finding::error("catalog", "this database has no schema yardmaster", "run `yardmaster migrate`")
}

/// The catalog's version beside ours.
pub(super) fn of_version(version: Option<i32>) -> Finding {
    let own = migrate::own_version();
    match version {
        None => Finding::note("catalog", "this role may not know the catalog's version"),
        Some(version) if version == own => Finding::ok("catalog", format!("version {version}")),
        Some(version) if version < own => Finding::warning(
            "catalog",
            format!("version {version}, and this program knows version {own}"),
            "run `yardmaster migrate`, or start the service",
        ),
        Some(version) => Finding::error(
            "catalog",
            format!("version {version} is newer than this program, which knows version {own}"),
            "upgrade yardmaster here",
        ),
    }
}

/// Somebody must lead.
pub(super) fn of_leader(leader: &Leader) -> Finding {
    let name = &leader.instance;
    if leader.alive {
        Finding::ok("service", format!("{name} leads"))
    } else if leader.ever() {
        let silence = text::duration(leader.silent_for);
        Finding::error(
            "service",
            format!("none runs: {name} is silent for {silence}, so no job goes on"),
            "start `yardmaster serve`, or look at its log",
        )
    } else {
        Finding::warning("service", "none has ever run on this catalog", "start `yardmaster serve`")
    }
}

/// Bloat.
pub(super) fn of_tables(tables: &[TableHealth]) -> Vec<Finding> {
    let bloated: Vec<Finding> = tables
        .iter()
        .filter(|table| table.dead > MANY_DEAD && table.dead > table.live.saturating_mul(3))
        .map(|table| {
            Finding::warning(
                "bloat",
                format!(
                    "table yardmaster.{} has {} dead rows beside {} live ones, {} MB in all",
                    table.name,
                    text::count(table.dead),
                    text::count(table.live),
                    text::count(table.bytes >> 20)
                ),
                format!("end what holds an old snapshot, then VACUUM yardmaster.{}", table.name),
            )
        })
        .collect();
    if !bloated.is_empty() {
        return bloated;
    }
    let bytes: i64 = tables.iter().map(|table| table.bytes).sum();
    vec![Finding::ok("bloat", format!("the catalog has {} MB", text::count(bytes >> 20)))]
}

/// A transaction that keeps the catalog from being cleaned.
pub(super) fn of_snapshot(oldest: Option<&OldSnapshot>) -> Finding {
    let Some(oldest) = oldest.filter(|oldest| oldest.seconds > OLD_SECONDS) else {
        return Finding::ok("snapshots", "none is old");
    };
    let age = SignedDuration::try_from_secs_f64(oldest.seconds).unwrap_or(SignedDuration::MAX);
    Finding::warning(
        "snapshots",
        format!(
            "backend {} of role {} has had a transaction open for {}: dead rows stay meanwhile",
            oldest.pid,
            oldest.role,
            text::duration(age)
        ),
        format!("end it if nobody needs it: pg_terminate_backend({})", oldest.pid),
    )
}

/// Nodes that do not take work.
pub(super) fn of_nodes(nodes: &BTreeMap<String, PlannedNode>) -> Vec<Finding> {
    let finding = |(name, node): (&String, &PlannedNode)| {
        let why = node.reason.as_deref().unwrap_or("no reason given");
        let message = format!("node {name} is {}: {why}", node.state);
        match node.state.as_str() {
            "active" => None,
            "draining" => Some(Finding::note("node", message)),
            _ => Some(Finding::warning("node", message, "it heals by itself once it can be reached")),
        }
    };
    nodes.iter().filter_map(finding).collect()
}

/// An owner's login, as the service would try it.
pub(super) fn of_login(pending: &PendingOwner, tried: Result<(), (OpenError, bool)>) -> Finding {
    let PendingOwner { node, owner } = pending;
    let place = if node.is_empty() { "at home".to_owned() } else { format!("on node {node}") };
    let (error, had_password) = match tried {
        Ok(()) => return Finding::ok("login", format!("{owner} can log in {place}")),
        Err(found) => found,
    };
    let message = format!("{owner} has tasks that wait, and {place} {error}");
    match &error {
        OpenError::Refused { message: said, .. } if said.contains("pg_hba.conf") => Finding::error(
            "login",
            message,
            "add a line for this role and the service's host to pg_hba.conf and reload PostgreSQL",
        ),
        OpenError::Refused { message: said, .. } if said.contains("password") && !had_password => {
            let variable = passwords::variable(owner);
            Finding::error(
                "login",
                message,
                format!("set {variable} for the service, or sessions.password_file"),
            )
        }
        OpenError::Refused { message: said, .. } if said.contains("password") => Finding::error(
            "login",
            message,
            "correct the owner's password in the service's environment or file",
        ),
        OpenError::Refused { .. } => Finding::error("login", message, "make it a role that may log in there"),
        OpenError::TooMany { .. } => Finding::new(
            Severity::Warning,
            "login",
            message,
            Some("its tasks wait until there is room".to_owned()),
        ),
        OpenError::Unreachable { .. } => {
            Finding::error("login", message, "check the server and the way to it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            version: 150_020,
            version_text: "15.20".to_owned(),
            role: "service".to_owned(),
            is_superuser: false,
            reads_stats: true,
            signals_backends: true,
            owns_catalog: Some(true),
            is_standby: false,
            connections: 97,
            autovacuum: true,
            notify_usage: 0.0,
            now: Timestamp::UNIX_EPOCH,
            has_catalog: true,
        }
    }

    fn worst(findings: &[Finding]) -> (Severity, String) {
        let worst = findings.iter().min_by_key(|finding| finding.severity).expect("there are some");
        (worst.severity, worst.message.clone())
    }

    #[track_caller]
    fn finds(change: impl FnOnce(&mut Server), severity: Severity, words: &str) {
        let mut server = server();
        change(&mut server);
        let found = worst(&of_server(&server, &Settings::default()));
        assert!(found.0 == severity && found.1.contains(words), "{found:?}");
    }

    #[test]
    fn a_server_that_lacks_something_is_told_what() {
        finds(|_| (), Severity::Ok, "PostgreSQL 15.20");
        finds(|s| s.version = 130_000, Severity::Error, "not supported");
        finds(|s| s.is_standby = true, Severity::Error, "standby");
        finds(|s| s.reads_stats = false, Severity::Error, "pg_read_all_stats");
        finds(|s| s.owns_catalog = None, Severity::Error, "yardmaster_owner");
        finds(|s| s.connections = 5, Severity::Warning, "max_task_executors = 4 may need 11");
        finds(|s| s.autovacuum = false, Severity::Warning, "off");
        finds(|s| s.notify_usage = 0.6, Severity::Warning, "60 % full");
        finds(|s| s.is_superuser = true, Severity::Note, "superuser");
    }

    #[test]
    fn a_slow_answer_is_no_skew() {
        let ours = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(9);
        let clock = |seconds| of_clock(Timestamp::UNIX_EPOCH, ours, Duration::from_secs(seconds)).severity;
        assert_eq!((clock(0), clock(8)), (Severity::Warning, Severity::Ok));
    }

    #[test]
    fn versions_tables_and_snapshots_are_weighed() {
        let own = migrate::own_version();
        let severity = |version| of_version(version).severity;
        assert_eq!(severity(Some(own)), Severity::Ok);
        assert_eq!(severity(Some(own - 1)), Severity::Warning);
        assert_eq!(severity(Some(own + 1)), Severity::Error);
        assert_eq!(severity(None), Severity::Note);
        let table = |live, dead| TableHealth { name: "task_state".to_owned(), live, dead, bytes: 9 << 20 };
        assert_eq!(worst(&of_tables(&[table(10, 60_000)])).0, Severity::Warning);
        assert_eq!(worst(&of_tables(&[table(60_000, 60_000), table(1, 9)])).0, Severity::Ok);
        let old = |seconds| OldSnapshot { pid: 7, role: "bob".to_owned(), seconds };
        assert_eq!(of_snapshot(Some(&old(9.0))).severity, Severity::Ok);
        assert!(of_snapshot(Some(&old(7300.0))).message.contains("2h 01m"));
    }

    #[test]
    fn each_refusal_of_a_login_has_its_remedy() {
        let pending = PendingOwner { node: String::new(), owner: "al-ice".to_owned() };
        let refused = |message: &str, had_password| {
            let e = OpenError::Refused { sqlstate: "28000".to_owned(), message: message.to_owned() };
            of_login(&pending, Err((e, had_password))).remedy.unwrap_or_default()
        };
        assert!(refused("no pg_hba.conf entry for host", false).contains("pg_hba.conf"));
        assert!(refused("password missing", false).contains("YARDMASTER_PASSWORD_AL_ICE"));
        assert!(refused("password authentication failed", true).contains("correct"));
        assert!(refused("role does not exist", false).contains("may log in"));
        assert_eq!(of_login(&pending, Ok(())).severity, Severity::Ok);
    }
}
