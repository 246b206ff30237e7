//! Newtypes for the identities of the catalog, so that a job's id can never be taken for a task's.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A job. Assigned by the catalog, never reused within one catalog.
    JobId(i64)
}
id! {
    /// A task. Ids may be reissued after a failover of home, so what must be certain also compares the task's key.
    TaskId(i64)
}
id! {
    /// A lane: everything about a task that matters to dispatch (see [`crate::model::Lane`]).
    LaneId(i32)
}
id! {
    /// A term of leadership; only ever grows.
    Epoch(i64)
}
