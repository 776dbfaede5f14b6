//! Two thousand locks with ten thousand waiters: how much memory and how many requests it takes to
//! show them. The figures are printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use zk_recipes::SessionId;

use crate::world::{Started, World, start, zklock_at};

const LOCKS: usize = 2_000;
const WAITERS: usize = 10_000;
const WAITERS_EACH: usize = WAITERS / LOCKS;

/// How many requests `zklock` may have in flight.
const IN_FLIGHT_MAX: usize = 64;

/// A program needs some memory for itself, and a line for each lock, but nothing for each waiter.
const MEMORY_MAX: usize = 16 << 20;

/// How many requests were sent, are in flight, and were so at most.
#[derive(Default)]
struct Flight {
    sent: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

async fn crowd() -> World {
    let world = World::start().await;
    world.server.admin_create("/locks", b"", None);
    for lock in 0..LOCKS {
        let path = format!("/locks/job-{lock:04}");
        world.server.admin_create(&path, b"", None);
        for entry in 0..=WAITERS_EACH {
            let name = format!("{path}/{entry:032x}-lock-{entry:010}");
            let session = SessionId(0x0100_0000_00ab_0000 + i64::try_from(lock).unwrap());
            world.server.admin_create(&name, b"app1.example.com pid=4711 job", Some(session));
        }
    }
    world
}

/// Returns an address that leads to the server, and counts frames between the two.
async fn counted(world: &World, flight: &Arc<Flight>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (server, flight) = (world.address.clone(), Arc::clone(flight));
    #[expect(clippy::disallowed_methods, reason = "a test has no driver")]
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(server).await.unwrap();
        // Otherwise each batch of requests waits for the acknowledgement of the last one.
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::join!(requests(near_in, far_out, &flight), replies(far_in, near_out, &flight));
    });
    address
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, flight: &Flight) {
    let mut is_first = true;
    while let Some(frame) = frame(&mut from).await {
        if is_first || !is_of_session(&frame) {
            flight.sent.fetch_add(1, Ordering::SeqCst);
            let now = flight.now.fetch_add(1, Ordering::SeqCst) + 1;
            flight.most.fetch_max(now, Ordering::SeqCst);
        }
        is_first = false;
        if to.write_all(&frame).await.is_err() {
            break;
        }
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, flight: &Flight) {
    let mut is_first = true;
    while let Some(frame) = frame(&mut from).await {
        if is_first || !is_of_session(&frame) {
            flight.now.fetch_sub(1, Ordering::SeqCst);
        }
        is_first = false;
        if to.write_all(&frame).await.is_err() {
            break;
        }
    }
}

/// Returns whether a frame is a heartbeat or an event, which have negative xids, and so neither a
/// request nor its reply. The first frame of each side opens the session, and has no xid.
fn is_of_session(frame: &[u8]) -> bool {
    frame.get(4).is_some_and(|first| first & 0x80 != 0)
}

async fn frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let length = from.read_u32().await.ok()?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize(4 + usize::try_from(length).unwrap(), 0);
    from.read_exact(frame.get_mut(4..)?).await.ok()?;
    Some(frame)
}

/// Returns the most memory that the program has had, in KiB.
fn memory_kib(program: &Started) -> usize {
    let status = format!("/proc/{}/status", program.child.id().unwrap());
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_locks_take_little_memory_and_few_requests_at_a_time() {
    let world = crowd().await;
    for verb in ["ls", "top"] {
        let flight = Arc::new(Flight::default());
        let address = counted(&world, &flight).await;
        let mut command = zklock_at(&address, verb);
        // The program stays, so that its memory can be measured.
        command.args((verb == "ls").then_some("--watch")).arg("/locks");
        let mut program = start(&mut command);
        let mut lines = 0;
        while program.line_or_empty().await.is_some() {
            lines += 1;
        }
        let (sent, most) = (flight.sent.load(Ordering::SeqCst), flight.most.load(Ordering::SeqCst));
        let memory = memory_kib(&program);
        eprintln!(
            "{verb} of {LOCKS} locks with {} waiters: {lines} lines, {memory} KiB, {sent} requests, \
             at most {most} in flight",
            LOCKS * WAITERS_EACH
        );
        assert!(lines > LOCKS, "{lines} lines");
        assert!((2..=IN_FLIGHT_MAX).contains(&most), "{most} in flight");
        // A list, the holder and the first waiter of each lock; a connect, a watch, a list.
        assert!(sent <= 3 * LOCKS + 5, "{sent} requests");
        assert!(memory * 1024 <= MEMORY_MAX, "{memory} KiB");
    }
}
