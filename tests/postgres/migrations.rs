//! Migrations, alone and beside one another.

use yardmaster::db::connect::{Access, parse_url};
use yardmaster::db::migrate::{Migrated, migrate, own_version};

use crate::support::{Db, Launch, yardmaster};

fn config(db: &Db) -> Access {
    parse_url(&db.url("yard_service")).unwrap()
}

#[tokio::test]
async fn a_second_migration_finds_nothing_to_do() {
    let db = Db::bare().await;
    let own = own_version();
    assert_eq!(migrate(&config(&db)).await.unwrap(), Migrated { from: 0, to: own });
    assert_eq!(migrate(&config(&db)).await.unwrap(), Migrated { from: own, to: own });
}

#[tokio::test]
async fn five_migrations_at_once_are_one() {
    let db = Db::bare().await;
    let config = config(&db);
    let all = futures::future::join_all((0..5).map(|_| migrate(&config))).await;
    let all: Vec<Migrated> = all.into_iter().map(Result::unwrap).collect();
    assert_eq!(all.iter().filter(|m| m.from == 0).count(), 1, "{all:?}");
    assert!(all.iter().all(|m| m.to == own_version()), "{all:?}");
    let history = "SELECT count(*) = max(version) AND count(*) = count(DISTINCT version) FROM yardmaster.schema_history";
    assert_eq!(db.value(history).await, "t");
}

/// SPEC 7: both versions are named.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let db = Db::new().await;
    db.sql(
        "INSERT INTO yardmaster.schema_history (version, name, applied_on, checksum)
         VALUES (9001, 'from the future', now()::text, '1')",
    )
    .await;
    let refused = migrate(&config(&db)).await.unwrap_err().to_string();
    assert!(refused.contains("9001") && refused.contains(&own_version().to_string()), "{refused}");
    let mut service = Launch::on(&db).spawn();
    assert_eq!(service.wait_exit().await, 3);
    assert!(service.log().contains("9001"), "{}", service.log());
}

/// A schema that somebody prepared for us is not used.
#[tokio::test]
async fn a_schema_that_is_not_ours_is_refused() {
    let db = Db::bare().await;
    db.sql("CREATE SCHEMA yardmaster AUTHORIZATION carol").await;
    let refused = migrate(&config(&db)).await.unwrap_err().to_string();
    assert!(refused.contains("belongs to role \"carol\""), "{refused}");
}

#[tokio::test]
async fn the_command_says_what_it_did() {
    let db = Db::bare().await;
    for says in ["catalog created, version", "catalog is up to date, version"] {
        let mut command = yardmaster(&["migrate"]);
        let told = command.env("DATABASE_URL", db.url("yard_service")).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        assert!(String::from_utf8_lossy(&told.stdout).contains(says));
    }
}

/// A home of any encoding takes them: PostgreSQL converts comments too, and refuses what it cannot.
#[test]
fn migrations_are_plain_ascii() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let wrong = text.lines().position(|line| !line.is_ascii());
        assert_eq!(wrong.map(|line| line + 1), None, "{}: this line is not ASCII", path.display());
        count += 1;
    }
    assert!(count >= 6, "only {count} migrations");
}
