//! The read/write lock: sharing, downgrades, and names.

use zk_recipes::{
    Acl, Client, CreateMode, ErrorCode, FairLock, LockError, LockState, LostReason, Multi, Naming,
    Outcome, Permissions, Released, Role, RwLock, RwNaming, Version,
};
use zk_session::EventType;
use zk_tests::case::{Case, LOCK, Reader, Writer};
use zk_tests::lock::{Waiter, acquire, create_directory, settle, until_znodes, znodes};
use zk_tests::scene::poll_times;
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{PATIENCE, assert_silent, catch_up, now, soon};

use crate::expiry::{NEVER, Victim};

/// Returns the sequence number that the server appended to the path.
fn sequence(path: &str) -> &str {
    path.get(path.len().saturating_sub(10)..).unwrap()
}

#[tokio::test]
async fn readers_share_and_writers_do_not() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let readers = [acquire(&Reader::of(&client)).await, acquire(&Reader::of(&other)).await];
    let third = Reader::of(&other).try_acquire().await.unwrap().expect("readers share");
    assert!(Writer::of(&other).try_acquire().await.unwrap().is_none());
    for reader in readers.iter().chain([&third]) {
        assert_eq!((reader.state(), reader.validate().await), (LockState::Held, Ok(())));
    }
    let mut writer = Waiter::queue(&Writer::of(&client)).await;
    for reader in readers {
        settle(&client).await;
        assert!(writer.is_waiting());
        reader.release().await.unwrap();
    }
    settle(&client).await;
    assert!(writer.is_waiting());
    third.release().await.unwrap();
    let writer = writer.guard().await;
    catch_up(&other).await;
    assert!(Reader::of(&other).try_acquire().await.unwrap().is_none());
    assert!(Writer::of(&other).try_acquire().await.unwrap().is_none());
    assert_eq!(writer.release().await, Ok(Released::Released));
    until_znodes::<Writer>(&client, 0).await;
}

#[tokio::test]
async fn nobody_passes_anybody_and_readers_who_stand_together_enter_together() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let first = acquire(&Reader::of(&client)).await;
    let mut writer = Waiter::queue(&Writer::of(&other)).await;
    let mut readers = Vec::new();
    for client in [&client, &other, &client] {
        readers.push(Waiter::queue(&Reader::of(client)).await);
    }
    let mut last = Waiter::queue(&Writer::of(&client)).await;
    // A reader holds the lock, but a writer waits.
    assert!(Reader::of(&other).try_acquire().await.unwrap().is_none());
    settle(&client).await;
    settle(&other).await;
    assert!(writer.is_waiting() && readers.iter_mut().all(Waiter::is_waiting));
    first.release().await.unwrap();
    let writer = writer.guard().await;
    let token = writer.fencing_token();
    settle(&client).await;
    settle(&other).await;
    assert!(readers.iter_mut().all(Waiter::is_waiting));
    writer.release().await.unwrap();
    let mut reading = Vec::new();
    for reader in readers {
        reading.push(reader.guard().await);
    }
    settle(&client).await;
    assert!(last.is_waiting());
    for reader in reading {
        assert_eq!(reader.validate().await, Ok(()));
        reader.release().await.unwrap();
    }
    let last = last.guard().await;
    assert!(last.fencing_token() > token);
    last.release().await.unwrap();
    until_znodes::<Writer>(&client, 0).await;
}

