//! The floors of `ARCHITECTURE.md`, checked: code refers to its own module, to the lowest floor and to floors below
//! its own, never to one above or beside; and SQL lives with the database.

use std::fs;
use std::path::{Path, PathBuf};

/// Low to high. Modules of the lowest floor may use one another, those of another floor may not.
const FLOORS: [&[&str]; 7] = [
    &["settings", "model", "jobfile", "sql", "telemetry", "meters"],
    &["messages", "db", "cluster"],
    &["actors"],
    &["app"],
    &["http"],
    &["cli"],
    &["main"],
];
/// How a string starts that is a statement.
const STATEMENTS: [&str; 9] =
    ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "WITH ", "CREATE ", "ALTER ", "DROP ", "LISTEN "];

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|modules| modules.contains(&module))
}

/// The module of the crate a file belongs to: `db/session.rs` and `db.rs` to `db`.
fn module_of(file: &str) -> &str {
    file.split('/').next().map_or(file, |first| first.trim_end_matches(".rs"))
}

/// Lists what is wrong with one file, whose path is relative to `src`.
fn faults(file: &str, text: &str) -> Vec<String> {
    let own = module_of(file);
    if own == "lib" {
        return Vec::new();
    }
    let Some(own_floor) = floor(own) else {
        return vec![format!("{file}: module {own} has no floor: give it one in FLOORS")];
    };
    let code = without_comments(text);
    let upward = references(&code).into_iter().filter_map(|module| match floor(&module) {
        _ if module == own => None,
        None => Some(format!("{file}: crate::{module} has no floor: give it one in FLOORS")),
        Some(floor) if floor == 0 || floor < own_floor => None,
        Some(_) => Some(format!("{file}: {own} may not use crate::{module}: it is not below")),
    });
    let foreign_sql = statements(file, &code)
        .map(|sql| format!("{file}: SQL outside src/db and src/cluster, move it there: {sql}"));
    upward.chain(foreign_sql).collect()
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// The modules named right after `crate::` (in `main.rs`, `yardmaster::`), also in a group: `crate::{a, b::C}`.
fn references(code: &str) -> Vec<String> {
    let starts = ["crate::", "yardmaster::"].into_iter().flat_map(|root| code.match_indices(root));
    let paths = starts.filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    paths
        .flat_map(|(at, root)| first_names(&code[at + root.len()..]))
        .filter(|name| is_module(name))
        .collect()
}

fn first_names(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let mut depth = 0;
    let split_at_top = |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth < 0 || (c == ',' && depth == 0)
    };
    let mut parts = group.split_inclusive(split_at_top);
    let mut names = Vec::new();
    for part in parts.by_ref() {
        names.push(word(part.trim_start()));
        if part.ends_with('}') && part.matches('}').count() > part.matches('{').count() {
            break;
        }
    }
    names
}

/// Types and macros that the crate re-exports at its top are nobody's floor.
fn is_module(name: &str) -> bool {
    name.starts_with(|c: char| c.is_lowercase()) && name != "self"
}

/// The starts of string literals that look like statements, where they do not belong.
fn statements<'a>(file: &str, code: &'a str) -> impl Iterator<Item = String> + 'a {
    // `sql` names kinds of statements and reads other people's; `jobfile` and unit tests are fed with them.
    let code = match module_of(file) {
        "db" | "cluster" | "sql" => "",
        "jobfile" if file.ends_with("tests.rs") => "",
        _ => code.split("#[cfg(test)]").next().unwrap_or(code),
    };
    let literals =
        code.match_indices('"').map(|(at, _)| code[at + 1..].trim_start_matches([' ', '\n', '\\']));
    let sql = literals.filter(|text| STATEMENTS.iter().any(|start| text.starts_with(start)));
    sql.map(|text| text.chars().take(40).collect())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("src can be read").map(|entry| entry.expect("src can be read").path());
    let deeper = |path: PathBuf| if path.is_dir() { rust_files(&path) } else { vec![path] };
    entries.flat_map(deeper).filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}

#[test]
fn no_module_looks_up_and_sql_stays_with_the_database() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = rust_files(&src);
    assert!(files.len() > 5, "found only {files:?}");
    let look = |path: PathBuf| {
        let name = path.strip_prefix(&src).expect("a file of src").to_string_lossy().replace('\\', "/");
        faults(&name, &fs::read_to_string(&path).expect("a source file can be read"))
    };
    let faults: Vec<String> = files.into_iter().flat_map(look).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn upward_and_sideways_references_are_found() {
    let wrong = [
        ("db/session.rs", "use crate::messages::Wake;"),
        ("messages/slots.rs", "use crate::db::DbError;"),
        ("model/yard.rs", "fn f(a: &crate::actors::Monitor) {}"),
        ("actors/monitor.rs", "use crate::{\n    model::{slots::Full, TaskId},\n    app::App,\n};"),
        ("app.rs", "use crate::{model, cli};"),
        ("http/pages.rs", "use crate::cli::output;"),
        ("app/service.rs", "use crate::http::Server;"),
        ("brand_new.rs", ""),
        ("app.rs", "use crate::brand_new::Thing;"),
    ];
    for (file, text) in wrong {
        assert_eq!(faults(file, text).len(), 1, "{file}: {text}");
    }
    let right = [
        ("db/session.rs", "use crate::db::DbError;\nuse crate::{model::{TaskId, JobId}, settings};"),
        ("jobfile/mod.rs", "use crate::sql::inspect;\nuse crate::model::graph;"),
        ("actors/monitor.rs", "/// See [`crate::app`].\n// crate::app\nuse crate::{messages::{Wake}, db};"),
        ("cli/mod.rs", "use crate::{Error, app::App, db::migrate};"),
        ("main.rs", "use yardmaster::cli;\nuse not_yardmaster::x;"),
        ("lib.rs", "pub use crate::app::App;"),
    ];
    for (file, text) in right {
        assert_eq!(faults(file, text), Vec::<String>::new(), "{file}: {text}");
    }
}

#[test]
fn sql_outside_the_database_modules_is_found() {
    let text = "const CLAIM: &str = \"\\\n    SELECT task_id FROM t\";";
    for file in ["actors/ledger.rs", "cli/jobs.rs", "jobfile/mod.rs", "model/task.rs"] {
        assert_eq!(faults(file, text).len(), 1, "{file}");
    }
    assert_eq!(faults("actors/ledger.rs", "f(r#\"INSERT INTO r\"#)").len(), 1);
    for file in ["db/claim.rs", "cluster/initdb.rs", "sql/kinds.rs", "jobfile/tests.rs"] {
        assert_eq!(faults(file, text), Vec::<String>::new(), "{file}");
    }
    assert!(faults("jobfile/mod.rs", &format!("#[cfg(test)]\nmod tests {{ {text} }}")).is_empty());
    assert!(faults("cli/jobs.rs", "// \"SELECT 1\"\nprintln!(\"Select a job\")").is_empty());
}
