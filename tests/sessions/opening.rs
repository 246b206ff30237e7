//! Opening: who is refused, by whom, and whom it concerns.

use std::time::Duration;

use crate::cluster::{LIMIT, MESSAGE_BYTES, Yard, cluster, committed, target};
use yardmaster::db::{OpenError, Session, Target, open};

async fn try_open(target: &Target, owner: &str, password: Option<&str>) -> Result<Session, OpenError> {
    open(target, owner, password, LIMIT, MESSAGE_BYTES).await
}

#[track_caller]
fn refused(result: Result<Session, OpenError>, state: &str) -> String {
    match result {
        Err(OpenError::Refused { sqlstate, message }) if sqlstate == state => message,
        other => panic!("not refused with {state}: {other:?}"),
    }
}

#[tokio::test]
async fn a_session_knows_who_it_is() {
    let yard = Yard::new().await;
    let s = yard.open().await;
    let backend = s.backend();
    let oid: u32 = yard.value(&format!("SELECT '{}'::regrole::oid", yard.owner)).await.parse().unwrap();
    assert_eq!((s.identity().owner_oid, s.identity().superuser), (oid, false));
    let row = yard
        .admin
        .query_one(
            "SELECT backend_start, pg_postmaster_start_time() FROM pg_stat_activity WHERE pid = $1",
            &[&backend.pid],
        )
        .await
        .unwrap();
    assert_eq!((backend.start, s.server_started()), (row.get(0), row.get(1)));
    assert!(s.is_reusable() && s.uses() == 0);
    let odd = format!("Ünï \\ '{}", yard.owner);
    yard.admin.batch_execute(&format!("CREATE ROLE \"{odd}\" LOGIN")).await.unwrap();
    assert!(try_open(&yard.target(), &odd, None).await.is_ok());
    assert!(open(&yard.target(), "postgres", None, LIMIT, 4096).await.unwrap().identity().superuser);
}

#[tokio::test]
async fn what_concerns_the_owner_is_refused_with_the_servers_words() {
    let yard = Yard::new().await;
    let at = yard.target();
    let text = refused(try_open(&at, "nobody_here", None).await, "28000");
    assert_eq!(text, "role \"nobody_here\" does not exist");
    yard.admin.batch_execute(&format!("ALTER ROLE {} NOLOGIN", yard.owner)).await.unwrap();
    refused(try_open(&at, &yard.owner, None).await, "28000");
    yard.admin.batch_execute(&format!("ALTER ROLE {} LOGIN", yard.owner)).await.unwrap();
    refused(try_open(&target("no_such_database"), &yard.owner, None).await, "3D000");
    yard.admin
        .batch_execute(&format!("REVOKE CONNECT ON DATABASE {} FROM PUBLIC", yard.database))
        .await
        .unwrap();
    refused(try_open(&at, &yard.owner, None).await, "42501");
}

#[tokio::test]
async fn passwords_are_checked_and_a_missing_one_is_named() {
    let yard = Yard::new().await;
    let sql = format!("ALTER ROLE {0} PASSWORD 's3cret'; GRANT passworded TO {0}", yard.owner);
    yard.admin.batch_execute(&sql).await.unwrap();
    let url = format!("postgresql://ignored:wrong@127.0.0.1:{}/{}", cluster().port, yard.database);
    let at = Target::parse(&url).unwrap();
    let text = refused(try_open(&at, &yard.owner, None).await, "28P01");
    assert_eq!(
        text,
        format!("the server asks for a password of role \"{}\", and none is configured", yard.owner)
    );
    let text = refused(try_open(&at, &yard.owner, Some("no")).await, "28P01");
    assert_eq!(text, format!("password authentication failed for user \"{}\"", yard.owner));
    let mut s = try_open(&at, &yard.owner, Some("s3cret")).await.unwrap();
    assert!(!format!("{s:?}").contains("s3cret"));
    // Over TCP, the server's own keepalive is set too.
    let command = "DO $$BEGIN RAISE NOTICE '% % % %', current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'), \
                   current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout'); END$$";
    let message = committed(yard.run(&mut s, command).await);
    assert!(
        message.starts_with("NOTICE: 5 2 3 9000\n") || message.starts_with("NOTICE: 5 2 3 9s\n"),
        "{message}"
    );
    assert!(s.canceller().cancel().await.unwrap());
}

