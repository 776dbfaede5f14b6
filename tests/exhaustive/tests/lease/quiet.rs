//! The length of a lease when nothing fails.

use std::time::Duration;

use zk_recipes::{Client, ClientBuilder, Guard, Lease, LockState};
use zk_tests::lockstep::Lockstep;
use zk_tests::scene::spawn;
use zk_testserver::{ServerConfig, TestServer};

use crate::{RATES, SECOND, by_pings, interval, ms};

/// Time after which the lease from the handshake has ended.
const MINUTE: Duration = Duration::from_secs(60);

fn start(timeout: Duration, rate: u32) -> (Lockstep, Client, Guard) {
    start_with(timeout, rate, |builder| builder.lease(by_pings()))
}

fn start_with(
    timeout: Duration,
    rate: u32,
    options: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Lockstep, Client, Guard) {
    let config = ServerConfig::default().min_session_timeout(SECOND).max_session_timeout(MINUTE);
    let mut world = Lockstep::new(config, rate);
    let client = world.client(|builder| options(builder.session_timeout(timeout)));
    let guard = world.hold(&client);
    (world, client, guard)
}

/// Requests that a caller sends beside those that keep the lease.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    Reads(Duration),
    Writes(Duration),
}

impl Traffic {
    fn interval(self) -> Duration {
        let (Self::Reads(interval) | Self::Writes(interval)) = self;
        interval
    }

    /// Sends one of the requests.
    fn send(self, client: &Client) -> tokio::task::JoinHandle<Result<(), zk_recipes::OpError>> {
        let client = client.clone();
        spawn(async move {
            match self {
                Self::Reads(_) => client.exists("/").await.map(drop),
                Self::Writes(_) => client.set_data("/", "", None).await.map(drop),
            }
        })
    }
}

/// Returns the shortest and the longest remaining lease within two minutes, which begin after the
/// lease from the handshake has ended.
fn extremes(
    lease: Lease,
    timeout: Duration,
    rate: u32,
    traffic: Option<Traffic>,
) -> Option<(Duration, Duration)> {
    let (mut world, client, guard) = start_with(timeout, rate, |builder| builder.lease(lease));
    let (mut least, mut most) = (Duration::MAX, Duration::ZERO);
    let (begin, mut due) = (MINUTE * 3 / 2, Duration::ZERO);
    while world.now < begin + MINUTE * 2 {
        let step = if world.now < begin { ms(100).min(begin - world.now) } else { ms(50) };
        world.step(step);
        if let Some(traffic) = traffic.filter(|_| due <= world.now) {
            due += traffic.interval();
            let sent = world.look(|| traffic.send(&client));
            world.finish(sent).expect("it does not panic").expect("nothing goes wrong");
        }
        if world.now <= begin {
            continue;
        }
        let (state, left) = world.look(|| (guard.state(), guard.remaining()));
        assert_eq!(state, LockState::Held, "at {:?}", world.now);
        (least, most) = (least.min(left?), most.max(left?));
    }
    assert_eq!(client.status().connection, 1);
    assert_eq!(client.status().lapses, 0);
    Some((least, most))
}

/// The pages with the tables, as paths and texts.
const WRITES_PAGE: (&str, &str) =
    ("docs/guarantees.md", include_str!("../../../../docs/guarantees.md"));
const PINGS_PAGE: (&str, &str) =
    ("docs/internals/lease.md", include_str!("../../../../docs/internals/lease.md"));

/// Returns a row of a table, and the shortest remaining lease with any of the clocks.
fn row(lease: Lease, seconds: u64) -> (String, Option<Duration>) {
    let timeout = Duration::from_secs(seconds);
    let interval = interval(lease, timeout);
    let mut shortest: Option<Duration> = None;
    let mut cells = "no | none |".to_owned();
    for rate in RATES {
        let Some((least, most)) = extremes(lease, timeout, rate, None) else { continue };
        shortest = Some(shortest.unwrap_or(least).min(least));
        if rate == 1000 {
            let interval = interval.unwrap_or_default().as_secs_f64();
            let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
            cells = format!("{interval:.2} s | {least:.1} s to {most:.1} s |");
        }
    }
    assert_eq!(shortest.is_some(), interval.is_some(), "{seconds} s");
    (format!("| {seconds} s | {cells}"), shortest)
}

