//! `zklock top` on a terminal, and without one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::process::Child;
use tokio::task::spawn_blocking;
use zk_testserver::Reception;

use crate::queues::shared_queues;
use crate::world::{World, start};

const ROWS: u16 = 12;

/// The other side of a terminal of 80 columns.
pub(crate) struct Terminal {
    side: Option<File>,
    peer: File,
    seen: String,
    child: Child,
}

impl Terminal {
    pub(crate) fn start(world: &World, name: &str, no_color: &str) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let side = openpt(flags).unwrap();
        grantpt(&side).unwrap();
        unlockpt(&side).unwrap();
        let peer = File::from(ioctl_tiocgptpeer(&side, flags).unwrap());
        let size = Winsize { ws_row: ROWS, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&side, size).unwrap();
        let mut command = world.zklock("top");
        let stdio = || Stdio::from(peer.try_clone().unwrap());
        command.arg("/locks").env("TERM", name).env("NO_COLOR", no_color);
        let child = command.stdin(stdio()).stdout(stdio()).spawn().unwrap();
        Self { side: Some(File::from(side)), peer, seen: String::new(), child }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.side.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the terminal shows a text, and returns its rows with their styles.
    pub(crate) async fn until(&mut self, text: &str) -> Vec<String> {
        loop {
            let frame = self.seen.rsplit_once("\x1b[H").map(|(_, frame)| frame);
            let frame = frame.and_then(|it| it.split_once("\x1b[J")).map(|(frame, _)| frame);
            if let Some(frame) = frame.filter(|frame| frame.contains(text)) {
                // The terminal adds a carriage return.
                let rows = frame.replace("\x1b[K", "").replace('\r', "");
                return rows.split('\n').map(str::to_owned).collect();
            }
            self.read().await;
        }
    }

    async fn read(&mut self) {
        let mut side = self.side.take().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test has no driver")]
        let read = spawn_blocking(move || {
            let mut bytes = [0; 4096];
            let length = side.read(&mut bytes).unwrap();
            (side, bytes.get(..length).unwrap_or_default().to_vec())
        });
        let (side, bytes) = tokio::time::timeout(crate::world::PATIENCE, read)
            .await
            .unwrap_or_else(|_| panic!("the terminal shows {:?}", self.seen))
            .unwrap();
        self.side = Some(side);
        self.seen.push_str(&String::from_utf8_lossy(&bytes));
    }

    /// Checks that the program has left the terminal as it was.
    pub(crate) async fn ended(&mut self) -> i32 {
        let status = self.child.wait().await.unwrap();
        while !self.seen.contains("\x1b[?1049l") {
            self.read().await;
        }
        let modes = tcgetattr(&self.peer).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        status.code().expect("it was not ended by a signal")
    }
}

fn plain(row: &str) -> String {
    ["\x1b[1;31m", "\x1b[32m", "\x1b[1m", "\x1b[7m", "\x1b[m"]
        .iter()
        .fold(row.to_owned(), |row, style| row.replace(style, ""))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_the_list_and_queues_and_obeys_keys() {
    let world = shared_queues().await;
    let mut terminal = Terminal::start(&world, "xterm", "");
    let rows = terminal.until("3 locks").await;
    assert_eq!(rows.len(), usize::from(ROWS));
    assert!(rows.iter().all(|row| plain(row).chars().count() <= 80), "{rows:?}");
    assert_eq!(rows[0], "zklock top /locks: 3 locks, 7 entries, ordered by the oldest wait");
    assert_eq!(rows[1], "\x1b[32mconnected\x1b[m");
    assert!(rows[3].starts_with("\x1b[7m> /locks/billing"), "{rows:?}");
    assert!(rows[11].contains("q: quit"), "the keys are explained");
    terminal.press("\x1b[B");
    terminal.until("> /locks/uploads").await;
    terminal.press("\r");
    let rows = terminal.until("app3 pid=1 upload").await;
    assert_eq!(rows[0], "zklock top /locks/uploads: semaphore, 3 entries");
    // It is followed too.
    world.server.admin_delete(&format!("/locks/uploads/{:032x}-permit-0000000001", 1));
    terminal.until("semaphore, 2 entries").await;
    terminal.press("\x1b");
    terminal.until("> /locks/uploads").await;
    terminal.press("oo");
    terminal.until("ordered by the path").await;
    world.server.set_reception(Reception::Refused);
    world.server.disconnect_all();
    let rows = terminal.until("no connection for").await;
    assert!(rows[1].starts_with("\x1b[1;31m"), "{rows:?}");
    // Without a server, keys work.
    terminal.press("k");
    terminal.until("> /locks/nightly").await;
    world.server.set_reception(Reception::Open);
    terminal.until("connected again").await;
    terminal.press("q");
    assert_eq!(terminal.ended().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_colours_everything_is_still_said() {
    let world = shared_queues().await;
    let mut terminal = Terminal::start(&world, "xterm", "1");
    let rows = terminal.until("3 locks").await;
    assert!(!rows.concat().contains("\x1b[3"), "{rows:?}");
    assert_eq!(rows[1], "connected");
    assert!(rows[3].contains("> /locks/billing"), "{rows:?}");
    let id = i32::try_from(terminal.child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
    assert_eq!(terminal.ended().await, 130);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_top_prints_frames() {
    let world = shared_queues().await;
    let mut top = start(world.zklock("top").arg("/locks"));
    let mut frame = Vec::new();
    while let Some(line) = top.line_or_empty().await {
        frame.push(line);
    }
    assert_eq!(frame[0], "zklock top /locks: 3 locks, 7 entries, ordered by the oldest wait");
    assert_eq!(frame.len(), 6, "{frame:?}");
    assert!(frame.iter().all(|line| line.chars().count() <= 80 && !line.contains('\x1b')));
    world.server.admin_delete("/locks/nightly");
    assert!(top.line().await.starts_with("zklock top /locks: 2 locks, 6 entries"));
}
