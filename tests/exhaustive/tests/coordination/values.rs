//! A counter to which three clients add around the beginning of the outage and during it, and a
//! shared value that is written meanwhile. Another client follows both.

use zk_recipes::{Client, Counter, SharedValue, ValueError, Versioned};
use zk_tests::world::sleep_ms;

use crate::outage::{Outage, Plan, Worst, for_each_outage, now};

const COUNTER: &str = "/values/count";
const VALUE: &str = "/values/text";
/// Clients that add.
const ADDERS: usize = 3;
/// Requests of two additions before the outage: two reads, two writes of which one is refused, the
/// removal of a marker, and a read and a write again.
const SENT_MAX: u64 = 7;
/// The client that follows the counter and the value.
const FOLLOWER: usize = 3;

/// Requests of four clients that make five additions. Each addition is a read, a write that may be
/// repeated, and the removal of its marker, and some conflict with others. A stream reads the changes.
const ADDITIONS_REQUESTS_MAX: u64 = 40;
/// Requests of four clients: a comparison, two writes, two reads, and a stream that restores its watch.
const WRITES_REQUESTS_MAX: u64 = 14;

fn counter(client: &Client) -> Counter {
    Counter::new(client, COUNTER).expect("the path is valid")
}

fn value(client: &Client) -> SharedValue {
    SharedValue::new(client, VALUE).expect("the path is valid")
}

/// Waits until the clients have sent this many requests, so that the outage begins before a server
/// receives the last of them. The wait takes no time, so it ends if they need a pause before that.
async fn until_sent(outage: &Outage, before: u64, count: u64) {
    for _ in 0..500 {
        if outage.world.traffic().requests >= before + count {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn survive_adding(plan: Plan, sent: u64) -> Worst {
    let mut outage = Outage::prepare(plan, 4).await;
    counter(&outage.clients[0]).add(0).await.expect("it can be created");
    outage.settle().await;
    let add = |outage: &Outage, client: usize| {
        let counter = counter(&outage.clients[client]);
        outage.call("an addition", client, async move { counter.add(1).await })
    };
    let mut changes = counter(&outage.clients[FOLLOWER]).changes();
    assert_eq!(changes.next().await, Ok(Some(0)));
    let before = outage.world.traffic().requests;
    let mut adding: Vec<_> = (0..2).map(|client| add(&outage, client)).collect();
    until_sent(&outage, before, sent).await;
    outage.begin();
    outage.middle().await;
    adding.extend((0..ADDERS).map(|client| add(&outage, client)));
    outage.end().await;
    let (mut sums, mut undecided) = (Vec::new(), 0);
    for adding in adding {
        // Additions may conflict with each other, and their pauses grow from 5 ms.
        let client = adding.client();
        let (added, _) = outage.done(adding, now()).await;
        match added {
            Ok(sum) => sums.push(sum),
            Err(ValueError::Undecided { .. }) if outage.has_expired(client) => undecided += 1,
            Err(error) => panic!("{plan:?}: {error}\n{}", outage.world.trace()),
        }
    }
    let count = sums.len();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), count, "{plan:?}: two additions have the same sum");
    let sum = counter(&outage.clients[0]).get().await.expect("it can be read");
    let decided = i64::try_from(count).expect("small");
    let possible = decided..=decided + undecided;
    assert!(possible.contains(&sum), "{plan:?}: {sum} of {possible:?}\n{}", outage.world.trace());
    assert!(sums.iter().all(|one| (1..=sum).contains(one)), "{plan:?}: {sums:?} of {sum}");
    let following = outage.call("the last sum", FOLLOWER, async move {
        while changes.next().await.expect("it can be read") != Some(sum) {}
    });
    outage.done(following, now()).await;
    let worst = outage.finish().await;
    assert!(undecided <= 2, "only additions that were in flight may be undecided");
    worst
}

fn text(value: Option<Versioned>) -> Option<String> {
    value.map(|value| String::from_utf8(value.bytes().to_vec()).expect("the tests write text"))
}

async fn survive_writing(plan: Plan) -> Worst {
    let mut outage = Outage::prepare(plan, 4).await;
    let written = value(&outage.clients[0]);
    written.set("before").await.expect("it can be created");
    let mut changes = value(&outage.clients[FOLLOWER]).changes();
    assert_eq!(changes.next().await.map(text), Ok(Some("before".to_owned())));
    outage.settle().await;
    let old = written.get().await.expect("it can be read");
    let versions = |outage: &Outage| outage.world.server.stat(VALUE).map(|stat| stat.version.0);
    let before = versions(&outage).expect("it exists");
    // The servers become unavailable while this write is on its way.
    let set = outage.call("a write", 1, {
        let value = value(&outage.clients[1]);
        async move { value.set("meanwhile").await }
    });
    outage.begin();
    outage.middle().await;
    // A client whose servers are still available writes the value.
    outage.world.server.admin_set_data(VALUE, b"theirs");
    let compare = {
        let value = written.clone();
        outage.call("a comparison", 0, async move { value.compare_and_set(&old, "ours").await })
    };
    outage.end().await;
    let cause = now();
    let (compared, _) = outage.done(compare, cause).await;
    assert_eq!(compared, Err(ValueError::Conflict), "{plan:?}\n{}", outage.world.trace());
    let (set, _) = outage.done(set, cause).await;
    let possible = match set {
        Ok(()) => 2..=2,
        Err(ValueError::Undecided { .. }) if outage.has_expired(1) => 1..=2,
        Err(error) => panic!("{plan:?}: {error}\n{}", outage.world.trace()),
    };
    let writes = versions(&outage).expect("it exists") - before;
    assert!(possible.contains(&writes), "{plan:?}: {writes} writes\n{}", outage.world.trace());
    let stored = outage.world.server.data(VALUE).expect("it exists");
    let following = outage.call("the change", FOLLOWER, async move {
        while changes.next().await.map(|value| value.map(|value| value.bytes().clone()))
            != Ok(Some(stored.clone()))
        {}
        changes
    });
    let (mut changes, _) = outage.done(following, now()).await;
    let last = value(&outage.clients[1]).set("last").await;
    assert_eq!(last, Ok(()), "{plan:?}");
    let following =
        outage.call("the last value", FOLLOWER, async move { changes.next().await.map(text) });
    let (changed, _) = outage.done(following, now()).await;
    assert_eq!(changed, Ok(Some("last".to_owned())), "{plan:?}");
    // Nothing is written later.
    sleep_ms(5_000).await;
    let stored = value(&outage.clients[0]).get().await.expect("it can be read");
    assert_eq!(text(Some(stored)).as_deref(), Some("last"), "{plan:?}");
    outage.finish().await
}

#[test]
fn additions_count_once_in_an_outage_of_any_length() {
    for sent in 0..=SENT_MAX {
        for_each_outage("a counter", ADDITIONS_REQUESTS_MAX, |plan| survive_adding(plan, sent));
    }
}

#[test]
fn a_shared_value_is_followed_and_compared_across_an_outage_of_any_length() {
    for_each_outage("a shared value", WRITES_REQUESTS_MAX, survive_writing);
}
