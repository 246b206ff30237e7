//! Retries as the specification tells them, and bounded whatever the input.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use yardmaster::model::Ending::{self, Again, Error, Retry};
use yardmaster::model::RetryPolicy;
use yardmaster::model::retry::{
    MAX_DELAY, MAX_INTERRUPTION_DELAY, PROMPT_INTERRUPTIONS, after_interruption, interruption_delay,
};

const DIVISION_BY_ZERO: &str = "22012";

fn retry_after(seconds: u64) -> Ending {
    Retry(Duration::from_secs(seconds))
}

#[test]
fn the_default_is_5_20_then_60_seconds_and_32_retries() {
    let policy = RetryPolicy::default();
    let endings: Vec<Ending> = (0..34).map(|before| policy.decide(before, DIVISION_BY_ZERO, 1.0)).collect();
    assert_eq!(endings[0], retry_after(5));
    assert_eq!(endings[1], retry_after(20));
    assert!(endings[2..32].iter().all(|ending| *ending == retry_after(60)));
    // With 31 recorded failures: the 32nd is retried once more, the 33rd is the end.
    assert_eq!(endings[31], retry_after(60));
    assert_eq!(endings[32..], [Error, Error]);
}

#[test]
fn permanent_is_a_class_or_a_code() {
    let policy = RetryPolicy::default();
    for sqlstate in ["42601", "42P01", "42501", "0A000"] {
        assert_eq!(policy.decide(0, sqlstate, 0.0), Error, "{sqlstate}");
    }
    for sqlstate in ["22012", "40001", "24200", "00A42", "", "4"] {
        assert_eq!(policy.decide(0, sqlstate, 0.0), retry_after(5), "{sqlstate}");
    }
    let one_code = RetryPolicy { permanent_sqlstates: vec!["22012".to_owned()], ..policy };
    assert_eq!(one_code.decide(0, "22012", 0.0), Error);
    assert_eq!(one_code.decide(0, "22003", 0.0), retry_after(5));
    assert_eq!(one_code.decide(0, "42601", 0.0), retry_after(5));
}

#[test]
fn no_retries_and_no_delays_are_policies_too() {
    let never = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
    assert_eq!(never.decide(0, DIVISION_BY_ZERO, 0.5), Error);
    let at_once = RetryPolicy { delays: vec![], jitter: 1.0, ..RetryPolicy::default() };
    assert_eq!(at_once.decide(7, DIVISION_BY_ZERO, 1.0), retry_after(0));
}

#[test]
fn jitter_only_adds_its_share() {
    let policy = RetryPolicy { jitter: 0.5, ..RetryPolicy::default() };
    let delays = [0.0, 0.5, 1.0].map(|random| policy.decide(1, DIVISION_BY_ZERO, random));
    assert_eq!(delays, [20, 25, 30].map(retry_after));
}

#[test]
fn ten_thousand_retries_and_seventy_failures_stay_in_range() {
    let policy = RetryPolicy { max_retries: 10_000, jitter: 1.0, ..RetryPolicy::default() };
    assert_eq!(policy.decide(70, DIVISION_BY_ZERO, 1.0), retry_after(120));
    assert_eq!(policy.decide(9_999, DIVISION_BY_ZERO, 0.0), retry_after(60));
    assert_eq!(policy.decide(10_000, DIVISION_BY_ZERO, 0.0), Error);
}

#[test]
fn a_task_states_what_it_wants_otherwise_and_leaves_the_rest() {
    let policy = RetryPolicy::default();
    assert_eq!(policy.overridden_by(&json!({})), Ok(policy.clone()));
    let given = json!({"max_retries": 3, "delays": ["1m 30s", "00:00:05", "1 minute", 7], "jitter": 1,
                       "permanent_sqlstates": ["23", "57014"], "added_in_a_later_version": true});
    let expected = RetryPolicy {
        delays: [90, 5, 60, 7].map(Duration::from_secs).to_vec(),
        max_retries: 3,
        jitter: 1.0,
        permanent_sqlstates: vec!["23".to_owned(), "57014".to_owned()],
    };
    assert_eq!(policy.overridden_by(&given), Ok(expected));
    let of_job = policy.overridden_by(&json!({"max_retries": 1, "jitter": 0.25})).unwrap();
    let of_task = of_job.overridden_by(&json!({"max_retries": 2})).unwrap();
    assert_eq!((of_task.max_retries, of_task.jitter), (2, 0.25));
}

