//! The lines that the program and its supervisor exchange. Times are those of
//! [`boot_now`](crate::clock::boot_now), in nanoseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What the program tells its supervisor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// The command must be gone at this time.
    Deadline(Duration),
    /// End the command: the lock is lost.
    End,
    /// Send this signal to the command.
    Signal(i32),
}

/// What the supervisor tells the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Report {
    /// The command has ended.
    Ended(Ended),
    /// The command and everything that it has started are gone, this many nanoseconds before the
    /// deadline; a negative number is after it.
    Gone(i64),
    /// The supervisor sends SIGKILL.
    Killing,
    /// The command runs, or is about to, as this process.
    Started(i32),
    /// The supervisor sends SIGTERM.
    Terminating,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    Exited(i32),
    Signaled(i32),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(at) => write!(f, "deadline {}", at.as_nanos()),
            Self::End => f.write_str("end"),
            Self::Signal(number) => write!(f, "signal {number}"),
        }
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let order = match line.split_once(' ') {
            None if line == "end" => Some(Self::End),
            Some(("deadline", at)) => {
                at.parse().ok().map(|at| Self::Deadline(Duration::from_nanos(at)))
            }
            Some(("signal", number)) => number.parse().ok().map(Self::Signal),
            None | Some(_) => None,
        };
        order.ok_or_else(|| format!("{line:?} is not an order"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(Ended::Exited(status)) => write!(f, "exited {status}"),
            Self::Ended(Ended::Signaled(signal)) => write!(f, "signaled {signal}"),
            Self::Gone(left) => write!(f, "gone {left}"),
            Self::Killing => f.write_str("killing"),
            Self::Started(process) => write!(f, "started {process}"),
            Self::Terminating => f.write_str("terminating"),
        }
    }
}

impl FromStr for Report {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<i32>().ok();
        let report = match line.split_once(' ') {
            None if line == "killing" => Some(Self::Killing),
            None if line == "terminating" => Some(Self::Terminating),
            Some(("exited", status)) => number(status).map(|it| Self::Ended(Ended::Exited(it))),
            Some(("signaled", signal)) => number(signal).map(|it| Self::Ended(Ended::Signaled(it))),
            Some(("gone", left)) => left.parse().ok().map(Self::Gone),
            Some(("started", process)) => number(process).map(Self::Started),
            None | Some(_) => None,
        };
        report.ok_or_else(|| format!("{line:?} is not a report"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_read_as_it_was_written() {
        for order in [Order::Deadline(Duration::from_nanos(17)), Order::End, Order::Signal(15)] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for report in [
            Report::Ended(Ended::Exited(3)),
            Report::Ended(Ended::Signaled(9)),
            Report::Gone(-5),
            Report::Killing,
            Report::Started(4711),
            Report::Terminating,
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert!("end 1".parse::<Order>().is_err());
        assert!("started".parse::<Report>().is_err());
    }
}