#[tokio::test]
async fn a_writer_that_becomes_a_reader_keeps_its_place() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let writing = acquire(&Writer::of(&clients[0])).await;
    let reader = Waiter::queue(&Reader::of(&clients[1])).await;
    let mut writer = Waiter::queue(&Writer::of(&clients[2])).await;
    let mut late = Waiter::queue(&Reader::of(&clients[1])).await;
    let (path, session, lost) = (writing.path().to_owned(), writing.session(), writing.lost());
    let reading = writing.downgrade().await.unwrap();
    assert_eq!((reading.state(), reading.session()), (LockState::Held, session));
    assert!(reading.path().contains("-__READ__"), "{}", reading.path());
    assert_eq!(sequence(reading.path()), sequence(&path));
    let (paths, _) = znodes::<Reader>(&clients[0]).await;
    let own: Vec<_> = paths
        .iter()
        .map(String::as_str)
        .filter(|other| sequence(other) == sequence(&path))
        .collect();
    assert_eq!((own.as_slice(), paths.len()), ([reading.path()].as_slice(), 4));

    let joined = reader.guard().await;
    for client in &clients {
        settle(client).await;
    }
    assert!(writer.is_waiting() && late.is_waiting());
    assert_eq!(reading.validate().await, Ok(()));
    let paid = Multi::new().create("/paid", "", CreateMode::Persistent);
    assert_eq!(reading.transaction(paid).await.map(|outcomes| outcomes.len()), Ok(1));
    assert_eq!(now(lost), None, "it is held");
    joined.release().await.unwrap();
    settle(&clients[2]).await;
    assert!(writer.is_waiting());
    assert_eq!(reading.release().await, Ok(Released::Released));
    let writer = writer.guard().await;
    settle(&clients[1]).await;
    assert!(late.is_waiting());
    writer.release().await.unwrap();
    late.guard().await.release().await.unwrap();
    until_znodes::<Writer>(&clients[0], 0).await;
}

/// The client watches the writer's znode, and the event of its deletion arrives before the reply to
/// the downgrade.
#[tokio::test]
async fn the_end_of_the_writers_znode_is_not_the_loss_of_the_reader() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let before = acquire(&Reader::of(&client)).await;
    let waiter = Waiter::queue(&Writer::of(&client)).await;
    before.release().await.unwrap();
    let writing = waiter.guard().await;
    let (_, mut watcher) = client.get_data_and_watch(writing.path()).await.unwrap();
    assert_silent(&client, &mut watcher).await;
    let lost = writing.lost();
    let reading = writing.downgrade().await.unwrap();
    let event = now(watcher.changed()).expect("the event precedes the reply");
    assert_eq!(event.map(|event| event.kind), Ok(EventType::NODE_DELETED));
    settle(&client).await;
    assert_eq!((reading.state(), now(lost)), (LockState::Held, None));
    assert_eq!(reading.validate().await, Ok(()));
    // The client watches the reader's znode, as it watched the writer's.
    client.delete(reading.path(), None).await.unwrap();
    assert_eq!(soon("the loss", reading.lost()).await, LostReason::ZnodeDeleted);
    assert_eq!(reading.release().await, Ok(Released::AlreadyGone));
    until_znodes::<Writer>(&client, 0).await;
}

#[tokio::test]
async fn a_downgrade_survives_a_lost_reply() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    for _ in 0..3 {
        let writing = acquire(&Writer::of(&client)).await;
        let mut writer = Waiter::queue(&Writer::of(&other)).await;
        proxy.lose_replies();
        let reading = writing.downgrade().await.unwrap();
        assert_eq!(reading.validate().await, Ok(()));
        settle(&other).await;
        assert!(writer.is_waiting());
        until_znodes::<Writer>(&other, 2).await;
        assert_eq!(reading.release().await, Ok(Released::Released));
        writer.guard().await.release().await.unwrap();
        until_znodes::<Writer>(&other, 0).await;
    }
}

#[tokio::test]
async fn a_downgrade_may_be_dropped_at_every_await_point() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for polls in 0..300 {
        let writing = acquire(&Writer::of(&client)).await;
        let next = Waiter::queue(&Writer::of(&other)).await;
        let downgraded = poll_times(writing.downgrade(), polls, || {}).await;
        let is_complete = downgraded.is_some();
        if let Some(reading) = downgraded {
            assert_eq!(reading.unwrap().release().await, Ok(Released::Released));
        }
        next.guard().await.release().await.unwrap();
        until_znodes::<Writer>(&other, 0).await;
        if is_complete {
            return;
        }
    }
    panic!("it does not come to its end");
}

#[tokio::test]
async fn a_writer_whose_znode_is_gone_does_not_become_a_reader() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let writing = acquire(&Writer::of(&client)).await;
    // Both requests are submitted at once, before the event of the deletion can arrive.
    let deleted = client.delete(writing.path(), None);
    let downgrade = writing.downgrade();
    deleted.await.unwrap();
    let failed = downgrade.await.unwrap_err();
    assert_eq!(failed.error, LockError::Lost(LostReason::ZnodeDeleted));
    assert!(failed.guard.is_none());
    until_znodes::<Writer>(&client, 0).await;
}

