//! Producers and consumers of a work queue, each with its own client behind a network that fails at
//! random. Some consumers are killed. No item is lost, none is taken by two at once, and none is
//! delivered after its acknowledgement.
//!
//! The producers pause after each wave of items, until the queue is empty and the server has removed
//! its directory, whose sequence numbers then start again.
//!
//! `DELIVERIES_ITEMS` sets the number of items, `DELIVERIES_SEED` repeats the faults of an earlier
//! run, and their times. Which requests the faults hit depends on the machine.
#![expect(clippy::disallowed_methods, reason = "tasks run at the same time, in real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use zk_recipes::{Leased, LockState, WorkQueue, WorkQueueError};
use zk_session::Client;
use zk_session::recipe::Session;
use zk_tests::proxy::Proxy;
use zk_tests::random::SplitMix64;
use zk_tests::target::Fixture;

const QUEUE: &str = "/deliveries";
const PRODUCERS: usize = 4;
const CONSUMERS: usize = 4;
const KILLS: usize = 2;
const ITEMS: usize = 400;
/// Every this many items, the next ones are put as a batch.
const BATCH_EVERY: usize = 20;
const BATCH: usize = 5;
/// How many items of each producer are a wave. It is a multiple of the interval of the batches.
const WAVE: usize = 40;
/// The largest number of items that every other consumer takes at once.
const TAKEN: usize = 3;
/// A consumer gives back one of this many items.
const GIVEN_BACK: u64 = 25;
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const FAULT_INTERVAL: Duration = Duration::from_millis(2_000);
/// Much more time than a run takes on the slowest machine, and what each item adds to it.
const PATIENCE: Duration = Duration::from_secs(300);
const PATIENCE_OF_AN_ITEM: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Book {
    /// Who has each item, by its data.
    holders: BTreeMap<String, u64>,
    /// The token of the first delivery of each item, and its sequence number.
    first: BTreeMap<String, (i64, u64)>,
    done: BTreeSet<String>,
    unknown: BTreeSet<String>,
    killed: BTreeSet<u64>,
    deliveries: usize,
    given_back: usize,
    lost: usize,
    problems: Vec<String>,
}

type Shared = Arc<Mutex<Book>>;

