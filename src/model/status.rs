//! The states of jobs and tasks, with their one spelling: the labels of the database's enums.

use std::fmt;
use std::str::FromStr;

/// A label that is not one of the enum's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} \"{label}\": known are {known}")]
pub struct UnknownLabel {
    what: &'static str,
    label: String,
    known: String,
}

macro_rules! status {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $label:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every status, in the order of the database's enum.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The label in SQL, JSON and on the command line.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $label),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownLabel;
            fn from_str(label: &str) -> Result<Self, UnknownLabel> {
                Self::ALL.iter().copied().find(|s| s.as_str() == label).ok_or_else(|| UnknownLabel {
                    what: $what,
                    label: label.to_owned(),
                    known: Self::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    };
}

status! {
    /// The state of a job (Citus's labels).
    JobStatus, "job status" {
        /// Submitted; no attempt of any of its tasks yet.
        Scheduled = "scheduled",
        /// At least one attempt was made.
        Running = "running",
        /// All tasks are done.
        Finished = "finished",
        /// Cancel was requested and a task is not terminal yet.
        Cancelling = "cancelling",
        /// Cancel was requested and all tasks are terminal.
        Cancelled = "cancelled",
        /// A task ended badly while others can still run.
        Failing = "failing",
        /// A task ended badly and none can run any more.
        Failed = "failed",
    }
}

status! {
    /// The state of a task (Citus's labels).
    TaskStatus, "task status" {
        /// Waits for dependencies (or for its admission).
        Blocked = "blocked",
        /// Can be claimed as soon as slots, session and its time allow.
        Runnable = "runnable",
        /// An attempt is alive, or its outcome is not known yet.
        Running = "running",
        /// Cancel was requested while running.
        Cancelling = "cancelling",
        /// Its effects are committed.
        Done = "done",
        /// Failed for good.
        Error = "error",
        /// Will never run: a dependency ended badly.
        Unscheduled = "unscheduled",
        /// Cancelled; no effect of a transactional command was committed.
        Cancelled = "cancelled",
    }
}

impl JobStatus {
    /// Does the job stay so unless somebody acts (retries it, or adds tasks to a finished one)?
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Finished | Self::Cancelled | Self::Failed => true,
            Self::Scheduled | Self::Running | Self::Cancelling | Self::Failing => false,
        }
    }
}

impl TaskStatus {
    /// Does the task stay so unless somebody retries it?
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Done | Self::Error | Self::Unscheduled | Self::Cancelled => true,
            Self::Blocked | Self::Runnable | Self::Running | Self::Cancelling => false,
        }
    }

    /// Is it a terminal status other than done: one that keeps dependants from running?
    pub fn is_bad(self) -> bool {
        match self {
            Self::Error | Self::Unscheduled | Self::Cancelled => true,
            Self::Done | Self::Blocked | Self::Runnable | Self::Running | Self::Cancelling => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip_and_unknown_ones_are_named() {
        for s in TaskStatus::ALL {
            assert_eq!(s.as_str().parse::<TaskStatus>(), Ok(*s));
        }
        for s in JobStatus::ALL {
            assert_eq!(s.as_str().parse::<JobStatus>(), Ok(*s));
        }
        let text = "dnoe".parse::<TaskStatus>().unwrap_err().to_string();
        assert!(text.starts_with("unknown task status \"dnoe\": known are blocked, runnable"), "{text}");
    }
}
