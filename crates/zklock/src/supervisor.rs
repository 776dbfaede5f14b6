//! The process between the program and its command.
//!
//! The program starts itself again as the supervisor, and the supervisor starts the command. The two
//! are connected by a socket, which is the supervisor's standard input. Three things end the command:
//!
//! 1. **The deadline of the lock.** The program sends it, and again each time the lease is renewed.
//!    The supervisor ends the command in time by its own clock, so it does not matter whether the
//!    program still runs: it may be stopped, or blocked by a full pipe.
//! 2. **The end of the program.** The kernel closes the socket, even after SIGKILL.
//! 3. **The end of the supervisor.** The kernel sends SIGKILL to the command (`PR_SET_PDEATHSIG`),
//!    and the program, which inherits what else the command has started, ends that. If the supervisor
//!    is stopped, or otherwise late, the program kills it.
//!
//! The lock is released only when all processes that descend from the command are gone.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::clock::{boot_now, wait_until};
use crate::ending::{Due, Ending, Terms};
use crate::exec::{self, OWN_PROGRAM};
use crate::family::Family;
use crate::signals::Signals;
use crate::wire::{Order, Report};

/// The first argument that starts the program as a supervisor.
pub(crate) const ARGUMENT: &str = "internal-supervise";

/// The time of grace of a command whose `zklock` was killed. Nobody renews its lease any more.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);

/// How long an order may wait for a supervisor that reads none, because it is stopped.
const ORDER_MAX: Duration = Duration::from_millis(100);

/// What a supervisor is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) terms: Terms,
    /// `None` if a loss of the lock does not matter.
    pub(crate) deadline: Option<Duration>,
    /// The command stays in the process group of the program, so that it can use the terminal.
    pub(crate) is_foreground: bool,
}

/// The program's end of the socket.
pub(crate) struct Supervised {
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    process: Option<Pid>,
}

impl Supervised {
    /// Starts a supervisor with a command. The variables are added to the command's environment.
    pub(crate) fn start(
        charge: Charge,
        command: &[OsString],
        variables: &[(&str, String)],
    ) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        let mut supervisor = Command::new(OWN_PROGRAM);
        supervisor
            .arg0("zklock")
            .arg(ARGUMENT)
            .args(charge.arguments())
            .args(command)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(OwnedFd::from(theirs));
        if !charge.is_foreground {
            // Signals to the group of the program must not end the supervisor.
            supervisor.process_group(0);
        }
        let process = i32::try_from(supervisor.spawn()?.id()).ok().and_then(Pid::from_raw);
        pass_stdin(&ours)?;
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { reports: BufReader::new(reports).lines(), orders, process })
    }

    /// Waits for the next report; `None` if the supervisor has ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Report>> {
        match self.reports.next_line().await {
            Ok(Some(line)) => line.parse().map(Some).map_err(io::Error::other),
            Ok(None) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends an order, unless the supervisor has not read those before. If it has ended,
    /// [`next`](Self::next) says so.
    pub(crate) async fn order(&mut self, order: Order) {
        let line = format!("{order}\n");
        // The socket takes all of a short line, or nothing.
        let _ = timeout(ORDER_MAX, self.orders.write_all(line.as_bytes())).await;
    }

    /// Kills the supervisor, and so the command.
    pub(crate) fn kill(&self) {
        // Its id is its own until the program reaps it.
        let _ = self.process.map(|process| kill_process(process, Signal::KILL));
    }
}

impl Charge {
    const ARGUMENTS: usize = 4;

    fn arguments(self) -> [String; Self::ARGUMENTS] {
        let number =
            |it: Option<Duration>| it.map_or_else(|| "-".into(), |it| it.as_nanos().to_string());
        let margin = number(Some(self.terms.margin));
        [number(self.terms.grace), margin, number(self.deadline), self.is_foreground.to_string()]
    }

    fn parse(arguments: &[OsString]) -> Option<Self> {
        let texts: Vec<&str> = arguments.iter().map(|it| it.to_str()).collect::<Option<_>>()?;
        let [grace, margin, deadline, is_foreground] = texts[..] else { return None };
        let number = |text: &str| match text {
            "-" => Some(None),
            text => text.parse().ok().map(|nanos| Some(Duration::from_nanos(nanos))),
        };
        Some(Self {
            terms: Terms { grace: number(grace)?, margin: number(margin)?? },
            deadline: number(deadline)?,
            is_foreground: is_foreground.parse().ok()?,
        })
    }
}