#[tokio::test]
async fn a_writer_whose_session_has_expired_does_not_become_a_reader() {
    let victim = Victim::start(NEVER, true).await;
    let client = victim.fixture.client().await;
    let writing = acquire(&Writer::of(&victim.client)).await;
    let next = Waiter::queue(&Writer::of(&client)).await;
    victim.expire().await;
    let next = next.guard().await;
    let downgrade = writing.downgrade();
    victim.proxy.resume();
    let failed = soon("the refusal", downgrade).await.unwrap_err();
    assert!(matches!(failed.error, LockError::Lost(_)), "{failed}");
    drop(failed);
    victim.next_session().await;
    until_znodes::<Writer>(&client, 1).await;
    assert_eq!(next.release().await, Ok(Released::Released));
}

#[tokio::test]
async fn a_refused_downgrade_gives_the_writer_back() {
    let fixture = Fixture::start().await;
    let owner = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let other = fixture.client().await;
    create_directory(&owner).await;
    let writing = acquire(&Writer::of(&other)).await;
    let token = writing.fencing_token();
    let mut list = Acl::creator_all();
    list.push(Acl::new(Permissions::READ | Permissions::DELETE, "world", "anyone"));
    owner.set_acl(LOCK, list, None).await.unwrap();
    fixture.settle().await;
    let failed = writing.downgrade().await.unwrap_err();
    let is_refused = matches!(failed.error, LockError::Refused { code: ErrorCode::NO_AUTH, .. });
    assert!(is_refused, "{failed}");
    let writing = failed.guard.expect("nothing has changed");
    assert_eq!((writing.fencing_token(), writing.validate().await), (token, Ok(())));
    assert_eq!(writing.release().await, Ok(Released::Released));
    until_znodes::<Writer>(&owner, 0).await;
}

#[tokio::test]
async fn a_read_and_a_write_transaction_are_committed_while_the_lock_is_held() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/paid", "", CreateMode::Persistent).await.unwrap();
    let writing = acquire(&Writer::of(&client)).await;
    let pay = |data: &'static str| Multi::new().set_data("/paid", data, None);
    writing.transaction(pay("17")).await.unwrap();
    writing.release().await.unwrap();
    let reading = acquire(&Reader::of(&client)).await;
    reading.transaction(pay("18")).await.unwrap();
    let deleted = client.delete(reading.path(), None);
    let late = reading.transaction(pay("19"));
    deleted.await.unwrap();
    assert_eq!(late.await.unwrap_err().outcome(), Outcome::NotApplied);
    let (data, stat) = client.get_data("/paid").await.unwrap();
    assert_eq!((data, stat.version), ("18".into(), Version(2)));
}

#[tokio::test]
async fn the_contenders_can_be_seen_in_their_order() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let named = |client: &Client, name: &'static str| {
        RwLock::builder(client, LOCK).unwrap().identity(name).build().unwrap()
    };
    let lock = named(&client, "");
    assert_eq!(lock.contenders().await, Ok(vec![]));
    let first = acquire(&named(&client, "first").read_side()).await;
    let second = Waiter::queue(&named(&other, "second").write_side()).await;
    let third = Waiter::queue(&named(&client, "third").read_side()).await;
    client.create(&format!("{LOCK}/config"), "", CreateMode::Persistent).await.unwrap();
    let seen = lock.contenders().await.unwrap();
    let sessions = [&client, &other, &client].map(|client| client.session_id().unwrap());
    let brief: Vec<_> = seen
        .iter()
        .map(|one| (one.position, one.role, one.identity.as_ref(), one.session))
        .collect();
    assert_eq!(
        brief,
        [
            (0, Role::Shared, &b"first"[..], sessions[0]),
            (1, Role::Exclusive, b"second", sessions[1]),
            (2, Role::Shared, b"third", sessions[2]),
        ]
    );
    assert_eq!(seen[0].path, first.path());
    assert!(seen.is_sorted_by_key(|one| one.since));
    // Another kind of lock does not recognize these contenders.
    let error = FairLock::of(&client).contenders().await.unwrap_err();
    assert!(matches!(error, LockError::MixedKinds { .. }), "{error}");
    drop((second, third));
    first.release().await.unwrap();
}

