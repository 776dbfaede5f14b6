//! `zklock run`: a command that runs while the lock is held.

use std::pin::pin;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::time::interval;
use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, Lock, LockState};

use crate::acquire::{Begun, Obtained, interrupted, perform};
use crate::clock::{boot_now, wait_until};
use crate::deadline::{deadline, looks, margin};
use crate::ending::Terms;
use crate::exit::{self, Failure};
use crate::family::Family;
use crate::kind::{Task, TokenOf};
use crate::options::{OnLoss, Run};
use crate::supervisor::{Charge, Supervised};
use crate::wire::{Ended, Order, Report};

/// The default time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// A lease is always longer than this fraction of the session timeout while servers answer.
const GRACE_SHARE_MAX: u32 = 3;
/// The pause between two attempts to end what a dead supervisor has left.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// Runs the verb.
pub(crate) async fn run(options: &Run) -> Result<u8, Failure> {
    let begun = Begun::begin(&options.obtain, &options.connection).await?;
    let client = begun.client.clone();
    let name = options.command.first().map(|it| it.to_string_lossy()).unwrap_or_default();
    perform(client, &options.obtain, &name, Running { options, begun }).await
}

struct Running<'a> {
    options: &'a Run,
    begun: Begun,
}

impl Task for Running<'_> {
    async fn perform<K: Kind>(mut self, lock: Lock<K>, token: TokenOf<K>) -> Result<u8, Failure> {
        let terms = terms(self.options, &self.begun.client)?;
        let obtained = self.begun.obtain(&lock, &self.options.obtain, token).await?;
        let result = self.supervise(&obtained, terms).await;
        if obtained.guard.state() == LockState::Held {
            self.begun.release(obtained.guard).await;
        } else {
            // No server can be asked at present. The client deletes the entry if one answers soon.
            drop(obtained);
        }
        result
    }
}

/// Returns how a command ends whose lock is lost.
fn terms(options: &Run, client: &Client) -> Result<Terms, Failure> {
    let timeout = client.status().timeout;
    let margin = margin(timeout);
    let grace = options.kill_after.unwrap_or_else(|| grace(timeout));
    let most = grace_max(timeout);
    if options.on_loss == OnLoss::Term && grace > most {
        return Err(Failure::own(format!(
            "--kill-after {grace:?} is too long: it may be {most:?} at most, a third of the session \
             timeout of {timeout:?} that the servers have granted, less {margin:?}; set a shorter \
             one, or a longer --session-timeout"
        )));
    }
    Ok(Terms { grace: Some(grace).filter(|_| options.on_loss != OnLoss::Kill), margin })
}

/// Returns the time between SIGTERM and SIGKILL if no option sets it.
fn grace(timeout: Duration) -> Duration {
    GRACE.min(timeout / 6)
}

fn grace_max(timeout: Duration) -> Duration {
    (timeout / GRACE_SHARE_MAX).saturating_sub(margin(timeout))
}