/// Prints a table, and checks that the page has each of its rows.
fn check_table(
    lease: Lease,
    seconds: &[u64],
    (path, page): (&str, &str),
    is_enough: impl Fn(Duration, u64) -> bool,
) {
    let mut missing = String::new();
    for &seconds in seconds {
        let (row, shortest) = row(lease, seconds);
        eprintln!("{row}");
        let is_enough = shortest.is_none_or(|shortest| is_enough(shortest, seconds));
        assert!(is_enough, "the lease nearly runs out: {shortest:?} of {seconds} s");
        if !page.contains(&row) {
            missing = format!("{missing}\n{row}");
        }
    }
    assert!(missing.is_empty(), "{path} does not say{missing}");
}

#[test]
fn a_lease_of_pings_lasts_when_nothing_goes_wrong() {
    check_table(by_pings(), &[10, 18, 19, 20, 30, 40, 60], PINGS_PAGE, |least, _| least > SECOND);
}

#[test]
fn a_lease_of_writes_lasts_when_nothing_goes_wrong() {
    let seconds = [3, 4, 5, 6, 10, 15, 20, 30, 40, 60];
    check_table(Lease::default(), &seconds, WRITES_PAGE, |least, seconds| {
        least >= Lease::default().write_interval(SECOND * seconds as u32).unwrap_or_default() * 2
    });
}

/// Requests of a caller do not shorten a lease, but its writes move those that keep one, which costs
/// at most an interval.
#[test]
fn requests_of_a_caller_do_not_shorten_a_lease() {
    let pings = [20, 30, 60].map(|seconds| (by_pings(), seconds));
    let writes = [10, 30, 60].map(|seconds| (Lease::default(), seconds));
    for (lease, seconds) in pings.into_iter().chain(writes) {
        let timeout = SECOND * seconds;
        let own = interval(lease, timeout).expect("there is a lease");
        let is_of_pings = lease.ping_interval(timeout).is_some();
        let (quiet, _) = extremes(lease, timeout, 1000, None).expect("there is a lease");
        for hundredths in [30, 80, 95, 110, 170, 450, 1_400] {
            // The world accepts no more than 400 requests a minute.
            let interval = (own * hundredths / 100).max(ms(300));
            for traffic in [Traffic::Reads(interval), Traffic::Writes(interval)] {
                let (least, _) =
                    extremes(lease, timeout, 1000, Some(traffic)).expect("there is a lease");
                let is_renewal = !is_of_pings && matches!(traffic, Traffic::Writes(_));
                let cost = if is_renewal { own } else { ms(100) };
                let of_quiet = format!("{least:?} of {quiet:?} with {seconds} s");
                eprintln!("{traffic:?}: {of_quiet}");
                assert!(least + cost >= quiet, "{lease:?}, {traffic:?}: {of_quiet}");
            }
        }
    }
}

#[test]
fn a_short_outage_loses_nothing() {
    let timeout = SECOND * 30;
    let interval = by_pings().ping_interval(timeout).expect("there is a lease");
    let mut outages = 0;
    for moment in 0..8 {
        for rate in RATES {
            let (mut world, client, guard) = start(timeout, rate);
            world.run_until(MINUTE + interval * moment / 8, ms(100));
            for round in 2..8 {
                world.serve(|server| server.refuse_for(SECOND));
                world.serve(TestServer::disconnect_all);
                world.step(ms(50));
                assert_eq!(world.look(|| guard.state()), LockState::AtRisk);
                let end = world.now + SECOND * 5;
                world.run_until(end, ms(50));
                assert_eq!(world.look(|| guard.state()), LockState::Held, "round {round}");
                // The guard's own check was committed after the resume, so the lease counts from
                // it.
                let left = world.look(|| guard.remaining()).expect("there is a lease");
                assert!(left > SECOND * 20, "{left:?} remain after the proof");
                assert_eq!(client.status().connection, round);
                outages += 1;
            }
            let end = world.now + MINUTE;
            world.run_until(end, ms(100));
            assert_eq!(world.look(|| guard.state()), LockState::Held);
            assert_eq!(client.status().lapses, 0);
        }
    }
    eprintln!("{outages} short outages");
}

