//! Which statements PostgreSQL refuses in a transaction block: the callers of `PreventInTransactionBlock` in
//! its sources, releases 14 to 18 (`tcop/utility.c`,
//! `commands/{cluster,dbcommands,indexcmds,subscriptioncmds,vacuum}.c`).

use pg_query::protobuf::node::Node;
use pg_query::protobuf::{
    AlterSubscriptionStmt, AlterSubscriptionType, AlterTableStmt, DefElem, DiscardMode, ObjectType,
    ReindexObjectType, ReindexStmt, Token,
};

use crate::sql::tokens::Statement;
use crate::sql::{BuiltIndex, grammar};

/// Where one statement may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// In a transaction block.
    Transactional,
    /// Outside one only; the name PostgreSQL gives the statement.
    NonTransactional(&'static str),
    /// It depends on the catalog or on procedural code; or we cannot read the statement.
    OnlyServerKnows,
}

/// Tells where a statement may run.
pub(super) fn of(statement: &Statement<'_>) -> Kind {
    match statement.kind(0) {
        Token::Call | Token::Do => Kind::OnlyServerKnows,
        _ if !may_be_non_transactional(statement) => Kind::Transactional,
        _ => grammar::tree(statement.text()).map_or(Kind::OnlyServerKnows, |tree| of_tree(&tree)),
    }
}

/// Tells by tokens whether the tree is worth reading. Says yes too often rather than too seldom, and always
/// for words that start no statement of our grammar.
fn may_be_non_transactional(statement: &Statement<'_>) -> bool {
    match statement.kind(0) {
        Token::Vacuum | Token::Cluster | Token::Reindex | Token::Discard => true,
        Token::Create | Token::Drop | Token::Alter => {
            matches!(
                statement.kind(1),
                Token::Database | Token::Tablespace | Token::SystemP | Token::Subscription
            ) || statement.kinds().any(|kind| kind == Token::Concurrently)
        }
        // An identifier or a word that cannot start a statement: syntax of a newer release, such as REPACK.
        first => first == Token::Ident || first == Token::Nul,
    }
}

fn of_tree(tree: &Node) -> Kind {
    use Kind::{NonTransactional, OnlyServerKnows, Transactional};
    match tree {
        // The same tree stands for ANALYZE alone, which may run in a block.
        Node::VacuumStmt(vacuum) if vacuum.is_vacuumcmd => NonTransactional("VACUUM"),
        Node::CreatedbStmt(_) => NonTransactional("CREATE DATABASE"),
        Node::DropdbStmt(_) => NonTransactional("DROP DATABASE"),
        Node::AlterDatabaseStmt(alter) if option(&alter.options, "tablespace").is_some() => {
            NonTransactional("ALTER DATABASE SET TABLESPACE")
        }
        Node::CreateTableSpaceStmt(_) => NonTransactional("CREATE TABLESPACE"),
        Node::DropTableSpaceStmt(_) => NonTransactional("DROP TABLESPACE"),
        Node::AlterSystemStmt(_) => NonTransactional("ALTER SYSTEM"),
        Node::IndexStmt(index) if index.concurrent => NonTransactional("CREATE INDEX CONCURRENTLY"),
        Node::DropStmt(drop) if drop.concurrent && drop.remove_type() == ObjectType::ObjectIndex => {
            NonTransactional("DROP INDEX CONCURRENTLY")
        }
        Node::ReindexStmt(reindex) => of_reindex(reindex),
        // With a table: refused since 15 if it is partitioned, which the catalog knows.
        Node::ClusterStmt(cluster) if cluster.relation.is_none() => NonTransactional("CLUSTER"),
        Node::ClusterStmt(_) => OnlyServerKnows,
        Node::AlterTableStmt(alter) if detaches_concurrently(alter) => {
            NonTransactional("ALTER TABLE DETACH PARTITION CONCURRENTLY")
        }
        Node::DiscardStmt(discard) if discard.target() == DiscardMode::DiscardAll => {
            NonTransactional("DISCARD ALL")
        }
        Node::CreateSubscriptionStmt(create) if creates_slot(&create.options) => {
            NonTransactional("CREATE SUBSCRIPTION")
        }
        Node::AlterSubscriptionStmt(alter) => of_alter_subscription(alter),
        // Refused only if the subscription still has a replication slot, which the catalog knows.
        Node::DropSubscriptionStmt(_) => OnlyServerKnows,
        _ => Transactional,
    }
}

