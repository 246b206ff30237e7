//! Figures, each beside its yardstick: a line on standard output as soon as it is known, and JSON at the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What a figure is read beside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// A rate of pgbench, in runs a second, by the name of its script.
    Rate(&'static str),
    /// The time of one durable commit of one client, for durations in milliseconds.
    Commit,
}

/// All that was measured.
#[derive(Debug, Default)]
pub struct Report {
    notes: Vec<(String, String)>,
    /// Rates a second, by name of script.
    yardsticks: BTreeMap<&'static str, f64>,
    /// The time of one durable commit, in milliseconds.
    commit: Option<f64>,
    figures: Vec<Value>,
}

impl Report {
    /// Says something that is no figure.
    pub fn note(&mut self, name: &str, text: String) {
        println!("{name}: {text}");
        self.notes.push((name.to_owned(), text));
    }

    /// Takes a yardstick.
    pub fn yardstick(&mut self, script: &'static str, clients: u32, rate: f64) {
        self.plain("pgbench", &format!("{script}, {clients} clients"), rate, "/s");
        self.yardsticks.insert(script, rate);
    }

    /// Takes the time of one durable commit, the yardstick of latencies.
    pub fn commit_time(&mut self, milliseconds: f64) {
        self.plain("pgbench", "one durable commit, 1 client", milliseconds, "ms");
        self.commit = Some(milliseconds);
    }

    /// Takes a figure that nothing is to be compared with.
    pub fn plain(&mut self, part: &'static str, name: &str, value: f64, unit: &'static str) {
        self.add(part, name, value, unit, None);
    }

    /// Takes a figure with its yardstick, if that was measured.
    pub fn beside(&mut self, part: &'static str, name: &str, value: f64, unit: &'static str, beside: Beside) {
        let (label, measure) = match beside {
            Beside::Rate(script) => (script, self.yardsticks.get(script).copied()),
            Beside::Commit => ("one durable commit", self.commit),
        };
        self.add(part, name, value, unit, measure.map(|m| (label, value / m)));
    }

    /// Takes a figure with its ratio to another of this run.
    pub fn relative(
        &mut self,
        part: &'static str,
        name: &str,
        value: f64,
        unit: &'static str,
        to: (&str, f64),
    ) {
        self.add(part, name, value, unit, Some(to));
    }

    fn add(
        &mut self,
        part: &'static str,
        name: &str,
        value: f64,
        unit: &'static str,
        ratio: Option<(&str, f64)>,
    ) {
        if self.figures.last().is_none_or(|last| last["part"] != part) {
            println!("\n{part}");
        }
        let beside = ratio.map(|(label, ratio)| format!("{} × {label}", short(ratio))).unwrap_or_default();
        println!("  {name:<46} {:>10} {unit:<8} {beside}", short(value));
        self.figures.push(json!({
            "part": part, "name": name, "value": value, "unit": unit,
            "yardstick": ratio.map(|r| r.0), "ratio": ratio.map(|r| r.1),
        }));
    }

    /// Everything as one JSON object.
    pub fn json(&self) -> String {
        let notes: BTreeMap<&str, &str> = self.notes.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        format!("{:#}\n", json!({ "notes": notes, "figures": self.figures }))
    }
}

/// Three significant digits, thousands in groups: enough for what such figures are worth.
fn short(value: f64) -> String {
    if value.abs() < 100.0 {
        let digits = if value.abs() < 1.0 {
            3
        } else if value.abs() < 10.0 {
            2
        } else {
            1
        };
        return format!("{value:.digits$}");
    }
    let whole = format!("{value:.0}");
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
