//! Locks that are lost, and programs that are killed. The command and all that it has started end.
//!
//! The standard output of a command is a pipe that all of these processes share, so its end proves
//! that none of them is left.

use std::net::SocketAddr;

use rustix::process::{Signal, kill_process};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::world::{World, scratch, session, start, zklock_at};

/// A command that reports its session and process, and runs until it is ended. It prints the second
/// line after it has started all its processes, so that a test that has read the line knows that
/// they exist.
const ENDLESS: &str = "echo $ZKLOCK_SESSION; sleep 1000 & setsid sleep 1000 & echo $$; wait";

/// The same for a command that ignores SIGTERM, as do the processes that it starts.
const STUBBORN: &str = "trap '' TERM; echo $ZKLOCK_SESSION; sleep 1000 & echo $$; \
                        while :; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_expires_ends_the_command() {
    let world = World::start().await;
    let mut running = start(&mut world.script(ENDLESS));
    let owner = session(&running.line().await);
    running.line().await;
    world.server.expire(owner);
    assert_eq!(running.rest().await, "");
    assert_eq!(running.code().await, 123);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ignores_sigterm_is_killed() {
    let world = World::start().await;
    let mut command = world.script(STUBBORN);
    command.env("ZKLOCK_KILL_AFTER", "100ms").env("ZKLOCK_LOST_EXIT_CODE", "44");
    let mut running = start(&mut command);
    let owner = session(&running.line().await);
    running.line().await;
    world.server.expire(owner);
    assert_eq!(running.rest().await, "");
    assert_eq!(running.code().await, 44);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_deleted_ends_the_command_at_once() {
    let world = World::start().await;
    let mut command = world.script(ENDLESS);
    let mut running = start(command.env("ZKLOCK_ON_LOSS", "kill"));
    running.line().await;
    running.line().await;
    let entry = format!("/lock/{}", world.entries("/lock")[0]);
    assert!(world.server.admin_delete(&entry));
    assert_eq!(running.rest().await, "");
    assert_eq!(running.code().await, 123);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_can_be_ignored() {
    let world = World::start().await;
    let file = scratch("go-on");
    let script = "echo $ZKLOCK_SESSION; until test -e \"$FILE\"; do sleep 0.05; done; exit 5";
    let mut command = world.script(script);
    let mut running = start(command.env("ZKLOCK_ON_LOSS", "ignore").env("FILE", &file));
    let owner = session(&running.line().await);
    world.server.expire(owner);
    let mut next = start(world.zklock("hold").args(["--no-stdin", "/lock"]));
    next.line().await;
    std::fs::write(&file, "").unwrap();
    assert_eq!(running.code().await, 5);
    std::fs::remove_file(file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_ends_the_command_before_the_next_one_begins() {
    let world = World::start().await;
    let cable = Cable::new(&world.address).await;
    let mut command = zklock_at(&cable.address.to_string(), "run");
    command.args(["--session-timeout", "6s", "/lock", "sh", "-c", STUBBORN]);
    let mut running = start(&mut command);
    running.line().await;
    let process = running.line().await;

    let script = "kill -0 \"$PROCESS\" 2>/dev/null && echo both || echo alone";
    let mut next = world.script(script);
    let mut next = start(next.env("PROCESS", process));
    world.until_entries("/lock", 2).await;
    cable.cut().await;
    assert_eq!(running.rest().await, "");
    assert_eq!(running.code().await, 123);
    assert_eq!(next.line().await, "alone");
    assert_eq!(next.code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_stopped_does_not_protect_its_command() {
    let world = World::start().await;
    let mut command = world.script(ENDLESS);
    let mut running = start(command.env("ZKLOCK_SESSION_TIMEOUT", "4s"));
    running.line().await;
    let process = running.line().await;
    let script = "kill -0 \"$PROCESS\" 2>/dev/null && echo both || echo alone";
    let mut next = world.script(script);
    let mut next = start(next.env("PROCESS", process));
    world.until_entries("/lock", 2).await;
    // It renews nothing any more, neither at the servers nor with its supervisor.
    running.signal(Signal::STOP);
    assert_eq!(next.line().await, "alone");
    running.signal(Signal::CONT);
    assert_eq!(running.rest().await, "");
    assert_eq!(running.code().await, 123);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_killed_takes_everything_with_it() {
    let world = World::start().await;
    for script in [ENDLESS, STUBBORN] {
        let mut running = start(&mut world.script(script));
        let owner = session(&running.line().await);
        running.line().await;
        running.signal(Signal::KILL);
        assert_eq!(running.rest().await, "");
        assert!(!running.status().await.success());
        // Its session lives on, until it expires.
        assert!(world.server.sessions().contains(&owner));
        world.server.expire(owner);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_killed_takes_everything_with_it() {
    let world = World::start().await;
    for script in [ENDLESS, STUBBORN] {
        let mut running = start(&mut world.script(script));
        running.line().await;
        running.line().await;
        kill_process(running.supervisor(), Signal::KILL).unwrap();
        assert_eq!(running.rest().await, "");
        assert_eq!(running.code().await, 125);
        world.until_entries("/lock", 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_stopped_does_not_protect_its_command() {
    let world = World::start().await;
    for is_cut in [true, false] {
        let cable = Cable::new(&world.address).await;
        let mut command = zklock_at(&cable.address.to_string(), "run");
        command.args(["--session-timeout", "4s", "/lock", "sh", "-c", STUBBORN]);
        let mut running = start(&mut command);
        let owner = session(&running.line().await);
        let process = running.line().await;
        let script = "kill -0 \"$PROCESS\" 2>/dev/null && echo both || echo alone";
        let mut next = world.script(script);
        let mut next = start(next.env("PROCESS", process));
        world.until_entries("/lock", 2).await;
        kill_process(running.supervisor(), Signal::STOP).unwrap();
        if is_cut {
            cable.cut().await;
            assert_eq!(next.line().await, "alone");
        } else {
            world.server.expire(owner);
        }
        assert_eq!(running.rest().await, "");
        assert_eq!(running.code().await, 123);
        assert_eq!(next.code().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_kills_the_command_if_both_are_killed() {
    let world = World::start().await;
    let mut running = start(&mut world.script("echo $$; exec sleep 1000"));
    running.line().await;
    let supervisor = running.supervisor();
    // A stopped supervisor cannot notice the end of the program.
    kill_process(supervisor, Signal::STOP).unwrap();
    running.signal(Signal::KILL);
    assert!(!running.status().await.success());
    kill_process(supervisor, Signal::KILL).unwrap();
    assert_eq!(running.rest().await, "");
}

/// A connection to the server that can be cut, for ever.
struct Cable {
    address: SocketAddr,
    plugged: JoinHandle<()>,
}

impl Cable {
    #[expect(clippy::disallowed_methods, reason = "a network goes on while the test waits")]
    async fn new(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = server.to_owned();
        let plugged = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let server = server.clone();
                connections.spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, plugged }
    }

    /// Closes all connections, and refuses others.
    async fn cut(self) {
        self.plugged.abort();
        assert!(self.plugged.await.is_err_and(|error| error.is_cancelled()));
    }
}