/// See [`crate::sql::kept_index`].
pub(super) fn kept_index(tree: &Node) -> Option<BuiltIndex> {
    let Node::IndexStmt(index) = tree else { return None };
    let table = index.relation.as_ref().filter(|_| index.concurrent && index.if_not_exists)?;
    Some(BuiltIndex {
        schema: Some(table.schemaname.clone()).filter(|schema| !schema.is_empty()),
        table: table.relname.clone(),
        name: index.idxname.clone(),
    })
}

fn of_reindex(reindex: &ReindexStmt) -> Kind {
    if is_on(option(&reindex.params, "concurrently"), false) {
        return Kind::NonTransactional("REINDEX CONCURRENTLY");
    }
    match reindex.kind() {
        ReindexObjectType::ReindexObjectSchema => Kind::NonTransactional("REINDEX SCHEMA"),
        ReindexObjectType::ReindexObjectSystem => Kind::NonTransactional("REINDEX SYSTEM"),
        ReindexObjectType::ReindexObjectDatabase => Kind::NonTransactional("REINDEX DATABASE"),
        // Refused if it is partitioned.
        ReindexObjectType::ReindexObjectIndex
        | ReindexObjectType::ReindexObjectTable
        | ReindexObjectType::Undefined => Kind::OnlyServerKnows,
    }
}

fn detaches_concurrently(alter: &AlterTableStmt) -> bool {
    alter.cmds.iter().any(|cmd| match &cmd.node {
        Some(Node::AlterTableCmd(cmd)) => match cmd.def.as_ref().and_then(|def| def.node.as_ref()) {
            Some(Node::PartitionCmd(partition)) => partition.concurrent,
            _ => false,
        },
        _ => false,
    })
}

/// `create_slot` follows `connect` unless it is given; both are on by default.
fn creates_slot(options: &[pg_query::protobuf::Node]) -> bool {
    let connect = is_on(option(options, "connect"), true);
    is_on(option(options, "create_slot"), connect)
}

fn of_alter_subscription(alter: &AlterSubscriptionStmt) -> Kind {
    match alter.kind() {
        AlterSubscriptionType::AlterSubscriptionRefresh => {
            Kind::NonTransactional("ALTER SUBSCRIPTION REFRESH")
        }
        AlterSubscriptionType::AlterSubscriptionSetPublication
        | AlterSubscriptionType::AlterSubscriptionAddPublication
        | AlterSubscriptionType::AlterSubscriptionDropPublication => {
            if is_on(option(&alter.options, "refresh"), true) {
                Kind::NonTransactional("ALTER SUBSCRIPTION with refresh")
            } else {
                Kind::Transactional
            }
        }
        // `failover` (17) and `two_phase` (18) are refused depending on the subscription's state.
        AlterSubscriptionType::AlterSubscriptionOptions
            if ["failover", "two_phase"].iter().any(|name| option(&alter.options, name).is_some()) =>
        {
            Kind::OnlyServerKnows
        }
        AlterSubscriptionType::AlterSubscriptionOptions
        | AlterSubscriptionType::AlterSubscriptionConnection
        | AlterSubscriptionType::AlterSubscriptionEnabled
        | AlterSubscriptionType::AlterSubscriptionSkip
        | AlterSubscriptionType::Undefined => Kind::Transactional,
    }
}

/// Finds an option by its name, as the grammar has folded it.
fn option<'a>(options: &'a [pg_query::protobuf::Node], name: &str) -> Option<&'a DefElem> {
    options.iter().find_map(|option| match &option.node {
        Some(Node::DefElem(option)) if option.defname == name => Some(option.as_ref()),
        _ => None,
    })
}

/// Reads an option as PostgreSQL's `defGetBoolean` does: given without a value, it is on.
fn is_on(option: Option<&DefElem>, absent: bool) -> bool {
    let Some(option) = option else { return absent };
    let is_off = |word: &str| matches!(word.to_ascii_lowercase().as_str(), "false" | "off" | "0");
    match option.arg.as_ref().and_then(|arg| arg.node.as_ref()) {
        None => true,
        Some(Node::Integer(value)) => value.ival != 0,
        Some(Node::Boolean(value)) => value.boolval,
        Some(Node::String(value)) => !is_off(&value.sval),
        // A bare word that is not reserved, such as `off`, reads as the name of a type.
        Some(Node::TypeName(name)) => !name.names.iter().any(|name| match &name.node {
            Some(Node::String(word)) => is_off(&word.sval),
            _ => false,
        }),
        Some(_) => true,
    }
}