fn open(book: &Shared) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_item_is_delivered_to_one_consumer_at_a_time_and_none_is_lost() {
    let fixture = Fixture::start().await;
    let items = variable("DELIVERIES_ITEMS").map_or(ITEMS, |items| items as usize);
    let seed = variable("DELIVERIES_SEED")
        .unwrap_or_else(|| Session::of(&fixture.observer).unique_id() as u64);
    eprintln!("DELIVERIES_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let book = Shared::default();
    let began = Instant::now();
    let patience = PATIENCE + PATIENCE_OF_AN_ITEM * items as u32;
    let waves = Waves::new(&fixture);

    let mut proxies = Vec::new();
    let mut producers = Vec::new();
    for producer in 0..PRODUCERS {
        let (proxy, client) = client(&fixture, random.next_u64()).await;
        let queue = WorkQueue::new(&client, QUEUE).expect("the path is valid");
        producers.push(tokio::spawn(produce(
            queue,
            producer,
            items / PRODUCERS,
            Arc::clone(&waves),
        )));
        proxies.push(proxy);
    }
    let mut consumers: Vec<(u64, Client, JoinHandle<()>, usize)> = Vec::new();
    let mut number = 0;
    for _ in 0..CONSUMERS {
        let (proxy, client) = client(&fixture, random.next_u64()).await;
        let task = start(&book, &client, number, random.next_u64());
        consumers.push((number, client, task, proxies.len()));
        proxies.push(proxy);
        number += 1;
    }

    let total = items / PRODUCERS * PRODUCERS;
    let mut kills = 0;
    let mut ended = 0;
    loop {
        let is_put = producers.iter().all(JoinHandle::is_finished);
        if is_put && kills == KILLS && children(&fixture, "entries").await.is_empty() {
            break;
        }
        assert!(began.elapsed() < patience, "it does not end: {:#?}", *open(&book));
        tokio::time::sleep(Duration::from_millis(20)).await;
        if kills < KILLS && accounted(&book) > total * (kills + 1) / (KILLS + 2) {
            // The process dies, and its network with it: nobody closes its session.
            let (killed, victim, task, at) = consumers.remove(0);
            open(&book).killed.insert(killed);
            proxies[at].pause();
            task.abort();
            let _ = task.await;
            ended += victim.stats().sessions_lost;
            drop(victim);
            kills += 1;
            // A short run may have no other fault.
            proxies[consumers[0].3].lose_replies();
            proxies[consumers[1].3].cut_all();
            let (proxy, client) = client(&fixture, random.next_u64()).await;
            let task = start(&book, &client, number, random.next_u64());
            consumers.push((number, client, task, proxies.len()));
            proxies.push(proxy);
            number += 1;
        }
    }
    for producer in producers {
        producer.await.expect("no panic");
    }
    // The entry of an item is deleted before its consumer receives the reply, which may be lost. If
    // an item was really lost, this ends by the patience.
    while !may_be_open(&open(&book)) && began.elapsed() < patience {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A second copy of an item would be delivered now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let elapsed = began.elapsed();
    for (_, client, task, _) in consumers {
        task.abort();
        let _ = task.await;
        ended += client.stats().sessions_lost;
    }
    let mut network = zk_tests::proxy::Statistics::default();
    for proxy in &proxies {
        let statistics = proxy.statistics();
        network.cut += statistics.cut;
        network.lost += statistics.lost;
        proxy.resume();
        proxy.admit_all();
    }
    drop(proxies);
    nothing_is_left(&fixture).await;

    let book = open(&book);
    let inversions = inversions(&book);
    eprintln!(
        "{total} items in {:.1} s: {} deliveries, {} given back, {} leases lost, {} acks \
         undecided, {kills} consumers killed, {ended} sessions of consumers ended, {inversions} \
         items out of order; the numbers started again {} times; {} connections cut, {} of \
         them with a reply lost",
        elapsed.as_secs_f64(),
        book.deliveries,
        book.given_back,
        book.lost,
        book.unknown.len(),
        waves.restarts.load(Ordering::Relaxed),
        network.cut,
        network.lost,
    );
    assert!(book.problems.is_empty(), "{:#?}", book.problems);
    assert!(may_be_open(&book), "lost: {:?}", open_items(&book));
    assert_eq!(book.first.len(), total, "items were lost");
    assert_eq!(kills, KILLS);
    assert!(network.cut > 0, "there was no fault: {network:?}");
    // Items whose first taker was killed before it could report them, or whose session ended.
    assert!(
        inversions <= TAKEN * (kills + ended as usize),
        "{inversions} items were delivered out of order"
    );
}

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

async fn client(fixture: &Fixture, seed: u64) -> (Proxy, Client) {
    let mut proxy = fixture.proxy().await;
    let builder = fixture.builder_at(proxy.addr()).session_timeout(SESSION_TIMEOUT);
    let client = builder
        .connect_timeout(Duration::from_millis(500))
        .connect()
        .await
        .expect("the observer was connected");
    proxy.chaos(seed, FAULT_INTERVAL);
    (proxy, client)
}

/// What the producers share: they wait for each other, and until the directory of the items is gone.
struct Waves {
    producers: Barrier,
    observer: Client,
    entries: String,
    /// How often the directory was gone.
    restarts: AtomicUsize,
}

impl Waves {
    fn new(fixture: &Fixture) -> Arc<Self> {
        Arc::new(Self {
            producers: Barrier::new(PRODUCERS),
            observer: fixture.observer.clone(),
            entries: fixture.full(&format!("{QUEUE}/entries")),
            restarts: AtomicUsize::new(0),
        })
    }

    /// Waits for the other producers, and until the directory is gone.
    async fn between(&self) {
        if self.producers.wait().await.is_leader() {
            let began = Instant::now();
            while self.observer.exists(&self.entries).await.expect("it is connected").is_some() {
                assert!(began.elapsed() < PATIENCE, "the items stay, or their directory does");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }
        self.producers.wait().await;
    }
}

async fn produce(queue: WorkQueue, producer: usize, items: usize, waves: Arc<Waves>) {
    let mut number = 0;
    let name = |number| format!("{producer}-{number:05}");
    while number < items {
        if number > 0 && number % WAVE == 0 {
            waves.between().await;
        }
        if number % BATCH_EVERY == 0 && number + BATCH <= items {
            let batch: Vec<_> = (number..number + BATCH).map(name).collect();
            queue.put_batch(batch).await.expect("it can be put");
            number += BATCH;
        } else {
            queue.put(name(number)).await.expect("it can be put");
            number += 1;
        }
    }
}

fn start(book: &Shared, client: &Client, number: u64, seed: u64) -> JoinHandle<()> {
    let book = Arc::clone(book);
    let queue = WorkQueue::new(client, QUEUE).expect("the path is valid");
    tokio::spawn(async move {
        let mut random = SplitMix64::new(seed);
        let is_batch = number % 2 == 1;
        loop {
            let items = if is_batch {
                queue.take_batch(TAKEN).await.expect("they can be taken")
            } else {
                vec![queue.take().await.expect("it can be taken")]
            };
            for item in &items {
                took(&book, number, &name(item), item);
            }
            for item in items {
                if random.below(10) == 0 {
                    tokio::time::sleep(random.around(Duration::from_millis(20))).await;
                }
                let is_given_back = random.below(GIVEN_BACK) == 0;
                let name = name(&item);
                leave(&book, number, &name, &item, is_given_back);
                if is_given_back {
                    item.give_back().await.expect("the lease can be deleted");
                    continue;
                }
                let acked = item.ack().await;
                acknowledged(&book, number, name, acked);
            }
        }
    })
}

fn name(item: &Leased) -> String {
    String::from_utf8(item.data().to_vec()).expect("the items are text")
}

fn took(book: &Shared, number: u64, name: &str, item: &Leased) {
    let mut book = open(book);
    book.deliveries += 1;
    // A task that was delayed may get an item whose lease has ended, and which another has acknowledged.
    let is_lost = matches!(item.state(), LockState::Lost(_));
    if book.done.contains(name) && !is_lost {
        book.problems.push(format!("{name} was delivered after it was acknowledged"));
    }
    let token = item.fencing_token().get();
    let sequence = item.path().rsplit('-').next().and_then(|number| number.parse().ok());
    let sequence = sequence.expect("the path has a number");
    if let Some((_, other)) = book.first.get(name)
        && *other != sequence
    {
        let problem = format!("{name} is in the queue as {other:?} and as {sequence:?}");
        book.problems.push(problem);
    }
    book.first.entry(name.to_owned()).or_insert((token, sequence));
    book.holders.insert(name.to_owned(), number);
}

/// Records that a consumer ends its work on an item. Until now, no other may have had it.
fn leave(book: &Shared, number: u64, name: &str, item: &Leased, is_given_back: bool) {
    let mut book = open(book);
    let is_lost = matches!(item.state(), LockState::Lost(_));
    if book.holders.get(name) != Some(&number) && !is_lost {
        book.problems.push(format!("{name} was taken by two at once"));
    }
    if is_given_back {
        book.given_back += 1;
        if book.holders.get(name) == Some(&number) {
            book.holders.remove(name);
        }
    }
}

fn acknowledged(book: &Shared, number: u64, name: String, acked: Result<(), WorkQueueError>) {
    let mut book = open(book);
    let is_holder = book.holders.get(&name) == Some(&number);
    match acked {
        Ok(()) => {
            if !is_holder {
                book.problems.push(format!("{name} was acknowledged beside another taker"));
            }
            if book.unknown.contains(&name) || !book.done.insert(name.clone()) {
                book.problems.push(format!("{name} was acknowledged twice"));
            }
        }
        Err(WorkQueueError::LeaseLost(_)) => book.lost += 1,
        Err(WorkQueueError::Unknown { .. }) => {
            if !book.done.contains(&name) {
                book.unknown.insert(name);
            }
        }
        Err(error) => book.problems.push(format!("{name}: {error}")),
    }
}

/// The items that were delivered, and that nobody is known to have acknowledged.
fn open_items(book: &Book) -> Vec<&String> {
    let is_open = |name: &&String| !book.done.contains(*name) && !book.unknown.contains(*name);
    book.first.keys().filter(is_open).collect()
}

/// Whether no item is open except those of consumers that were killed: they may have acknowledged
/// items without a record of it.
fn may_be_open(book: &Book) -> bool {
    let open = open_items(book);
    let is_killed =
        |name: &&String| book.holders.get(*name).is_some_and(|holder| book.killed.contains(holder));
    open.iter().all(is_killed) && open.len() <= KILLS * TAKEN
}

/// The number of items that are known to be gone.
fn accounted(book: &Shared) -> usize {
    let book = open(book);
    book.done.len() + book.unknown.len()
}

async fn children(fixture: &Fixture, directory: &str) -> Vec<String> {
    let path = fixture.full(&format!("{QUEUE}/{directory}"));
    let names = fixture.observer.get_children(&path).await.unwrap_or_default();
    names.iter().map(ToString::to_string).collect()
}

/// Counts the items whose first recorded delivery is not in the order of their producer: those that
/// must be left out so that the others are. An item that comes far too early counts once, and not as
/// often as it has passed others. Sequence numbers would not tell: they start again whenever the queue
/// was empty for a moment.
fn inversions(book: &Book) -> usize {
    let mut first: Vec<_> = book.first.iter().map(|(name, (token, _))| (*token, name)).collect();
    first.sort_unstable();
    // For each length, the lowest number at which an ordered series of that length can end.
    let mut ends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, name) in &first {
        let (producer, number) = name.split_once('-').expect("the producer, and a number");
        let ends = ends.entry(producer).or_default();
        let at = ends.partition_point(|end| *end < number);
        match ends.get_mut(at) {
            Some(end) => *end = number,
            None => ends.push(number),
        }
    }
    first.len() - ends.values().map(Vec::len).sum::<usize>()
}

/// Waits until the sessions of killed consumers have ended, and nothing of the queue is left.
async fn nothing_is_left(fixture: &Fixture) {
    let began = Instant::now();
    loop {
        let mut left = Vec::new();
        for directory in ["entries", "taken", "puts", "takers"] {
            left.extend(children(fixture, directory).await);
        }
        if left.is_empty() {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "left: {left:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