impl Running<'_> {
    /// Runs the command, and returns its status after the last of its processes.
    async fn supervise<K: Kind>(
        &mut self,
        obtained: &Obtained<K>,
        terms: Terms,
    ) -> Result<u8, Failure> {
        let Obtained { guard, token, session } = obtained;
        let lost_status = self.options.obtain.lost_exit_code;
        let is_ignored = self.options.on_loss == OnLoss::Ignore;
        let begins_until = self.beginning(guard, terms).await?;
        let mut looks = looks(&self.begun.client);
        let mut family = Family::adopt().map_err(cannot_supervise)?;
        let mut variables = vec![
            ("ZKLOCK_PATH", self.options.obtain.path.clone()),
            ("ZKLOCK_SESSION", session.clone()),
        ];
        variables.extend(token.map(|token| ("ZKLOCK_TOKEN", token.to_string())));
        let is_foreground = self.options.foreground;
        let deadline_at_first = Some(begins_until).filter(|_| !is_ignored);
        let charge = Charge { terms, deadline: deadline_at_first, is_foreground };
        let mut supervised = Supervised::start(charge, &self.options.command, &variables)
            .map_err(cannot_supervise)?;

        let mut lost = pin!(guard.lost());
        let (mut is_lost, mut is_at_risk) = (false, false);
        let mut known_deadline = begins_until;
        let mut ended = None;
        let mut is_ended_by_us = false;
        // The supervisor ends the command, and is late if somebody has stopped it.
        let mut lost_by = Duration::MAX;
        let (mut is_late, mut is_killed) = (false, false);
        loop {
            let end_by = known_deadline.saturating_sub(terms.margin / 4).min(lost_by);
            // If this process itself was stopped, the reports of the supervisor are read first.
            let end_by = if is_late { boot_now() + KILL_AGAIN } else { end_by };
            tokio::select! {
                biased;
                report = supervised.next() => match report.map_err(cannot_supervise)? {
                    Some(Report::Started(process)) => {
                        self.begun.reporter.event("started", json!({ "pid": process }));
                    }
                    Some(Report::Ended(how)) => {
                        ended = Some(how);
                        self.begun.reporter.event("ended", describe(how));
                    }
                    Some(step @ (Report::Terminating | Report::Killing)) => {
                        is_ended_by_us |= ended.is_none();
                        self.ending(step, ended.is_some(), is_lost);
                    }
                    Some(Report::Gone(left)) => {
                        let left_ms = Some(left / 1_000_000).filter(|_| !is_ignored);
                        self.begun.reporter.event("gone", json!({ "left_ms": left_ms }));
                        break;
                    }
                    None => {
                        let failure = self.end_orphans(&mut family).await;
                        if !is_killed {
                            return Err(failure);
                        }
                        is_ended_by_us |= ended.is_none();
                        break;
                    }
                },
                signal = self.begun.signals.next() => {
                    // The terminal has sent it to the command too.
                    let is_typed = [Signal::INT.as_raw(), Signal::QUIT.as_raw()].contains(&signal);
                    if !(is_foreground && is_typed) {
                        supervised.order(Order::Signal(signal)).await;
                    }
                }
                reason = &mut lost, if !is_lost => {
                    is_lost = true;
                    lost_by = boot_now() + terms.grace.unwrap_or_default() + terms.margin;
                    let reason = reason.to_string();
                    self.begun.reporter.event("lost", json!({ "reason": reason }));
                    let what = if is_ignored { "the command goes on" } else { "the command is ended" };
                    self.begun.reporter.warn(&format!("the lock is lost: {reason}; {what}"));
                    if !is_ignored {
                        supervised.order(Order::End).await;
                    }
                }
                () = wait_until(Some(end_by)), if !is_killed && !is_ignored => {
                    if !std::mem::replace(&mut is_late, true) {
                        continue;
                    }
                    is_killed = true;
                    self.begun.reporter.warn("the supervisor has not ended the command: SIGKILL to both");
                    supervised.kill();
                }
                _ = looks.tick(), if !is_lost => {
                    let was_at_risk = is_at_risk;
                    is_at_risk = guard.state() == LockState::AtRisk;
                    if was_at_risk != is_at_risk {
                        self.risk(is_at_risk);
                    }
                    match deadline(guard, &self.begun.client) {
                        Some(at) if at != known_deadline && !is_ignored => {
                            known_deadline = at;
                            supervised.order(Order::Deadline(at)).await;
                        }
                        Some(_) | None => {}
                    }
                }
            }
        }
        Ok(match ended {
            _ if is_ended_by_us => lost_status,
            Some(Ended::Exited(status)) => u8::try_from(status).unwrap_or(exit::FAILED),
            Some(Ended::Signaled(signal)) => exit::of_signal(signal),
            None => exit::FAILED,
        })
    }

    /// Waits until the command can begin, and returns the deadline at that moment.
    async fn beginning<K: Kind>(
        &mut self,
        guard: &Guard<K>,
        terms: Terms,
    ) -> Result<Duration, Failure> {
        let mut looks = looks(&self.begun.client);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                signal = self.begun.signals.next() => return Err(interrupted(signal)),
            }
            // Before the deadline: a lock that is held has a lease at this moment, if it can have one.
            let state = guard.state();
            if let LockState::Lost(reason) = state {
                let message = format!("the lock was lost before the command began: {reason}");
                return Err(Failure { status: self.options.obtain.lost_exit_code, message });
            }
            let now = boot_now();
            // A command that is ended at once is better not begun: wait for the next renewal.
            let ends_within = terms.grace.unwrap_or_default() + terms.margin;
            let Some(at) = deadline(guard, &self.begun.client).filter(|at| *at > now + ends_within)
            else {
                continue;
            };
            if !self.options.require_lease || guard.remaining().is_some() {
                return Ok(at);
            }
            // The lease of a session that was idle comes after one or two ticks of the servers.
            if let Some(slow) = self.begun.client.status().slow_commits() {
                return Err(Failure::own(format!("--require-lease: {slow}")));
            }
            if state == LockState::Held {
                return Err(Failure::own(format!(
                    "--require-lease: a session timeout of {:?} is too short for a lease",
                    self.begun.client.status().timeout
                )));
            }
        }
    }

    fn risk(&mut self, is_at_risk: bool) {
        if is_at_risk {
            self.begun.reporter.event("at_risk", json!({}));
            self.begun.reporter.say("no server confirms the lock at present");
        } else {
            self.begun.reporter.event("confirmed", json!({}));
            self.begun.reporter.say("the lock is confirmed again");
        }
    }

    fn ending(&mut self, step: Report, has_ended: bool, is_lost: bool) {
        let signal = if step == Report::Killing { "KILL" } else { "TERM" };
        self.begun
            .reporter
            .event("ending", json!({ "signal": signal, "command_ended": has_ended }));
        if has_ended {
            self.begun.reporter.say(&format!("SIG{signal} to what the command has left running"));
        } else if !is_lost {
            let why = "the lock cannot be confirmed, and may pass on soon";
            self.begun.reporter.warn(&format!("{why}: SIG{signal} to the command"));
        }
    }

    /// Ends what a supervisor has left that somebody has killed. This process inherits it.
    async fn end_orphans(&mut self, family: &mut Family) -> Failure {
        let mut again = interval(KILL_AGAIN);
        while family.reap().unwrap_or(false) {
            family.signal_all(Signal::KILL);
            again.tick().await;
        }
        Failure::own("the supervisor of the command was killed, so the command was killed too")
    }
}

fn describe(ended: Ended) -> serde_json::Value {
    match ended {
        Ended::Exited(status) => json!({ "status": status }),
        Ended::Signaled(signal) => json!({ "signal": signal }),
    }
}

fn cannot_supervise(error: std::io::Error) -> Failure {
    Failure::own(format!("cannot supervise a command: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_with_the_default_timeout_are_those_of_the_page() {
        let timeout = Duration::from_secs(30);
        assert_eq!(grace_max(timeout).as_secs_f64(), 9.5);
        // What remains of a lease at the end of an interval; see docs/guarantees.md.
        let remaining = Duration::from_millis(19_500);
        let outage = remaining - grace(timeout) - margin(timeout);
        assert_eq!(outage.as_secs(), 14);
    }
}
