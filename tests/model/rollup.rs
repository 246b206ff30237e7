//! The state of a job from counts, against the specification's words over the tasks themselves.

use proptest::prelude::*;
use proptest::sample::select;
use yardmaster::model::rollup::{cases, job_status};
use yardmaster::model::{JobStatus, TaskStatus};

/// The specification, read aloud.
fn naive(cancel_requested: bool, tasks: &[TaskStatus], started: bool) -> JobStatus {
    let open = tasks.iter().any(|task| !task.is_terminal());
    if cancel_requested {
        return if open { JobStatus::Cancelling } else { JobStatus::Cancelled };
    }
    if tasks.iter().all(|task| *task == TaskStatus::Done) {
        return JobStatus::Finished;
    }
    if tasks.iter().any(|task| task.is_bad()) {
        return if open { JobStatus::Failing } else { JobStatus::Failed };
    }
    if started { JobStatus::Running } else { JobStatus::Scheduled }
}

fn count(tasks: &[TaskStatus], which: impl Fn(TaskStatus) -> bool) -> i64 {
    tasks.iter().filter(|task| which(**task)).count().try_into().expect("a short list")
}

fn by_counts(cancel_requested: bool, tasks: &[TaskStatus], started: bool) -> JobStatus {
    let done = count(tasks, |task| task == TaskStatus::Done);
    job_status(cancel_requested, count(tasks, |_| true), done, count(tasks, TaskStatus::is_bad), started)
}

#[test]
fn jobs_without_tasks_finish_or_are_cancelled() {
    assert_eq!(job_status(false, 0, 0, 0, false), JobStatus::Finished);
    assert_eq!(job_status(true, 0, 0, 0, false), JobStatus::Cancelled);
}

#[test]
fn every_job_of_up_to_three_tasks_is_as_specified() {
    let one_more = |jobs: &[Vec<TaskStatus>]| -> Vec<Vec<TaskStatus>> {
        let grown = |job: &Vec<TaskStatus>| -> Vec<Vec<TaskStatus>> {
            TaskStatus::ALL.iter().map(|status| job.iter().chain([status]).copied().collect()).collect()
        };
        jobs.iter().flat_map(grown).collect()
    };
    let mut jobs = vec![vec![]];
    for size in 0..=3 {
        assert_eq!(jobs.len(), 8_usize.pow(size));
        for job in &jobs {
            for (cancel, started) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(
                    by_counts(cancel, job, started),
                    naive(cancel, job, started),
                    "{job:?} {cancel} {started}"
                );
            }
        }
        jobs = one_more(&jobs);
    }
}

#[test]
fn the_cases_for_the_sql_twin_reach_every_state_and_repeat_nothing() {
    let all: Vec<_> = cases(4).collect();
    // Tasks 0 to 4, split into done, bad and open: 1 + 3 + 6 + 10 + 15 ways, four flags each.
    assert_eq!(all.len(), 35 * 4);
    for state in JobStatus::ALL {
        assert!(all.iter().any(|(_, answer)| answer == state), "{state} is not among the cases");
    }
    let distinct: std::collections::BTreeSet<_> = all.iter().map(|(input, _)| input).collect();
    assert_eq!(distinct.len(), all.len());
}

proptest! {
    #[test]
    fn counts_say_the_same_as_the_tasks(
        tasks in prop::collection::vec(select(TaskStatus::ALL), 0..40), cancel in any::<bool>(), started in any::<bool>(),
    ) {
        let job = by_counts(cancel, &tasks, started);
        prop_assert_eq!(job, naive(cancel, &tasks, started));
        prop_assert_eq!(job.is_terminal(), tasks.iter().all(|task| task.is_terminal()));
    }

    #[test]
    fn absurd_counts_do_no_harm(cancel in any::<bool>(), tasks: i64, done: i64, bad: i64, started in any::<bool>()) {
        let job = job_status(cancel, tasks, done, bad, started);
        prop_assert_eq!(cancel, matches!(job, JobStatus::Cancelling | JobStatus::Cancelled));
    }
}
