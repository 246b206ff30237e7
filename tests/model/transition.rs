//! The state machine against a table written out by hand, and over random histories.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use yardmaster::model::Ending;
use yardmaster::model::TaskStatus::{
    self, Blocked, Cancelled, Cancelling, Done, Error, Runnable, Running, Unscheduled,
};
use yardmaster::model::transition::{Event, Reason, next};

type Answer = Result<TaskStatus, Reason>;

fn answer(status: TaskStatus, event: Event) -> Answer {
    next(status, event).map_err(|refusal| refusal.reason)
}

/// A row for each event, a column for each status in the order of the database's enum.
#[rustfmt::skip]
fn table() -> [(Event, [Answer; 8]); 13] {
    use Event::*;
    const ENDED: Answer = Err(Reason::Ended);
    const ALIVE: Answer = Err(Reason::AttemptAlive);
    const NONE: Answer = Err(Reason::NoAttempt);
    const READY: Answer = Err(Reason::NotWaiting);
    const OPEN: Answer = Err(Reason::NotEnded);
    const FINAL: Answer = Err(Reason::Done);
    [
        //                       blocked               runnable       running                     cancelling      done      error          unscheduled      cancelled
        (DependenciesDone,      [Ok(Runnable),         READY,         READY,                      READY,          ENDED,    ENDED,         ENDED,           ENDED]),
        (DependencyEndedBadly,  [Ok(Unscheduled),      READY,         READY,                      READY,          ENDED,    ENDED,         ENDED,           ENDED]),
        (DependencyAdded,       [Ok(Blocked),          Ok(Blocked),   ALIVE,                      ALIVE,          ENDED,    ENDED,         ENDED,           ENDED]),
        (AdmissionRefused,      [Ok(Error),            Ok(Error),     ALIVE,                      ALIVE,          ENDED,    ENDED,         ENDED,           ENDED]),
        (Claimed,               [Err(Reason::Waiting), Ok(Running),   ALIVE,                      ALIVE,          ENDED,    ENDED,         ENDED,           ENDED]),
        (Committed,             [NONE,                 NONE,          Ok(Done),                   Ok(Done),       ENDED,    ENDED,         ENDED,           ENDED]),
        (FailedRetry,           [NONE,                 NONE,          Ok(Runnable),               Ok(Cancelled),  ENDED,    ENDED,         ENDED,           ENDED]),
        (FailedForGood,         [NONE,                 NONE,          Ok(Error),                  Ok(Cancelled),  ENDED,    ENDED,         ENDED,           ENDED]),
        (Interrupted,           [NONE,                 NONE,          Ok(Runnable),               Ok(Cancelled),  ENDED,    ENDED,         ENDED,           ENDED]),
        (CancelRequested,       [Ok(Cancelled),        Ok(Cancelled), Ok(Cancelling),             Ok(Cancelling), Ok(Done), Ok(Error),     Ok(Unscheduled), Ok(Cancelled)]),
        (AttemptRolledBack,     [NONE,                 NONE,          Err(Reason::NotCancelled),  Ok(Cancelled),  ENDED,    ENDED,         ENDED,           ENDED]),
        (RetryRequested { waits: true },  [OPEN,       OPEN,          OPEN,                       OPEN,           FINAL,    Ok(Blocked),   Ok(Blocked),     Ok(Blocked)]),
        (RetryRequested { waits: false }, [OPEN,       OPEN,          OPEN,                       OPEN,           FINAL,    Ok(Runnable),  Ok(Runnable),    Ok(Runnable)]),
    ]
}

#[test]
fn every_pair_is_as_in_the_table() {
    let table = table();
    assert_eq!(table.map(|(event, _)| event), Event::ALL, "the table has every event once, in order");
    for (event, row) in table {
        for (status, expected) in TaskStatus::ALL.iter().zip(row) {
            assert_eq!(answer(*status, event), expected, "{status} x {event:?}");
        }
    }
}

#[test]
fn a_refusal_says_what_was_asked_of_what_and_why() {
    let refusal = next(Done, Event::RetryRequested { waits: false }).unwrap_err();
    assert_eq!((refusal.status, refusal.event), (Done, Event::RetryRequested { waits: false }));
    let text = next(Blocked, Event::Claimed).unwrap_err().to_string();
    assert_eq!(text, "\"claimed\" does not apply to a task that is blocked: it waits for dependencies");
}

#[test]
fn the_ending_of_an_attempt_ends_it_in_every_status_that_has_one() {
    for ending in [Ending::Done, Ending::Error, Ending::Retry(Duration::ZERO), Ending::Again(Duration::ZERO)]
    {
        for status in [Running, Cancelling] {
            let after = answer(status, ending.into()).unwrap();
            assert!(!matches!(after, Running | Cancelling), "{ending:?} leaves a task {status} as {after}");
        }
    }
}

fn histories() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(select(Event::ALL.as_slice()), 0..60)
}

proptest! {
    /// Without a retry request a task ends once at most, and nothing moves it after.
    #[test]
    fn a_task_has_one_ending(history in histories()) {
        let mut status = Blocked;
        let mut endings = 0;
        for event in history.into_iter().filter(|event| !matches!(event, Event::RetryRequested { .. })) {
            let was_terminal = status.is_terminal();
            if let Ok(after) = next(status, event) {
                prop_assert!(!was_terminal || after == status, "{} left by {:?}", status, event);
                endings += u32::from(after.is_terminal() && !was_terminal);
                status = after;
            }
        }
        prop_assert_eq!(endings, u32::from(status.is_terminal()));
    }

    /// Whatever happens: done stays done, and only a retry request brings an ended task back.
    #[test]
    fn terminal_is_final_but_for_retry(history in histories()) {
        let mut status = Blocked;
        for event in history {
            let after = next(status, event).unwrap_or(status);
            if status.is_terminal() && after != status {
                let is_retry = matches!(event, Event::RetryRequested { .. });
                prop_assert!(status != Done && is_retry, "{} left by {:?}", status, event);
                prop_assert!(matches!(after, Blocked | Runnable));
            }
            status = after;
        }
    }

    /// Claims and ends of attempts alternate: never two alive, and an attempt is alive exactly while running or
    /// cancelling. Effects are committed only by an attempt, and then the task is done.
    #[test]
    fn at_most_one_attempt_is_alive(history in histories()) {
        let mut status = Blocked;
        let mut alive = 0;
        for event in history {
            let Ok(after) = next(status, event) else { continue };
            match event {
                Event::Claimed => alive += 1,
                Event::Committed => { alive -= 1; prop_assert_eq!(after, Done); }
                Event::FailedRetry | Event::FailedForGood | Event::Interrupted | Event::AttemptRolledBack => alive -= 1,
                Event::DependenciesDone | Event::DependencyEndedBadly | Event::DependencyAdded
                | Event::AdmissionRefused | Event::CancelRequested | Event::RetryRequested { .. } => {}
            }
            status = after;
            prop_assert_eq!(alive, i32::from(matches!(status, Running | Cancelling)));
        }
    }

    /// Once a cancel was accepted, no attempt starts before somebody asks for a retry.
    #[test]
    fn nothing_starts_after_a_cancel(history in histories()) {
        let mut status = Blocked;
        let mut cancelled = false;
        for event in history {
            let Ok(after) = next(status, event) else { continue };
            match event {
                Event::CancelRequested => cancelled = true,
                Event::RetryRequested { .. } => cancelled = false,
                _ => prop_assert!(!(cancelled && event == Event::Claimed)),
            }
            status = after;
            prop_assert!(!cancelled || status == Cancelling || status.is_terminal());
        }
    }
}
