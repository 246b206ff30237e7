//! Acceptance people.md 8: the page in a headless Chromium.
//!
//! One browser for all of it: starting one takes seconds.

use serde_json::{Value, json};

use crate::client::{Site, TOKEN, with_token};
use crate::driver::Browser;
use crate::support::{Db, Launch, until};

/// 30 tasks in 5 layers; the first waits at a gate that opens when the table `gate` has a row, one fails.
fn thirty() -> Value {
    let mut tasks: Vec<Value> = Vec::new();
    for layer in 0..5 {
        for place in 0..6 {
            let name = format!("t{layer}{place}");
            let command = match (layer, place) {
                (0, 0) => {
                    "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.05); END LOOP; END $$"
                }
                (4, 5) => {
                    "DO $$ BEGIN RAISE NOTICE '<script>document.title = ''taken''</script>'; END $$; SELECT 1/0"
                }
                _ => "SELECT 1",
            };
            let depends_on: Vec<String> = match layer {
                0 => Vec::new(),
                _ => vec![format!("t{}{place}", layer - 1), format!("t{}{}", layer - 1, (place + 1) % 6)],
            };
            tasks.push(json!({ "name": name, "command": command, "depends_on": depends_on,
                               "retry": { "max_retries": 1, "delays": ["100ms"], "permanent_sqlstates": [] } }));
        }
    }
    json!({ "description": "thirty <script>document.title = 'taken'</script>", "task": tasks })
}

/// How many boxes of the graph have each status.
fn boxes(browser: &Browser) -> Value {
    browser.run(
        "const n = {}; for (const a of document.querySelectorAll('#graph a.node')) n[a.dataset.status] = (n[a.dataset.status] || 0) + 1; return n",
    )
}

/// People 8.
#[tokio::test]
async fn the_page_in_a_browser() {
    let Some(browser) = Browser::start(1280, 900) else {
        eprintln!("skipped: no chromedriver; `scripts/setup browser` installs it");
        return;
    };
    let db = Db::new().await;
    db.alice("CREATE TABLE gate (open int)").await;
    let (launch, _file) = with_token(Launch::on(&db));
    let service = launch.start().await;
    let site = Site::of(&service).await;
    let job = db.submit(thirty()).await;
    db.await_task(db.tasks(job).await[0], "running").await;

    // Drawn as a graph: 30 boxes in 5 columns, a line for each of 48 dependencies, none over another box.
    browser.go(&format!("{}/", site.root));
    assert!(browser.text("#jobs .row").contains("thirty <script>"));
    browser.go(&format!("{}/jobs/{job}", site.root));
    browser.run("window.before = true");
    let columns = "return new Set([...document.querySelectorAll('#graph a.node .box')].map(r => r.getAttribute('x'))).size";
    assert_eq!(browser.run(columns), 5);
    assert_eq!(browser.run("return document.querySelectorAll('#graph a.node').length"), 30);
    assert_eq!(browser.run("return document.querySelectorAll('#graph path.edge').length"), 48);
    until("only the gate is left of the first layer", async || boxes(&browser)["running"] == 1).await;

    // Statuses change without a reload.
    db.alice("INSERT INTO gate VALUES (1)").await;
    until("all boxes have ended", async || boxes(&browser) == json!({ "done": 29, "error": 1 })).await;
    until("the summary follows", async || browser.text("#summary").contains("failed")).await;
    assert_eq!(browser.run("return window.before"), true, "the page was loaded again");
    assert!(browser.text("#timeline").contains("home"));

    // By keyboard to the failed task: its message, SQLSTATE and attempts.
    browser.run("document.querySelector('#graph a.s-error').focus()");
    browser.press(&["\u{E007}"]);
    until("the task is shown", async || {
        browser.run("return location.pathname").as_str().unwrap().starts_with("/tasks/")
    })
    .await;
    assert!(browser.text("#summary").contains("22012"));
    let message = browser.text("#message");
    assert!(message.contains("division by zero") && message.contains("<script>"), "{message}");
    let attempts = browser.text("#attempts");
    assert!(attempts.contains("Attempt 1") && attempts.contains("Attempt 2"), "{attempts}");

    // What SQL said was not obeyed, and nothing came from elsewhere.
    assert_eq!(browser.run("return document.title"), "t45 · Yardmaster");
    let foreign = format!(
        "return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith({}))",
        json!(site.root)
    );
    assert_eq!(browser.run(&foreign), json!([]));

    // The token is asked for once, then the task runs again.
    db.alice("TRUNCATE gate").await;
    browser.run("document.querySelector('[data-action]').focus()");
    browser.press(&["\u{E007}"]);
    until("the token is asked for", async || {
        browser.run("return document.querySelector('dialog').open") == true
    })
    .await;
    let keys: Vec<String> = TOKEN.chars().map(String::from).collect();
    browser.press(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    browser.run("document.querySelector('dialog button[value=keep]').click()");
    until("the leader's word is shown", async || {
        browser.run("return !document.querySelector('.toast').hidden") == true
    })
    .await;
    until("the task has run again", async || browser.text("#attempts").contains("Attempt 3")).await;

    // 400 pixels: nothing but what scrolls by itself is wider than the window, in the light and in the dark.
    browser.resize(400, 800);
    for dark in [false, true] {
        browser.dark(dark);
        for path in ["/".to_owned(), format!("/jobs/{job}"), "/nodes".to_owned()] {
            browser.go(&format!("{}{path}", site.root));
            assert_eq!(browser.run("return document.documentElement.scrollWidth"), 400, "{path}");
            assert_eq!(browser.run(CONTRAST), json!([]), "{path} dark={dark}");
        }
    }
    assert!(browser.picture().starts_with(b"\x89PNG"));
}

/// The texts whose contrast is below AA's 4.5, by WCAG's formula.
const CONTRAST: &str = r"
const parse = (c) => (c.match(/[\d.]+/g) || []).map(Number);
const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
const bad = [];
for (const e of document.querySelectorAll('body *')) {
  const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!text || e.closest('svg') || !e.checkVisibility()) continue;
  const a = light(parse(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) bad.push(e.className + ' ' + e.textContent.trim().slice(0, 30) + ' ' + ratio.toFixed(2));
}
return bad";