/// Each of the two locks sees a holder with names of the other kind, and refuses to contend.
#[tokio::test]
async fn locks_of_different_kinds_refuse_to_share_a_directory() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let fair = acquire(&FairLock::of(&client)).await;
    catch_up(&other).await;
    assert_mixed(&Reader::of(&other), fair.path()).await;
    assert_mixed(&Writer::of(&other), fair.path()).await;
    assert_eq!(fair.validate().await, Ok(()));
    until_znodes::<Writer>(&client, 1).await;
    fair.release().await.unwrap();

    let reading = acquire(&Reader::of(&client)).await;
    catch_up(&other).await;
    assert_mixed(&FairLock::of(&other), reading.path()).await;
    until_znodes::<Writer>(&client, 1).await;
    reading.release().await.unwrap();

    let writing = acquire(&Writer::of(&client)).await;
    catch_up(&other).await;
    assert_mixed(&FairLock::of(&other), writing.path()).await;
    let kazoo = RwLock::builder(&other, LOCK).unwrap().naming(RwNaming::kazoo()).build().unwrap();
    assert_mixed(&kazoo.read_side(), writing.path()).await;
    assert_mixed(&kazoo.write_side(), writing.path()).await;
    until_znodes::<Writer>(&client, 1).await;
    assert_eq!(writing.validate().await, Ok(()));
    writing.release().await.unwrap();
    until_znodes::<Writer>(&client, 0).await;
}

async fn assert_mixed<C: Case>(lock: &C, holder: &str) {
    let mixed = LockError::MixedKinds { path: holder.to_owned() };
    assert_eq!(lock.acquire().timeout(PATIENCE).await.unwrap_err(), mixed);
    assert_eq!(lock.try_acquire().await.unwrap_err(), mixed);
}

/// A waiter that lists the queue while it contains a contender of another kind would also be
/// refused. In this test, no waiter lists.
#[tokio::test]
async fn strangers_who_are_refused_leave_the_queue_as_it_was() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let holder = acquire(&FairLock::of(&client)).await;
    let waiter = Waiter::queue(&FairLock::of(&client)).await;
    catch_up(&other).await;
    for _ in 0..3 {
        let error = Writer::of(&other).acquire().timeout(PATIENCE).await.unwrap_err();
        assert!(matches!(error, LockError::MixedKinds { .. }), "{error}");
    }
    until_znodes::<Writer>(&client, 2).await;
    holder.release().await.unwrap();
    waiter.guard().await.release().await.unwrap();
}

#[tokio::test]
async fn what_is_no_lock_is_ignored_by_readers_and_writers() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_directory(&client).await;
    for name in ["config", "__READ__", "a-__READ__12", "a-__WRIT__000000000x"] {
        client.create(&format!("{LOCK}/{name}"), "", CreateMode::Persistent).await.unwrap();
    }
    let reading = Reader::of(&client).try_acquire().await.unwrap().expect("the lock is free");
    let writer = Waiter::queue(&Writer::of(&client)).await;
    reading.release().await.unwrap();
    let writing = writer.guard().await;
    writing.downgrade().await.unwrap().release().await.unwrap();
    assert_eq!(RwLock::new(&client, LOCK).unwrap().contenders().await, Ok(vec![]));
}

#[tokio::test]
async fn contenders_with_names_of_ones_own_exclude_each_other_across_clients() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let fair = |client: &Client| {
        let naming = Naming::custom("x-{id}-{sequence}").unwrap();
        FairLock::builder(client, LOCK).unwrap().naming(naming).watch_check(None).build().unwrap()
    };
    let holder = acquire(&fair(&client)).await;
    let name = holder.path().strip_prefix(&format!("{LOCK}/x-")).expect("the form begins with x-");
    assert_eq!(name.len(), "0123456789abcdef0123456789abcdef-0000000000".len(), "{name}");
    catch_up(&other).await;
    assert!(fair(&other).try_acquire().await.unwrap().is_none());
    let mut next = Waiter::queue(&fair(&other)).await;
    settle(&other).await;
    assert!(next.is_waiting());
    assert_eq!(fair(&other).contenders().await.unwrap().len(), 2);
    holder.release().await.unwrap();
    next.guard().await.release().await.unwrap();
    until_znodes::<Writer>(&client, 0).await;
}

