//! What `doctor` and `job plan` find: how grave it is, what it means, what to do.

use serde::Serialize;

use super::output::Output;
use super::{CliError, text};

/// How grave a finding is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It will not work.
    Error,
    /// It may not work, or not well.
    Warning,
    /// Worth knowing.
    Note,
    /// Looked at, and well.
    Ok,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Ok => "ok",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Error => "31",
            Self::Warning => "33",
            Self::Note => "36",
            Self::Ok => "32",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How grave.
    pub severity: Severity,
    /// What was looked at: stable, for programs.
    pub check: String,
    /// What is so, and what it means.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    /// Something is well.
    pub fn ok(check: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, message, None)
    }

    /// Something is worth knowing.
    pub fn note(check: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, check, message, None)
    }

    /// Something may not work.
    pub fn warning(check: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, message, Some(remedy.into()))
    }

    /// Something will not work.
    pub fn error(check: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Severity::Error, check, message, Some(remedy.into()))
    }

    /// Any finding.
    pub fn new(severity: Severity, check: &str, message: impl Into<String>, remedy: Option<String>) -> Self {
        Self { severity, check: check.to_owned(), message: message.into(), remedy }
    }
}

/// Is any of them an error?
pub fn has_error(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Prints findings, a line each and the remedy below it.
///
/// # Errors
/// If standard output cannot be written.
pub fn print(output: &Output, findings: &[Finding]) -> Result<(), CliError> {
    for finding in findings {
        output.line(&lines(output.colour, finding))?;
    }
    Ok(())
}

fn lines(colour: bool, finding: &Finding) -> String {
    let word = format!("{:<8}", finding.severity.word());
    let word = if colour { format!("\u{1b}[{}m{word}\u{1b}[0m", finding.severity.colour()) } else { word };
    let mut lines = format!("{word}{:<14}{}", finding.check, text::inert(&finding.message));
    if let Some(remedy) = &finding.remedy {
        lines.push_str(&format!("\n{:22}→ {}", "", text::inert(remedy)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_it_means_and_what_to_do() {
        let finding = Finding::error("grants", "role \u{1b}x lacks a right", "GRANT it");
        assert_eq!(
            lines(false, &finding),
            "error   grants        role \\u{1b}x lacks a right\n                      → GRANT it"
        );
        assert!(lines(true, &finding).starts_with("\u{1b}[31merror"));
        assert!(has_error(&[Finding::ok("a", "b"), finding]));
        assert!(!has_error(&[Finding::ok("a", "b"), Finding::note("a", "b")]));
    }
}
