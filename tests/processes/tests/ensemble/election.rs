//! Fifty locks, with every option of the client at its default, while the ensemble loses its leader
//! or a follower. The servers have the tick and the limits of the sample configuration.
//!
//! A lost server is cut off without closing its connections, so the other servers notice the loss
//! only by timeouts. This makes the election long.

mod load;
mod stands;

use std::env;
use std::fmt;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use zk_session::{Client, SessionState};
use zk_tests::ensemble::{Ensemble, Server};
use zk_tests::proxy::Proxy;
use zk_tests::target::Fixture;
use zk_tests::wait::{PATIENCE, soon};

use self::load::Load;
use self::stands::Stands;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_holders_and_those_behind_them_outlive_elections() {
    let rounds = match env::var("ELECTION_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("ELECTION_ROUNDS is a number"),
        Err(_) => ROUNDS_DEFAULT,
    };
    eprintln!("election: {rounds} rounds, by ELECTION_ROUNDS or its default");
    assert!(rounds > 0, "without a round nothing is shown");
    let mut scene = Scene::start().await;
    for round in 1..=rounds {
        scene.spread().await;
        sleep(REST).await;
        let leader = scene.ensemble.leader().await;
        scene.lose(&format!("round {round} of {rounds}"), &leader, Loss::OfAll).await;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_holders_and_those_behind_them_outlive_a_follower() {
    outlive_a_follower("a follower alone", Loss::OfAll).await;
}

/// The follower replies to pings until it notices the loss, but the leader does not learn of these
/// pings.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_holders_and_those_behind_them_outlive_a_follower_that_has_lost_its_leader() {
    outlive_a_follower("a follower without peers", Loss::OfPeers).await;
}

async fn outlive_a_follower(name: &str, loss: Loss) {
    let mut scene = Scene::start().await;
    sleep(REST).await;
    scene.lose_follower(name, loss).await;
    scene.end().await;
}

/// Which connections a server loses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Loss {
    /// The connections to peers and clients.
    OfAll,
    /// The connections to peers.
    OfPeers,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfAll => "is cut off from peers and clients",
            Self::OfPeers => "is cut off from its peers",
        })
    }
}

/// The running parts of the test, in the order in which they must be dropped.
struct Scene {
    load: Load,
    stands: Stands,
    /// One group for each server.
    groups: Vec<Group>,
    /// The client that checks the writes of the other clients.
    observer: Client,
    fixture: Fixture,
    ensemble: Ensemble,
}

/// Clients that begin at one server, and have their own proxies in front of all servers.
struct Group {
    /// Index of the server at which the clients begin.
    home: usize,
    clients: Vec<Client>,
    /// One proxy per server, in the order of the servers.
    ways: Vec<Proxy>,
}

impl Group {
    async fn connect(fixture: &Fixture, home: usize, count: usize) -> Self {
        let group = Self { home, clients: Vec::new(), ways: fixture.proxies().await };
        group.refuse_elsewhere();
        let hosts: Vec<String> = group.ways.iter().map(|way| way.addr().to_string()).collect();
        let hosts = hosts.join(",");
        let mut connects = JoinSet::new();
        for _ in 0..count {
            connects.spawn(Client::builder(format!("{hosts}{}", fixture.chroot())).connect());
        }
        let clients = connects.join_all().await.into_iter().collect::<Result<_, _>>().unwrap();
        group.ways.iter().for_each(Proxy::admit_all);
        Self { clients, ..group }
    }

    /// Moves clients that are connected to other servers back to their home server.
    async fn go_home(&self) {
        self.refuse_elsewhere();
        self.elsewhere().for_each(Proxy::cut_all);
        let count = self.clients.len() as u64;
        soon("all at home", self.ways[self.home].until(|seen| seen.open == count)).await;
        self.ways.iter().for_each(Proxy::admit_all);
    }

    fn refuse_elsewhere(&self) {
        self.elsewhere().for_each(|way| way.refuse_for(2 * PATIENCE));
    }

    fn elsewhere(&self) -> impl Iterator<Item = &Proxy> {
        let ways = self.ways.iter().enumerate();
        ways.filter(|(index, _)| *index != self.home).map(|(_, way)| way)
    }
}

impl Scene {
    async fn start() -> Self {
        let ensemble = Ensemble::take_like_the_sample().await;
        let fixture = crate::fixture().await;
        let servers = ensemble.servers().len();
        let mut groups = Vec::new();
        for home in 0..servers {
            // The clients are two contenders for each lock, the writers, and one client that
            // observes all locks.
            let count = (2 * STANDS + WRITERS + 1).div_ceil(servers);
            groups.push(Group::connect(&fixture, home, count).await);
            assert_eq!(groups[home].ways.len(), servers, "a server does not accept connections");
        }
        let mut taken = 0..;
        let mut next = || {
            let index: usize = taken.next().expect("it has no end");
            groups[index % servers].clients[index / servers].clone()
        };
        let pairs: Vec<_> = (0..STANDS).map(|_| (next(), next())).collect();
        let writers: Vec<_> = (0..WRITERS).map(|_| next()).collect();
        let observer = next();
        let stands = Stands::take(pairs).await;
        let load = Load::start(writers).await;
        Self { load, stands, groups, observer, fixture, ensemble }
    }