/// Runs this process as a supervisor. The arguments are those behind [`ARGUMENT`].
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(supervise(arguments))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The program notices the end of this process, and ends the command.
            exec::complain(&format!("the supervisor of the command failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn supervise(arguments: &[OsString]) -> io::Result<()> {
    let invalid = || io::Error::other("only zklock itself starts a supervisor");
    let (charge, command) = arguments.split_at_checked(Charge::ARGUMENTS).ok_or_else(invalid)?;
    let charge = Charge::parse(charge).ok_or_else(invalid)?;
    let control = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = receive_stdin(&control)?;
    control.set_nonblocking(true)?;
    let (orders, mut reports) = UnixStream::from_std(control)?.into_split();
    let mut orders = BufReader::new(orders).lines();

    // The terminal sends signals to all processes of the group; those for the command come as orders.
    let mut signals = Signals::catch()?;
    let mut child_ended = signal(SignalKind::child())?;
    let mut family = Family::adopt()?;
    let mut ending = Ending::new(charge.terms, charge.deadline);
    let id = start(command, stdin, charge.is_foreground)?;
    family.add_command(id, !charge.is_foreground);
    let mut is_orphan = false;
    let mut has_ended = false;
    let mut has_killed = false;
    // The program may be gone, and then nobody reads the report.
    tell(&mut reports, Report::Started(i32::try_from(id).unwrap_or_default())).await;

    loop {
        let is_any_left = family.reap()?;
        if let Some(ended) = family.ended().filter(|_| !has_ended) {
            has_ended = true;
            tell(&mut reports, Report::Ended(ended)).await;
        }
        if !is_any_left {
            tell(&mut reports, Report::Gone(ending.left(boot_now()))).await;
            return Ok(());
        }
        if has_ended {
            // What the command has left running must not outlive the lock.
            ending.begin(Duration::MAX);
        }
        let next = match ending.due(boot_now()) {
            Due::Terminate => {
                family.signal_all(Signal::TERM);
                tell(&mut reports, Report::Terminating).await;
                continue;
            }
            Due::Kill => {
                family.signal_all(Signal::KILL);
                // Once, since the program may not read the reports, and this loop must not wait.
                if !has_killed {
                    has_killed = true;
                    tell(&mut reports, Report::Killing).await;
                }
                continue;
            }
            Due::Wait(at) => at,
        };
        tokio::select! {
            _ = child_ended.recv() => {}
            () = wait_until(next) => {}
            _ = signals.next() => {}
            order = orders.next_line(), if !is_orphan => match order {
                Ok(Some(line)) => obey(&line, &mut ending, &family)?,
                Ok(None) | Err(_) => {
                    is_orphan = true;
                    ending.begin(ORPHAN_GRACE);
                }
            },
        }
    }
}

fn obey(line: &str, ending: &mut Ending, family: &Family) -> io::Result<()> {
    match line.parse().map_err(|error: String| io::Error::other(error))? {
        Order::Deadline(at) => ending.set_deadline(at),
        Order::End => ending.begin(Duration::MAX),
        Order::Signal(number) => {
            if let Some(signal) = Signal::from_named_raw(number) {
                family.forward(signal);
            }
        }
    }
    Ok(())
}

async fn tell(reports: &mut OwnedWriteHalf, report: Report) {
    let _ = reports.write_all(format!("{report}\n").as_bytes()).await;
}

/// Starts the command, by way of a process that asks the kernel for a signal when this process ends.
fn start(command: &[OsString], stdin: OwnedFd, is_foreground: bool) -> io::Result<u32> {
    let parent = std::process::id().to_string();
    let mut shim = Command::new(OWN_PROGRAM);
    shim.arg0("zklock")
        .arg(exec::ARGUMENT)
        .arg(OsStr::new(&parent))
        .args(command)
        .stdin(Stdio::from(stdin));
    if !is_foreground {
        shim.process_group(0);
    }
    Ok(shim.spawn()?.id())
}

/// Sends this process's standard input, which becomes that of the command.
fn pass_stdin(socket: &StdStream) -> io::Result<()> {
    let stdin = io::stdin();
    let fds = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[io::IoSlice::new(b"\n")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

fn receive_stdin(socket: &StdStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut stdin = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            stdin = fds.next();
        }
    }
    stdin.ok_or_else(|| io::Error::other("zklock has ended before its command began"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_charge_is_read_as_it_was_written() {
        let margin = Duration::from_millis(200);
        for (grace, deadline) in [(None, None), (Some(margin * 5), Some(margin * 100))] {
            let charge = Charge { terms: Terms { grace, margin }, deadline, is_foreground: true };
            let arguments = charge.arguments().map(OsString::from);
            let read = Charge::parse(&arguments).unwrap();
            assert_eq!((read.terms, read.deadline), (charge.terms, charge.deadline));
            assert!(read.is_foreground);
        }
        assert!(Charge::parse(&["-", "-", "-", "true"].map(OsString::from)).is_none());
    }

    #[test]
    fn a_descriptor_passes_through_the_socket() {
        let (ours, theirs) = StdStream::pair().unwrap();
        pass_stdin(&ours).unwrap();
        let received = receive_stdin(&theirs).unwrap();
        let file = |fd: i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        assert_eq!(file(received.as_raw_fd()), file(0));
        drop(ours);
        assert!(receive_stdin(&theirs).is_err());
    }
}
