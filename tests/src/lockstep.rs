//! Servers and a client process, each with a clock of its own, in virtual time.
//!
//! There are two runtimes with paused clocks, one for the servers and one for the client, joined by
//! in-memory pipes. The test advances both in steps. The client's clock may be fast or slow, and
//! its process may be frozen: it is then not advanced, and its clock jumps before it continues.

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use zk_recipes::{Client, ClientBuilder, Clock, FairLock, Guard, LostReason};
use zk_testserver::{ServerConfig, TestServer};

use crate::case::LOCK;
use crate::meter::{Meter, Pace, Total};
use crate::world::runtime;

/// How often each side may react to the other within one step.
const ROUNDS: usize = 4;
/// How often each task may run within one round.
const TURNS: usize = 4;

/// A session with a timeout of four seconds renews its lease five times per second.
const PACE: Pace = Pace { per_minute: 400, ..Pace::CALM };

/// The two sides.
#[derive(Debug)]
pub struct Lockstep {
    server: TestServer,
    servers: Runtime,
    process: Runtime,
    /// Speed of the client's clock, in thousandths.
    rate: u32,
    /// True time since the start.
    pub now: Duration,
    /// Time that the frozen process has not noticed yet.
    missed: Duration,
}

impl Lockstep {
    /// Creates both sides. The client's clock runs at `rate` thousandths of the true speed.
    pub fn new(config: ServerConfig, rate: u32) -> Self {
        let servers = runtime();
        let server = servers.block_on(async { TestServer::start(config) });
        let (now, missed) = (Duration::ZERO, Duration::ZERO);
        Self { server, servers, process: runtime(), rate, now, missed }
    }

    /// Connects a client to the servers.
    ///
    /// # Panics
    ///
    /// If the client does not connect.
    pub fn client(&mut self, options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let (server, servers) = (self.server.clone(), self.servers.handle().clone());
        let meter = Meter::new(PACE, Total::default());
        let connector = move |_host| {
            // The connection must use the clock of the servers, not the client's.
            let _context = servers.enter();
            ready(server.connect().map(|stream| meter.stream(stream)))
        };
        let connecting = async move {
            let builder = Client::builder("in-process").clock(Clock::tokio()).seed(1);
            options(builder).transport(connector).connect().await
        };
        self.finish(connecting).expect("nothing goes wrong before the test begins")
    }

    /// Acquires the fair lock for a client.
    ///
    /// # Panics
    ///
    /// If the lock is not granted.
    pub fn hold(&mut self, client: &Client) -> Guard {
        let lock = FairLock::new(client, LOCK).expect("the path is valid");
        self.finish(lock.acquire().into_future()).expect("the lock is free")
    }

    /// Calls the servers, on their clock.
    pub fn serve<T>(&self, call: impl FnOnce(&TestServer) -> T) -> T {
        let _context = self.servers.enter();
        call(&self.server)
    }

    /// Evaluates something in the client's process, on its clock.
    pub fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        let _context = self.process.enter();
        look()
    }

    /// Spawns a task in the client's process that waits for the loss of the lock.
    pub fn await_loss(&self, guard: &Guard) -> tokio::task::JoinHandle<LostReason> {
        self.process.handle().spawn(guard.lost())
    }

    /// Lets true time pass on both sides.
    pub fn step(&mut self, time: Duration) {
        self.now += time;
        self.servers.block_on(tokio::time::advance(time));
        self.process.block_on(tokio::time::advance(time * self.rate / 1000));
        self.settle();
    }

    /// Lets true time pass, in steps, until `end`.
    pub fn run_until(&mut self, end: Duration, step: Duration) {
        while self.now < end {
            self.step(step.min(end - self.now));
        }
    }

    /// Lets true time pass for the servers only.
    pub fn step_frozen(&mut self, time: Duration) {
        self.now += time;
        self.missed += time;
        self.servers.block_on(tokio::time::advance(time));
        turns(&self.servers);
    }

    /// Resumes the process: its clock jumps, then `look` runs, then its tasks.
    pub fn thaw<T>(&mut self, look: impl FnOnce() -> T) -> T {
        let missed = std::mem::take(&mut self.missed) * self.rate / 1000;
        let seen = self.process.block_on(async {
            let mut jump = pin!(tokio::time::advance(missed));
            // The first poll advances the clock. The second poll happens after the polls of the
            // other tasks.
            let is_pending =
                jump.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
            assert!(is_pending, "other tasks have run before `look`");
            let seen = look();
            jump.await;
            seen
        });
        self.settle();
        seen
    }

    /// Polls a future once, in the client's process.
    pub fn poll<T>(&self, future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        let polled = self
            .process
            .block_on(async { Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) });
        match polled {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Runs a future in the client's process to completion, in small steps.
    ///
    /// # Panics
    ///
    /// If it does not complete.
    pub fn finish<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        for _ in 0..10_000 {
            if let Some(output) = self.poll(&mut future) {
                return output;
            }
            self.step(Duration::from_millis(1));
        }
        panic!("the future does not complete");
    }

    fn settle(&self) {
        for _ in 0..ROUNDS {
            turns(&self.servers);
            turns(&self.process);
        }
    }
}

fn turns(runtime: &Runtime) {
    runtime.block_on(async {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    });
}
