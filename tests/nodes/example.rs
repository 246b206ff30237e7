//! The example that moves data between two nodes.

use yardmaster::jobfile;

use crate::node::NodeDb;
use crate::support::{Db, Launch, until};

const JOB: &str = include_str!("../../examples/move-orders.toml");
const EAST: &str = include_str!("../../examples/two_nodes/east.sql");
const WEST: &str = include_str!("../../examples/two_nodes/west.sql");

#[tokio::test]
async fn the_example_moves_all_orders_and_leaves_nothing_behind() {
    let db = Db::new().await;
    let (east, west) = (NodeDb::new(0).await, NodeDb::new(1).await);
    db.sql("CREATE ROLE app LOGIN").await;
    east.admin.batch_execute(&EAST.replace("{database}", &east.name)).await.unwrap();
    let west_sql = WEST
        .replace("{database}", &west.name)
        .replace("{east}", &east.name)
        .replace("{host}", &east.server.socket.display().to_string())
        .replace("{port}", &east.server.port().to_string());
    west.admin.batch_execute(&west_sql).await.unwrap();
    let facts = |condition: &str| {
        format!(
            "SELECT concat_ws(' ', count(*), sum(amount), min(placed_at), max(placed_at)) FROM shop.orders {condition}"
        )
    };
    let (moving, staying) = (facts("WHERE region = 'west'"), facts("WHERE region = 'east'"));
    let (to_move, to_stay) = (east.value(&moving).await, east.value(&staying).await);

    let settings = format!("{}{}", east.settings("east"), west.settings("west"));
    let service = Launch::on(&db).settings(&settings).start().await;
    let file = jobfile::parse("move-orders.toml", JOB, None).unwrap().to_submission();
    let job: i64 = db.admin.query_one("SELECT yardmaster.job_submit($1)", &[&file]).await.unwrap().get(0);
    db.await_job(job, "finished").await;
    assert_eq!(west.value(&facts("")).await, to_move);
    assert_eq!(east.value(&facts("")).await, to_stay);
    until("no schema is left", async || {
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^yardmaster_.'";
        east.value(schemas).await == "0" && west.value(schemas).await == "0"
    })
    .await;
    until("the catalog knows of none", async || {
        db.value("SELECT count(*) FROM yardmaster.scratch").await == "0"
    })
    .await;
    let copy = std::fs::read_to_string(service.data_dir().join(format!("jobs/{job}/parcel.csv"))).unwrap();
    assert_eq!(copy.lines().count(), 20_001, "with its head line");
    assert!(!service.log().contains("ERROR"), "{}", service.log());
}
