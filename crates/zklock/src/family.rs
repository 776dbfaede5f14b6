//! The processes that descend from this one, to the last of them.
//!
//! This process is their subreaper: a process whose parent ends becomes its child, even if it has
//! left the process group or opened a session of its own. So all of them are gone when this process
//! has no child left, and none is missed.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, pidfd_open,
    pidfd_send_signal, set_child_subreaper, wait,
};

use crate::wire::Ended;

/// The descendants of this process.
#[derive(Debug)]
pub(crate) struct Family {
    /// The process of the command, once there is one.
    command: Option<Pid>,
    /// The process group of the command, if it has one of its own.
    group: Option<Pid>,
    ended: Option<Ended>,
}

/// A process in `/proc`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Process {
    id: i32,
    parent: i32,
    group: i32,
}

impl Family {
    /// Makes this process the subreaper of its descendants.
    pub(crate) fn adopt() -> io::Result<Self> {
        // Any process id means yes.
        set_child_subreaper(Some(getpid()))?;
        Ok(Self { command: None, group: None, ended: None })
    }

    /// Adds the command, which was just started as a child of this process.
    pub(crate) fn add_command(&mut self, id: u32, has_group: bool) {
        self.command = i32::try_from(id).ok().and_then(Pid::from_raw);
        self.group = self.command.filter(|_| has_group);
    }

    /// Removes the children that have ended. Returns whether any descendant is left.
    pub(crate) fn reap(&mut self) -> io::Result<bool> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((id, status))) if Some(id) == self.command => self.ended = ended(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(true),
                Err(Errno::CHILD) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns how the command has ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Sends a signal to the command. A command that was stopped, for example because it wanted the
    /// terminal, continues if the signal asks it to end: it would never receive the signal otherwise.
    pub(crate) fn forward(&self, signal: Signal) {
        self.send(signal);
        if [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&signal) {
            self.send(Signal::CONT);
        }
    }

    /// Sends a signal to the process group of the command, or to its process alone if it has no group
    /// of its own.
    fn send(&self, signal: Signal) {
        // The command may have ended, and what it has started may have left the group.
        let _ = match (self.group, self.command) {
            (Some(group), _) => kill_process_group(group, signal),
            (None, Some(command)) if self.ended.is_none() => {
                rustix::process::kill_process(command, signal)
            }
            (None, _) => Ok(()),
        };
    }

    /// Sends a signal to all descendants. A process that was stopped receives it at once too.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let group = self.group.map_or(0, |group| group.as_raw_pid());
        if let Some(group) = self.group {
            // No process of the group may be left.
            let _ = kill_process_group(group, signal);
            let _ = kill_process_group(group, Signal::CONT);
        }
        let all = processes();
        for process in descendants(getpid().as_raw_pid(), &all) {
            if group == 0 || process.group != group {
                send(process, signal);
            }
        }
    }
}

/// Sends a signal to a process, unless it has ended and another one has its id.
fn send(process: Process, signal: Signal) {
    let Some(id) = Pid::from_raw(process.id) else { return };
    // A process that cannot be opened has ended.
    let Ok(opened) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if self::process(process.id).is_some_and(|now| now.parent == process.parent) {
        let _ = pidfd_send_signal(&opened, signal);
        let _ = pidfd_send_signal(&opened, Signal::CONT);
    }
}

fn ended(status: WaitStatus) -> Option<Ended> {
    let exited = status.exit_status().map(Ended::Exited);
    exited.or_else(|| status.terminating_signal().map(Ended::Signaled))
}

/// Returns all processes.
fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(process).collect()
}

fn process(id: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Parses a `/proc/PID/stat`: the id, the name in parentheses, which may contain others, the state,
/// the parent, the group.
fn parse(stat: &str) -> Option<Process> {
    let (id, rest) = stat.split_once(' ')?;
    let mut fields = rest.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
    let mut number = || fields.next()?.parse().ok();
    Some(Process { id: id.parse().ok()?, parent: number()?, group: number()? })
}

fn descendants(of: i32, all: &[Process]) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|process| process.parent == parent);
        for child in children {
            parents.push(child.id);
            found.push(*child);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_parsed_whatever_their_names() {
        let stat = "42 (a) b (c) S 7 41 40 0 -1 4194560";
        assert_eq!(parse(stat), Some(Process { id: 42, parent: 7, group: 41 }));
        assert_eq!(parse("42 (a"), None);
        let own = process(getpid().as_raw_pid()).unwrap();
        assert_eq!(Some(own.parent), rustix::process::getppid().map(Pid::as_raw_pid));
    }

    #[test]
    fn descendants_are_found_to_the_last_generation() {
        let process = |id, parent| Process { id, parent, group: 1 };
        let all = [process(1, 0), process(2, 1), process(5, 4), process(4, 2), process(3, 1)];
        let mut ids: Vec<i32> = descendants(2, &all).iter().map(|it| it.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [4, 5]);
    }
}