/// Lets clients of the lock with this naming acquire it in turn as a reader, as a writer that
/// becomes a reader, and as a writer.
async fn take_turns(naming: impl Fn() -> RwNaming, marks: [&str; 2]) {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let lock = |client: &Client| {
        let lock = RwLock::builder(client, LOCK).unwrap().naming(naming()).watch_check(None);
        lock.build().unwrap()
    };
    let (own, theirs) = (lock(&client), lock(&other));
    let reading = acquire(&own.read_side()).await;
    assert!(reading.path().contains(marks[0]), "{}", reading.path());
    catch_up(&other).await;
    assert!(theirs.try_write().await.unwrap().is_none());
    let joined = theirs.try_read().await.unwrap().expect("readers share");
    let writer = Waiter::queue(&theirs.write_side()).await;
    let mut reader = Waiter::queue(&own.read_side()).await;
    let mut last = Waiter::queue(&own.write_side()).await;
    joined.release().await.unwrap();
    reading.release().await.unwrap();
    let writing = writer.guard().await;
    assert!(writing.path().contains(marks[1]), "{}", writing.path());
    settle(&client).await;
    assert!(reader.is_waiting() && last.is_waiting());
    let sequence_before = sequence(writing.path()).to_owned();
    let reading = writing.downgrade().await.unwrap();
    assert!(reading.path().contains(marks[0]), "{}", reading.path());
    assert_eq!(sequence(reading.path()), sequence_before);
    let joined = reader.guard().await;
    settle(&client).await;
    assert!(last.is_waiting());
    let roles: Vec<_> =
        theirs.contenders().await.unwrap().into_iter().map(|one| one.role).collect();
    assert_eq!(roles, [Role::Shared, Role::Shared, Role::Exclusive]);
    reading.release().await.unwrap();
    joined.release().await.unwrap();
    last.guard().await.release().await.unwrap();
    until_znodes::<Writer>(&client, 0).await;
}

#[tokio::test]
async fn readers_and_writers_with_names_of_ones_own_respect_each_other() {
    let naming = || RwNaming::custom("{id}-r-{sequence}", "{id}-w-{sequence}").unwrap();
    take_turns(naming, ["-r-", "-w-"]).await;
    let naming = || RwNaming::custom("r-{id}-{sequence}", "w-{id}-{sequence}").unwrap();
    take_turns(naming, ["/r-", "/w-"]).await;
}

#[tokio::test]
async fn readers_and_writers_with_kazoos_names_respect_each_other() {
    take_turns(RwNaming::kazoo, ["__rlock__", "__lock__"]).await;
}

/// While a writer of Curator becomes a reader, it has two znodes with the same sequence number.
/// Whichever of them is deleted first, no contender behind them may get the lock too early.
struct Pair {
    _fixture: Fixture,
    curator: Client,
    ours: [Client; 2],
}

const PASSED: usize = 3;

/// One of the two znodes of a [`Pair`].
#[derive(Clone, Copy)]
enum Half {
    Read,
    Write,
}

impl Half {
    fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }

    /// Returns the path of the znode. The ids before the marks differ too, so that the tests cover
    /// both orders of the names.
    fn path(self, is_swapped: bool) -> String {
        let (id, mark) = match self {
            Self::Read => (if is_swapped { "b" } else { "a" }, "READ"),
            Self::Write => (if is_swapped { "a" } else { "b" }, "WRIT"),
        };
        format!("{LOCK}/_c_{id}-__{mark}__0000000001")
    }
}

