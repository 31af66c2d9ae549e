//! What needs attention, as every command tells it: how bad it is, what it is about, what to do.

use clap::ValueEnum;
use control_api::Severity;
use serde::Serialize;

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) subject: String,
    /// What is wrong, and what that means.
    pub(crate) detail: String,
    /// What to do.
    pub(crate) todo: String,
}

impl Finding {
    pub(crate) fn print(&self) {
        outln!("\n{:>8}  {}: {}", mark(self.severity), self.subject, self.detail);
        if !self.todo.is_empty() {
            outln!("          -> {}", self.todo);
        }
    }
}

impl From<network_facts::Advice> for Finding {
    fn from(advice: network_facts::Advice) -> Self {
        let severity = match advice.weight {
            network_facts::Weight::Error => Severity::Error,
            network_facts::Weight::Warning => Severity::Warning,
            network_facts::Weight::Info => Severity::Info,
        };
        Self { severity, subject: advice.subject, detail: advice.detail, todo: advice.todo }
    }
}

/// How bad something is, as `status` writes it.
pub(crate) fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "CRITICAL",
        Severity::Error => "ERROR",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// How bad a finding is at least.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Least {
    /// Data cannot be read or is damaged.
    Critical,
    /// Data is less safe than promised, or something is not served.
    Error,
    /// Something needs attention soon.
    Warning,
    /// Good to know.
    Info,
}

impl Least {
    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::Critical => Severity::Critical,
            Self::Error => Severity::Error,
            Self::Warning => Severity::Warning,
            Self::Info => Severity::Info,
        }
    }
}
