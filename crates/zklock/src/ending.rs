//! When a command is ended: SIGTERM, a time of grace, and SIGKILL, measured backwards from the
//! deadline of the lock. This is the decision alone; times are arguments.

use std::time::Duration;

/// How often SIGKILL is repeated: what a dying process has just started is found by the next round.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How much time a command gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    /// The time between SIGTERM and SIGKILL; `None` sends SIGKILL at once.
    pub(crate) grace: Option<Duration>,
    /// The time between SIGKILL and the deadline, in which the processes disappear.
    pub(crate) margin: Duration,
}

/// What has to be done now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Due {
    Kill,
    Terminate,
    /// Nothing before this time; `None` means that no time is set.
    Wait(Option<Duration>),
}

/// The end of one command.
#[derive(Debug)]
pub(crate) struct Ending {
    terms: Terms,
    deadline: Option<Duration>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Running,
    /// SIGTERM is due.
    Begun {
        grace: Option<Duration>,
    },
    Terminated {
        kill_at: Duration,
    },
    Killed {
        again_at: Duration,
    },
}

impl Ending {
    pub(crate) fn new(terms: Terms, deadline: Option<Duration>) -> Self {
        Self { terms, deadline, stage: Stage::Running }
    }

    /// Sets the deadline. Once the end has begun, a later deadline changes nothing.
    pub(crate) fn set_deadline(&mut self, at: Duration) {
        self.deadline = Some(at);
    }

    /// Begins to end the command, unless that has begun. `grace_max` limits the time of grace.
    pub(crate) fn begin(&mut self, grace_max: Duration) {
        if self.stage == Stage::Running {
            self.stage = Stage::Begun { grace: self.terms.grace.map(|it| it.min(grace_max)) };
        }
    }

    /// Returns what is due at this time. The caller does it at once: the next call counts on that.
    pub(crate) fn due(&mut self, now: Duration) -> Due {
        let kill_by = self.deadline.map(|at| at.saturating_sub(self.terms.margin));
        if self.stage == Stage::Running {
            let Some(kill_by) = kill_by else { return Due::Wait(None) };
            let at = kill_by.saturating_sub(self.terms.grace.unwrap_or_default());
            if now < at {
                return Due::Wait(Some(at));
            }
            self.stage = Stage::Begun { grace: self.terms.grace };
        }
        match self.stage {
            Stage::Running => unreachable!("handled above"),
            Stage::Begun { grace: Some(grace) } if kill_by.is_none_or(|at| now < at) => {
                self.stage = Stage::Terminated { kill_at: now + grace };
                Due::Terminate
            }
            Stage::Terminated { kill_at } if now < kill_by.unwrap_or(kill_at).min(kill_at) => {
                Due::Wait(Some(kill_by.unwrap_or(kill_at).min(kill_at)))
            }
            Stage::Killed { again_at } if now < again_at => Due::Wait(Some(again_at)),
            Stage::Begun { .. } | Stage::Terminated { .. } | Stage::Killed { .. } => {
                self.stage = Stage::Killed { again_at: now + KILL_AGAIN };
                Due::Kill
            }
        }
    }

    /// Returns how many nanoseconds are left until the deadline; a negative number is after it.
    pub(crate) fn left(&self, now: Duration) -> i64 {
        let Some(deadline) = self.deadline else { return i64::MAX };
        let nanos = |it: Duration| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX);
        if deadline < now { -nanos(now - deadline) } else { nanos(deadline - now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const TERMS: Terms = Terms { grace: Some(GRACE), margin: Duration::from_secs(1) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_end_is_measured_backwards_from_the_deadline() {
        let mut ending = Ending::new(TERMS, Some(at(100)));
        assert_eq!(ending.due(at(93)), Due::Wait(Some(at(94))));
        assert_eq!(ending.due(at(94)), Due::Terminate);
        assert_eq!(ending.due(at(95)), Due::Wait(Some(at(99))));
        assert_eq!(ending.due(at(99)), Due::Kill);
        assert_eq!(ending.due(at(99)), Due::Wait(Some(at(99) + KILL_AGAIN)));
        assert_eq!(ending.due(at(100)), Due::Kill);
        assert_eq!(ending.left(at(98)), 2_000_000_000);
        assert_eq!(ending.left(at(101)), -1_000_000_000);
    }

    #[test]
    fn a_renewed_lease_postpones_an_end_that_has_not_begun() {
        let mut ending = Ending::new(TERMS, Some(at(100)));
        ending.set_deadline(at(200));
        assert_eq!(ending.due(at(100)), Due::Wait(Some(at(194))));
        assert_eq!(ending.due(at(194)), Due::Terminate);
        // The command may have stopped half its work, so nothing takes SIGTERM back.
        ending.set_deadline(at(300));
        assert_eq!(ending.due(at(199)), Due::Kill);
    }

    #[test]
    fn a_loss_ends_the_command_at_once_and_within_the_deadline() {
        let mut ending = Ending::new(TERMS, Some(at(100)));
        ending.begin(Duration::MAX);
        assert_eq!(ending.due(at(50)), Due::Terminate);
        ending.set_deadline(at(53));
        assert_eq!(ending.due(at(51)), Due::Wait(Some(at(52))));
        assert_eq!(ending.due(at(52)), Due::Kill);
    }

    #[test]
    fn without_time_for_grace_the_command_is_killed() {
        let mut late = Ending::new(TERMS, Some(at(100)));
        assert_eq!(late.due(at(99)), Due::Kill);
        let mut hard = Ending::new(Terms { grace: None, ..TERMS }, Some(at(100)));
        assert_eq!(hard.due(at(98)), Due::Wait(Some(at(99))));
        assert_eq!(hard.due(at(99)), Due::Kill);
        let mut lost = Ending::new(Terms { grace: None, ..TERMS }, None);
        assert_eq!(lost.due(at(1)), Due::Wait(None));
        lost.begin(Duration::MAX);
        assert_eq!(lost.due(at(1)), Due::Kill);
    }

    #[test]
    fn an_orphan_gets_less_grace() {
        let mut ending = Ending::new(TERMS, None);
        ending.begin(at(1));
        assert_eq!(ending.due(at(10)), Due::Terminate);
        ending.begin(GRACE);
        assert_eq!(ending.due(at(10)), Due::Wait(Some(at(11))));
    }
}