impl Pair {
    /// Creates the queue of a pair. Contenders of this project get higher numbers than the pair,
    /// because other creates have used up the lower numbers.
    async fn start(is_swapped: bool) -> Self {
        let fixture = Fixture::start().await;
        let (curator, client) = (fixture.client().await, fixture.client().await);
        let ours = [client, fixture.client().await];
        curator.create("/locks", "", CreateMode::Persistent).await.unwrap();
        curator.create(LOCK, "", CreateMode::Persistent).await.unwrap();
        for _ in 0..PASSED {
            let passed = format!("{LOCK}/passed-");
            curator.create(&passed, "", CreateMode::PersistentSequential).await.unwrap();
        }
        let both = Multi::new()
            .create(&Half::Write.path(is_swapped), "", CreateMode::Ephemeral)
            .create(&Half::Read.path(is_swapped), "", CreateMode::Ephemeral);
        curator.commit(both).await.unwrap();
        for client in &ours {
            catch_up(client).await;
        }
        Self { _fixture: fixture, curator, ours }
    }

    async fn settle(&self) {
        for client in &self.ours {
            settle(client).await;
        }
    }
}

#[tokio::test]
async fn a_reader_behind_a_pair_of_one_number_waits_for_the_writer_alone() {
    for is_swapped in [false, true] {
        for first in [Half::Read, Half::Write] {
            let pair = Pair::start(is_swapped).await;
            let reader = Reader::of(&pair.ours[0]);
            assert!(reader.try_acquire().await.unwrap().is_none());
            let mut waiter = Waiter::queue(&reader).await;
            pair.settle().await;
            assert!(waiter.is_waiting());
            pair.curator.delete(&first.path(is_swapped), None).await.unwrap();
            if matches!(first, Half::Read) {
                pair.settle().await;
                assert!(waiter.is_waiting(), "the writer's znode still exists");
                pair.curator.delete(&Half::Write.path(is_swapped), None).await.unwrap();
            }
            let guard = waiter.guard().await;
            assert_eq!(guard.validate().await, Ok(()));
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_writer_behind_a_pair_of_one_number_waits_for_both() {
    for is_swapped in [false, true] {
        for first in [Half::Read, Half::Write] {
            let pair = Pair::start(is_swapped).await;
            let writer = Writer::of(&pair.ours[0]);
            assert!(writer.try_acquire().await.unwrap().is_none());
            let mut waiter = Waiter::queue(&writer).await;
            pair.settle().await;
            assert!(waiter.is_waiting());
            pair.curator.delete(&first.path(is_swapped), None).await.unwrap();
            pair.settle().await;
            assert!(waiter.is_waiting(), "the other znode still exists");
            assert!(writer.try_acquire().await.unwrap().is_none());
            pair.curator.delete(&first.other().path(is_swapped), None).await.unwrap();
            let guard = waiter.guard().await;
            assert_eq!(guard.validate().await, Ok(()));
            guard.release().await.unwrap();
        }
    }
}

/// A reader and a writer wait together, and the second znode of the pair is deleted with its
/// session.
#[tokio::test]
async fn a_queue_behind_a_pair_of_one_number_keeps_its_order() {
    for first in [Half::Read, Half::Write] {
        let pair = Pair::start(false).await;
        let reader = Waiter::queue(&Reader::of(&pair.ours[0])).await;
        let mut writer = Waiter::queue(&Writer::of(&pair.ours[1])).await;
        let mut late = Waiter::queue(&Reader::of(&pair.ours[0])).await;
        let queue = RwLock::new(&pair.ours[0], LOCK).unwrap().contenders().await.unwrap();
        let numbers: Vec<_> = queue.iter().map(|one| sequence(&one.path)).collect();
        assert_eq!(numbers[..2], ["0000000001"; 2]);
        assert!(numbers.is_sorted() && numbers[1] < numbers[2], "{numbers:?}");
        pair.curator.delete(&first.path(false), None).await.unwrap();
        if matches!(first, Half::Read) {
            pair.settle().await;
            assert!(writer.is_waiting() && late.is_waiting());
            pair.curator.close().await;
        }
        let reading = reader.guard().await;
        pair.curator.close().await;
        pair.settle().await;
        assert!(writer.is_waiting() && late.is_waiting());
        reading.release().await.unwrap();
        let writing = writer.guard().await;
        pair.settle().await;
        assert!(late.is_waiting());
        writing.release().await.unwrap();
        late.guard().await.release().await.unwrap();
        // Only the znodes that have used up the lower numbers are left.
        until_znodes::<Writer>(&pair.ours[0], PASSED).await;
    }
}