#[test]
fn a_policy_that_cannot_be_followed_is_named() {
    let cases = [
        (json!({"delays": ["5s", "soon"]}), "retry.delays = \"soon\" is not a duration of 0s to 30d"),
        (json!({"delays": ["31d"]}), "retry.delays = \"31d\" is not a duration"),
        (json!({"delays": ["-5s"]}), "retry.delays = \"-5s\" is not a duration"),
        (json!({"delays": "5s"}), "retry.delays = \"5s\" is not a list of at most 100"),
        (json!({"delays": vec!["5s"; 101]}), "is not a list of at most 100"),
        (json!({"max_retries": -1}), "retry.max_retries = -1 is not a whole number, 0 to 10000"),
        (json!({"max_retries": 10_001}), "retry.max_retries = 10001 is not a whole number"),
        (json!({"max_retries": null}), "retry.max_retries = null is not a whole number"),
        (json!({"jitter": 1.5}), "retry.jitter = 1.5 is not a number, 0 to 1"),
        (json!({"permanent_sqlstates": ["4"]}), "retry.permanent_sqlstates = \"4\" is not a SQLSTATE class"),
        (json!(["5s"]), "retry = [\"5s\"] is not an object"),
    ];
    for (given, expected) in cases {
        let text = RetryPolicy::default().overridden_by(&given).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
    let long = json!({"delays": ["x".repeat(1_000_000)]});
    assert!(RetryPolicy::default().overridden_by(&long).unwrap_err().to_string().len() < 300);
}

#[test]
fn the_first_interruptions_cost_nothing_then_delays_grow_to_a_cap() {
    let delays: Vec<u64> = (0..13).map(|before| interruption_delay(before).as_secs()).collect();
    assert_eq!(delays, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(interruption_delay(u32::MAX), MAX_INTERRUPTION_DELAY);
}

#[test]
fn one_interruption_too_many_is_the_end() {
    assert_eq!(after_interruption(0, 1000), Again(Duration::ZERO));
    assert_eq!(after_interruption(999, 1000), Again(MAX_INTERRUPTION_DELAY));
    assert_eq!(after_interruption(1000, 1000), Error);
    assert_eq!(after_interruption(0, 0), Error);
}

fn policies() -> impl Strategy<Value = RetryPolicy> {
    let durations = any::<(u64, u32)>().prop_map(|(secs, nanos)| Duration::new(secs, nanos % 1_000_000_000));
    let delays = prop::collection::vec(durations, 0..5);
    (delays, any::<u32>(), any::<f64>(), prop::collection::vec("\\PC{0,6}", 0..3)).prop_map(
        |(delays, max_retries, jitter, permanent_sqlstates)| RetryPolicy {
            delays,
            max_retries,
            jitter,
            permanent_sqlstates,
        },
    )
}

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[0-9]{1,3} ?(s|m|h|d|ms|min)".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 16, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::from))
}

proptest! {
    #[test]
    fn no_policy_and_no_chance_break_the_bounds(
        policy in policies(), before: u32, random in any::<f64>(), sqlstate in "\\PC{0,6}",
    ) {
        match policy.decide(before, &sqlstate, random) {
            Error => prop_assert!(before >= policy.max_retries || policy.is_permanent(&sqlstate)),
            Retry(delay) => {
                let position = usize::try_from(before).expect("at least 32 bits");
                let stated = policy.delays.get(position).or(policy.delays.last()).copied().unwrap_or_default();
                prop_assert!(before < policy.max_retries);
                prop_assert!(delay >= stated.min(MAX_DELAY) && delay <= MAX_DELAY);
                // Rounding aside, chance adds no more than the delay itself.
                prop_assert!(delay <= stated.saturating_mul(2).saturating_add(Duration::from_nanos(2)) || delay == MAX_DELAY);
            }
            other => prop_assert!(false, "{:?} does not follow a failure", other),
        }
    }

    #[test]
    fn interruptions_wait_longer_and_longer(before in 0_u32..u32::MAX) {
        let (delay, next) = (interruption_delay(before), interruption_delay(before + 1));
        prop_assert!(delay <= next && next <= MAX_INTERRUPTION_DELAY);
        prop_assert_eq!(delay.is_zero(), before < PROMPT_INTERRUPTIONS);
    }

    #[test]
    fn any_json_is_a_policy_in_range_or_an_error(
        delays in json_values(), retries in json_values(), jitter in json_values(), states in json_values(),
    ) {
        for (key, value) in [("delays", delays), ("max_retries", retries), ("jitter", jitter), ("permanent_sqlstates", states)] {
            let given = Value::Object([(key.to_owned(), value)].into_iter().collect());
            if let Ok(policy) = RetryPolicy::default().overridden_by(&given) {
                prop_assert!(policy.max_retries <= 10_000 && (0.0..=1.0).contains(&policy.jitter));
                prop_assert!(policy.delays.len() <= 100 && policy.delays.iter().all(|delay| *delay <= MAX_DELAY));
            }
        }
    }
}