#[tokio::test]
async fn a_full_house_is_no_failure_and_the_roles_own_limit_is_told_apart() {
    let yard = Yard::new().await;
    yard.admin.batch_execute(&format!("ALTER ROLE {} CONNECTION LIMIT 1", yard.owner)).await.unwrap();
    let first = yard.open().await;
    let second = try_open(&yard.target(), &yard.owner, None).await;
    assert!(matches!(second, Err(OpenError::TooMany { role_limit: true, .. })), "{second:?}");
    drop(first);
    yard.admin.batch_execute(&format!("ALTER DATABASE {} CONNECTION LIMIT 0", yard.database)).await.unwrap();
    // The first one's backend takes a moment to notice that it was left.
    let mut third = try_open(&yard.target(), &yard.owner, None).await;
    for _ in 0..200 {
        if !matches!(third, Err(OpenError::TooMany { role_limit: true, .. })) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        third = try_open(&yard.target(), &yard.owner, None).await;
    }
    assert!(
        matches!(&third, Err(OpenError::TooMany { role_limit: false, sqlstate, .. }) if sqlstate == "53300"),
        "{third:?}"
    );
}

#[tokio::test]
async fn silence_concerns_the_node_and_the_next_host_is_tried() {
    let yard = Yard::new().await;
    // Bound, so that nobody else gets the port; never accepting, so that the login hangs.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let (c, db) = (cluster(), &yard.database);
    let nowhere = Target::parse(&format!("host=/nonexistent port=1 dbname={db}")).unwrap();
    let error = try_open(&nowhere, &yard.owner, None).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::Unreachable { message } if message.contains("/nonexistent/.s.PGSQL.1")),
        "{error}"
    );
    let both = format!("postgresql://127.0.0.1:{silent_port},127.0.0.1:{}/{db}", c.port);
    let started = std::time::Duration::from_millis(500);
    let mut s = open(&Target::parse(&both).unwrap(), &yard.owner, None, started, 4096).await.unwrap();
    committed(yard.run(&mut s, "SELECT 1").await);
    let alone = Target::parse(&format!("postgresql://127.0.0.1:{silent_port}/{db}")).unwrap();
    let error = open(&alone, &yard.owner, None, Duration::from_millis(200), 4096).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::Unreachable { message } if message.contains("within 200ms")),
        "{error}"
    );
    let unknown = Target::parse(&format!("host=no-such-host.invalid dbname={db}")).unwrap();
    let error = try_open(&unknown, &yard.owner, None).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::Unreachable { message } if message.contains("no-such-host.invalid")),
        "{error}"
    );
}

#[tokio::test]
async fn a_session_whose_backend_is_gone_is_not_reusable() {
    let yard = Yard::new().await;
    let s = yard.open().await;
    yard.value(&format!("SELECT pg_terminate_backend({})", s.backend().pid)).await;
    let gone = async {
        while s.is_reusable() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, gone).await.unwrap();
}

#[tokio::test]
async fn a_role_that_lost_its_login_is_noticed_when_asked() {
    let yard = Yard::new().await;
    let owner = &yard.owner;
    let recheck = |change: String| {
        let yard = &yard;
        async move {
            let mut s = yard.open().await;
            s.recheck(LIMIT).await.unwrap();
            assert!(s.is_reusable());
            yard.admin.batch_execute(&change).await.unwrap();
            let error = s.recheck(LIMIT).await.unwrap_err();
            assert!(!s.is_reusable());
            refused(Err(error), "28000")
        }
    };
    let text = recheck(format!("ALTER ROLE {owner} NOLOGIN")).await;
    assert!(text.ends_with("is not permitted to log in any more"), "{text}");
    yard.admin.batch_execute(&format!("ALTER ROLE {owner} LOGIN")).await.unwrap();
    let text = recheck(format!("ALTER ROLE {owner} RENAME TO {owner}_new")).await;
    assert!(text.ends_with(&format!("is called \"{owner}_new\" now")), "{text}");
    yard.admin.batch_execute(&format!("ALTER ROLE {owner}_new RENAME TO {owner}")).await.unwrap();
    let text = recheck(format!("REVOKE CONNECT ON DATABASE {} FROM PUBLIC", yard.database)).await;
    assert!(text.contains("no CONNECT privilege"), "{text}");
    yard.admin
        .batch_execute(&format!("GRANT CONNECT ON DATABASE {} TO PUBLIC", yard.database))
        .await
        .unwrap();
    let text = recheck(format!("DROP OWNED BY {owner}; DROP ROLE {owner}")).await;
    assert!(text.ends_with("does not exist any more"), "{text}");
}

#[tokio::test]
async fn opening_and_running_can_be_spawned() {
    let yard = Yard::new().await;
    let (target, owner) = (yard.target(), yard.owner.clone());
    let name = crate::cluster::new_attempt();
    let completion = yard.completion(&name);
    let end = tokio::spawn(async move {
        let mut s = open(&target, &owner, None, LIMIT, MESSAGE_BYTES).await.unwrap();
        s.run_transactional(&yardmaster::db::Order { name, command: "SELECT 1" }, &completion).await
    });
    assert_eq!(committed(end.await.unwrap()), "SELECT 1");
}
