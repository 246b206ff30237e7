//! Ticks over changes of the clock, and what becomes of late ones.

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(pattern: &str, zone: &str) -> Schedule {
    Schedule::new(Some(pattern), None, zone, Overlap::Skip, CatchUp::Latest).unwrap()
}

fn every(seconds: i64, overlap: Overlap, catch_up: CatchUp) -> Schedule {
    Schedule::new(None, Some(SignedDuration::from_secs(seconds)), "UTC", overlap, catch_up).unwrap()
}

fn ticks(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
    schedule.preview(at(from), at(from), count).iter().map(ToString::to_string).collect()
}

#[test]
fn a_fixed_time_keeps_to_the_wall_clock_over_both_changes() {
    // Berlin: 29 March 2026 02:00 -> 03:00, 25 October 2026 03:00 -> 02:00.
    let noon = cron("0 12 * * *", "Europe/Berlin");
    assert_eq!(ticks(&noon, "2026-03-28T00:00:00Z", 2), ["2026-03-28T11:00:00Z", "2026-03-29T10:00:00Z"]);
    let half_past_two = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&half_past_two, "2026-03-28T12:00:00Z", 2),
        // There is no 02:30 on that day: the first moment after the gap, 03:00 summer time.
        ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    );
    assert_eq!(
        ticks(&half_past_two, "2026-10-24T12:00:00Z", 2),
        // 02:30 comes twice: once is enough.
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
}

#[test]
fn a_pattern_with_steps_goes_by_real_time_over_both_changes() {
    let quarter = cron("*/30 * * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&quarter, "2026-03-29T00:15:00Z", 3),
        ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]
    );
    assert_eq!(
        ticks(&quarter, "2026-10-24T23:45:00Z", 5),
        [
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z"
        ]
    );
}

#[test]
fn seconds_are_optional_and_names_are_read() {
    assert_eq!(
        ticks(&cron("*/20 * * * * *", "UTC"), "2026-01-01T00:00:05Z", 2),
        ["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"]
    );
    assert_eq!(ticks(&cron("0 6 * * MON", "UTC"), "2026-11-30T06:00:00Z", 1), ["2026-12-07T06:00:00Z"]);
    assert_eq!(ticks(&cron("@hourly", "UTC"), "2026-11-30T06:00:00Z", 1), ["2026-11-30T07:00:00Z"]);
}

#[test]
fn mistakes_are_told_apart() {
    let read = |pattern: Option<&str>, seconds: Option<i64>, zone: &str| {
        Schedule::new(pattern, seconds.map(SignedDuration::from_secs), zone, Overlap::Queue, CatchUp::All)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(
        read(Some("61 * * * *"), None, "UTC").starts_with("the cron pattern \"61 * * * *\" cannot be read")
    );
    assert!(read(Some("0 0 30 2 *"), None, "UTC").contains("never comes true"));
    assert!(read(Some("0 0 * * *"), None, "Europe/Atlantis").contains("\"Europe/Atlantis\" is unknown"));
    assert!(read(None, None, "UTC").contains("either"));
    assert!(read(Some("0 0 * * *"), Some(5), "UTC").contains("either"));
    assert!(read(None, Some(0), "UTC").contains("between 1 second"));
    let empty = Schedule::new(None, Some(SignedDuration::from_secs(1)), "UTC", Overlap::Queue, CatchUp::None);
    assert_eq!(empty.map(|_| ()).unwrap_err(), BadSchedule::EmptyQueue);
}

/// What becomes of the ticks of minute 1 to 5 at minute 5 (and 10 s), as letters.
fn verdicts(overlap: Overlap, catch_up: CatchUp, busy: bool) -> (String, Option<i64>) {
    let origin = at("2026-01-01T00:00:00Z");
    let minute = |n: i64| origin + SignedDuration::from_mins(n);
    let now = minute(5) + SignedDuration::from_secs(10);
    let plan = every(60, overlap, catch_up).plan(minute(1), now, origin, busy);
    let letters = plan.ticks.iter().map(|(_, verdict)| match verdict {
        Verdict::Fire => 'F',
        Verdict::Overlaps => 'O',
        Verdict::Missed => 'M',
    });
    (letters.collect(), plan.next.map(|next| next.duration_since(origin).as_mins()))
}

#[test]
fn late_ticks_follow_both_policies() {
    use {CatchUp as C, Overlap as O};
    let cases = [
        (O::Skip, C::Latest, false, "MMMMF", 6),
        (O::Skip, C::Latest, true, "MMMMO", 6),
        (O::Skip, C::All, false, "FOOOO", 6),
        (O::Skip, C::None, false, "MMMMF", 6),
        (O::Allow, C::Latest, true, "MMMMF", 6),
        (O::Allow, C::All, true, "FFFFF", 6),
        (O::Queue, C::All, true, "", 1),
        (O::Queue, C::All, false, "F", 2),
        (O::Queue, C::Latest, true, "MMMM", 5),
        (O::Queue, C::Latest, false, "MMMMF", 6),
    ];
    for (overlap, catch_up, busy, letters, next) in cases {
        assert_eq!(
            verdicts(overlap, catch_up, busy),
            (letters.to_owned(), Some(next)),
            "{overlap:?} {catch_up:?} {busy}"
        );
    }
}

#[test]
fn a_long_absence_is_made_good_in_parts() {
    let origin = at("2026-01-01T00:00:00Z");
    let schedule = every(1, Overlap::Allow, CatchUp::Latest);
    let (mut next, now) = (origin + SignedDuration::from_secs(1), origin + SignedDuration::from_secs(250));
    let mut fired = 0;
    let mut looks = 0;
    while next <= now {
        let plan = schedule.plan(next, now, origin, false);
        fired += plan.ticks.iter().filter(|(_, verdict)| *verdict == Verdict::Fire).count();
        next = plan.next.unwrap();
        looks += 1;
    }
    assert_eq!((fired, looks, next), (1, 3, origin + SignedDuration::from_secs(251)));
}

proptest! {
    #[test]
    fn ticks_are_in_order_and_none_is_dealt_with_twice(
        seconds in 1_i64..500, lag in 0_i64..5_000, busy: bool, overlap in 0_usize..3, catch_up in 0_usize..2
    ) {
        let origin = at("2026-01-01T00:00:00Z");
        let schedule = every(seconds, Overlap::ALL[overlap].1, CatchUp::ALL[catch_up].1);
        let next = schedule.next_after(origin, origin).unwrap();
        let now = origin + SignedDuration::from_secs(lag);
        let plan = schedule.plan(next, now, origin, busy);
        prop_assert!(plan.ticks.is_sorted_by(|a, b| a.0 < b.0));
        prop_assert!(plan.ticks.iter().all(|(tick, _)| *tick <= now && *tick < plan.next.unwrap()));
        if schedule.overlap != Overlap::Allow {
            prop_assert!(plan.ticks.iter().filter(|(_, verdict)| *verdict == Verdict::Fire).count() <= 1);
        }
    }
}