    /// Cuts a server off, heals it, and checks all clients and locks.
    async fn lose(&mut self, name: &str, server: &Server, loss: Loss) {
        let before = self.connections();
        let servers = self.ensemble.servers().iter();
        let at = |server| self.ways(server).map(|way| way.statistics().open).sum::<u64>();
        let open: Vec<u64> = servers.map(at).collect();
        eprintln!("election, {name}: {server} {loss}; clients at each server: {open:?}");
        self.load.begin_round();
        self.stands.begin_round();
        let times = self.outage(server, loss).await;
        let seen = self.stands.seen();
        let after = self.connections();
        let more: u64 = after.iter().zip(&before).map(|(after, before)| after - before).sum();
        let [gap, longest] = self.load.gaps().map(seconds);
        eprintln!("election, {name}: {times}");
        eprintln!(
            "election, {name}: no write for {gap}, for {longest} of one client; {more} reconnects \
             of {} clients",
            after.len()
        );
        eprintln!("election, {name}: {seen}");
        let mut problems = self.load.lost(&self.observer).await;
        problems.extend(seen.problems());
        problems.extend(self.stands.displaced().await);
        let first = &problems[..problems.len().min(PROBLEMS_TOLD)];
        assert!(problems.is_empty(), "{name}: {} problems: {first:#?}", problems.len());
    }

    /// Cuts a server off until all its clients have found another server, and heals it. Returns a
    /// description with the times.
    async fn outage(&self, server: &Server, loss: Loss) -> String {
        let begin = Instant::now();
        let now = || seconds(begin.elapsed());
        if loss == Loss::OfAll {
            self.ways(server).for_each(Proxy::pause);
        }
        let fault = self.ensemble.cut_off(server).await;
        let stop = soon("the end of its service", async {
            while server.role().await.is_some() {
                sleep(LOOK_INTERVAL).await;
            }
            now()
        });
        let lead = async {
            let leader = self.ensemble.leader_but(server).await;
            format!("{leader} leads after {}", now())
        };
        let (stopped, led) = tokio::join!(stop, lead);
        // From now on, replies come from another server.
        self.answered().await;
        let answered = now();
        if loss == Loss::OfAll {
            // The proxies must not forward connections again that have ended.
            self.ways(server).for_each(Proxy::cut_all);
            self.ways(server).for_each(Proxy::resume);
        }
        fault.heal().await;
        self.ensemble.whole().await;
        let healed = now();
        format!(
            "{led}, {server} serves no client after {stopped}, all clients get replies after \
             {answered}, all serve after {healed}"
        )
    }

    /// Cuts a follower off, which affects only its own clients.
    async fn lose_follower(&mut self, name: &str, loss: Loss) {
        let follower = self.ensemble.follower().await;
        let before = self.connections();
        assert!(before.iter().all(|before| *before == 1), "no client has moved: {before:?}");
        self.lose(name, &follower, loss).await;
        for group in &self.groups {
            let was_there = group.home == follower.number - 1;
            for client in &group.clients {
                let status = client.status();
                assert_eq!(status.connection > 1, was_there, "began at {}: {status:?}", group.home);
            }
        }
    }

    /// Moves all clients back to their home servers, because no client returns by itself to a
    /// server that it has lost.
    async fn spread(&self) {
        for group in &self.groups {
            group.go_home().await;
        }
        self.answered().await;
    }

    async fn end(self) {
        let Self { load, stands, observer, fixture, .. } = self;
        let problems = load.end(&observer).await;
        assert!(problems.is_empty(), "{problems:#?}");
        stands.end().await;
        drop(fixture);
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.groups.iter().flat_map(|group| &group.clients)
    }

    fn connections(&self) -> Vec<u64> {
        self.clients().map(|client| client.status().connection).collect()
    }

    /// Returns the proxies of all clients in front of one server.
    fn ways(&self, server: &Server) -> impl Iterator<Item = &Proxy> {
        self.groups.iter().map(|group| &group.ways[server.number - 1])
    }

    /// Waits until every client has received a reply to a request that it sent after this call.
    async fn answered(&self) {
        let marks: Vec<_> = self.clients().map(Client::now).collect();
        soon("a reply for every client", async {
            for (client, mark) in self.clients().zip(marks) {
                loop {
                    let now = client.status();
                    let is_answered = now.acknowledged.is_some_and(|sent| sent > mark);
                    if now.state == SessionState::Connected && is_answered {
                        break;
                    }
                    sleep(LOOK_INTERVAL).await;
                }
            }
        })
        .await;
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

const ROUNDS_DEFAULT: usize = 2;
const STANDS: usize = 50;
const WRITERS: usize = 6;
/// Time after the last reconnect until a lease that pings renew reaches its usual length.
const REST: Duration = Duration::from_secs(25);
/// Most problems are similar, so only the first ones are printed.
const PROBLEMS_TOLD: usize = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