/// A server falls silent on a connection that stays open. The client reconnects before the lease
/// ends, which saves the guard.
#[test]
fn a_silent_server_is_left_in_time() {
    for timeout in [19, 20, 30, 40, 60] {
        let timeout = SECOND * timeout;
        let interval = by_pings().ping_interval(timeout).expect("there is a lease");
        for moment in 0..4 {
            for rate in RATES {
                let (mut world, client, guard) = start(timeout, rate);
                world.run_until(MINUTE + interval * moment / 4, ms(100));
                let session = guard.session();
                world.serve(|server| server.pause_connection(session, MINUTE));
                let end = world.now + MINUTE * 2;
                world.run_until(end, ms(50));
                assert_eq!(world.look(|| guard.state()), LockState::Held, "{timeout:?} {rate}");
                assert_eq!(client.status().connection, 2);
                assert_eq!(client.status().lapses, 0);
            }
        }
    }
}

/// A client that neither holds a lock nor waits for one leaves a silent server no earlier than
/// other clients.
#[test]
fn a_client_without_locks_waits_for_a_silent_server() {
    let (mut world, client, guard) = start(SECOND * 30, 1000);
    let session = guard.session();
    world.look(|| drop(guard));
    world.run_until(MINUTE, ms(100));
    world.serve(|server| server.pause_connection(session, SECOND * 17));
    let end = world.now + MINUTE;
    world.run_until(end, ms(50));
    assert_eq!(client.status().connection, 1);
    // The next lock needs a lease, and has one at once.
    world.serve(|server| server.pause_connection(session, SECOND * 17));
    let end = world.now + SECOND * 18;
    world.run_until(end, ms(50));
    let before = world.now;
    let guard = world.hold(&client);
    assert!(world.now - before < ms(200), "it took {:?}", world.now - before);
    assert!(world.look(|| guard.remaining()) > Some(SECOND * 20));
}

/// After a lease has ended, the next lock can be acquired as soon as a server is reachable.
#[test]
fn a_lock_can_be_had_again_right_after_a_long_outage() {
    for (is_silent, seconds) in [(false, 12), (false, 25), (true, 12), (true, 25)] {
        let (mut world, client, guard) = start(SECOND * 30, 1000);
        world.run_until(MINUTE, ms(100));
        let session = guard.session();
        world.serve(|server| server.refuse_for(SECOND * seconds));
        if is_silent {
            world.serve(|server| server.pause_connection(session, SECOND * seconds));
        } else {
            world.serve(TestServer::disconnect_all);
        }
        let end = world.now + SECOND * seconds;
        world.run_until(end, ms(50));
        assert!(matches!(world.look(|| guard.state()), LockState::Lost(_)));
        world.look(|| drop(guard));
        let end = world.now + SECOND * 5;
        world.run_until(end, ms(50));
        let before = world.now;
        let guard = world.hold(&client);
        assert!(world.now - before < ms(200), "it took {:?}", world.now - before);
        let left = world.look(|| guard.remaining()).expect("there is a lease");
        assert!(left > SECOND * 20, "{left:?} remain");
        let end = world.now + MINUTE;
        world.run_until(end, ms(100));
        assert_eq!(world.look(|| guard.state()), LockState::Held);
        world.look(|| drop(guard));
    }
}

#[test]
fn without_a_lease_the_guard_has_the_deadline_it_always_had() {
    for (timeout, config) in [(10, Some(by_pings())), (30, None)] {
        let timeout = SECOND * timeout;
        let (mut world, client, guard) = start_with(timeout, 1000, |builder| builder.lease(config));
        world.run_until(MINUTE, ms(100));
        let lost = world.await_loss(&guard);
        assert_eq!(world.look(|| guard.remaining()), None);
        let status = client.status();
        let sent = status.acknowledged.expect("something was acknowledged");
        assert_eq!(status.guard_deadline(), Some(sent + timeout));
        assert_eq!(status.risk_deadline(), Some(sent + timeout * 2 / 3));
        let session = guard.session();
        world.serve(|server| server.refuse_for(MINUTE * 60));
        world.serve(|server| server.pause_connection(session, MINUTE * 60));
        while !lost.is_finished() {
            assert_eq!(world.look(|| guard.remaining()), None);
            world.step(ms(50));
        }
        let late = world.look(|| client.now()).saturating_since(sent + timeout);
        assert!(late <= ms(51), "{late:?} late");
        assert_eq!(world.look(|| guard.remaining()), Some(Duration::ZERO));
        world.look(|| drop(guard));
    }
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused() {
    let builder = Client::builder("in-process").lease(Lease::pings(0, SECOND));
    let error = builder.start().expect_err("no server is like that");
    assert_eq!(
        error.to_string(),
        "invalid lease (pings, syncLimit 0, tickTime 1s): the sync limit is zero"
    );
}
