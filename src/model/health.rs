//! Is a node well? What its probes say, and when to probe again.
//!
//! A probe is one question on the service's own connection. One that fails makes the node *down*: nothing new is started
//! there until a probe succeeds again. So a node heals by itself, and what one owner's login or one command says never
//! marks it.

use std::time::Duration;

/// Between two probes of a node that is well.
const WELL_EVERY: Duration = Duration::from_secs(5);
/// The first pause after a failure; it doubles up to [`DOWN_EVERY`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Between two probes of a node that has been down for a while.
const DOWN_EVERY: Duration = Duration::from_secs(5);

/// What is known of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// What the last probe said, if there was one.
    heard: Option<Result<(), String>>,
    /// Failures in a row.
    failures: u32,
}

impl Health {
    /// Takes in what a probe said. Answers whether the node is well or down, if that is news; another reason for being
    /// down is none.
    pub fn hear(&mut self, said: Result<(), String>) -> Option<Result<(), String>> {
        self.failures = if said.is_ok() { 0 } else { self.failures.saturating_add(1) };
        let news = self.heard.as_ref().map(Result::is_ok) != Some(said.is_ok());
        if news {
            self.heard = Some(said.clone());
        }
        news.then_some(said)
    }

    /// Was the last word that it is well?
    pub fn is_well(&self) -> bool {
        matches!(self.heard, Some(Ok(())))
    }

    /// How long until the next probe; `chance` (0 to 1) keeps many services from probing at once.
    pub fn pause(&self, chance: f64) -> Duration {
        let pause = match self.failures {
            0 => WELL_EVERY,
            n => (FIRST_PAUSE * 2u32.saturating_pow((n - 1).min(8))).min(DOWN_EVERY),
        };
        pause.mul_f64(0.75 + chance / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_is_news_and_the_first_word_is_one() {
        let mut health = Health::default();
        assert_eq!(health.hear(Ok(())), Some(Ok(())));
        assert_eq!(health.hear(Ok(())), None);
        assert_eq!(health.hear(Err("a".to_owned())), Some(Err("a".to_owned())));
        assert_eq!(health.hear(Err("b".to_owned())), None);
        assert_eq!(health.hear(Ok(())), Some(Ok(())));
    }

    #[test]
    fn probes_of_a_node_that_is_down_back_off_and_stay_bounded() {
        let mut health = Health::default();
        let mut last = Duration::ZERO;
        for _ in 0..100 {
            let _ = health.hear(Err(String::new()));
            let pause = health.pause(0.5);
            assert!(pause >= last && pause <= DOWN_EVERY, "{pause:?}");
            last = pause;
        }
        assert_eq!(last, DOWN_EVERY);
        let _ = health.hear(Ok(()));
        assert_eq!(health.pause(0.5), WELL_EVERY);
    }
}
