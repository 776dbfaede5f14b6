//! Persistent watches: what servers of each age are asked for, and what streams are told.

use bytestring::ByteString;
use jute_codec::{
    AddWatchMode, AddWatchRequest, ErrorCode, EventType, NameList, Request, Response, WatcherType,
    WatchesRequest, Zxid, xid,
};

use super::peer::{OWNER, Pair, SESSION, data, sync, watch};
use crate::error::{OpError, Outcome, WatchEnded};
use crate::machine::{Event, Operation, Token, WatchNews, WatchNumber};
use crate::types::SessionId;

const PERSISTENT: AddWatchMode = AddWatchMode::PERSISTENT;
const RECURSIVE: AddWatchMode = AddWatchMode::PERSISTENT_RECURSIVE;
const CHANGED: EventType = EventType::NODE_DATA_CHANGED;
const CHILDREN: EventType = EventType::NODE_CHILDREN_CHANGED;

fn add(number: u64, path: &str, mode: AddWatchMode) -> Operation {
    let request = Request::AddWatch(AddWatchRequest { path: path.into(), mode });
    Operation::watched(request, WatchNumber::new(number).unwrap())
}

/// Connects to a server that is known to support persistent watches. Without that knowledge, the
/// first request for one is sent alone.
fn connected() -> Pair {
    let mut pair = Pair::connected();
    let token = pair.submit(vec![add(99, "/proof", PERSISTENT)]);
    pair.flush();
    let (xid, _) = pair.request().expect("the request is sent");
    pair.reply(xid, Err(ErrorCode::THROTTLED_OP));
    assert!(pair.answer(token).results[0].is_err());
    pair
}

/// Replies to the oldest request, which adds a watch.
fn confirm(pair: &mut Pair) -> AddWatchMode {
    let (xid, Request::AddWatch(add)) = pair.request().expect("a request was sent") else {
        panic!("the request adds no watch")
    };
    pair.reply(xid, Ok(Response::AddWatch(ErrorCode::OK)));
    add.mode
}

/// Sets a watch. Returns the mode that the server was asked for.
fn set(pair: &mut Pair, number: u64, path: &str, mode: AddWatchMode) -> AddWatchMode {
    let token = pair.submit(vec![add(number, path, mode)]);
    pair.flush();
    let sent = confirm(pair);
    assert!(pair.answer(token).results[0].is_ok());
    sent
}

/// Sends a read, and takes the request. Returns whether it asks for a watch.
fn read(pair: &mut Pair, operation: Operation) -> (Token, i32, bool) {
    let token = pair.submit(vec![operation]);
    pair.flush();
    let (xid, request) = pair.request().expect("the read is sent");
    let (Request::GetData(read) | Request::GetChildren(read) | Request::Exists(read)) = request
    else {
        panic!("{request:?}")
    };
    (token, xid, read.watch)
}

/// Takes all news, as the number of the stream and the news.
fn news(pair: &mut Pair) -> Vec<(u64, WatchNews)> {
    let mut all = Vec::new();
    while let Some(event) = pair.take(|event| matches!(event, Event::PersistentWatch { .. })) {
        let Event::PersistentWatch { id, news } = event else { unreachable!() };
        all.push((id.number.get(), news));
    }
    all
}

/// Takes the numbers of the one-shot watches that fired.
fn fired(pair: &mut Pair) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(event) = pair.take(|event| matches!(event, Event::Watch { .. })) {
        let Event::Watch { id, .. } = event else { unreachable!() };
        all.push(id.number.get());
    }
    all
}

fn removal(path: &str) -> Request {
    Request::RemoveWatches(WatchesRequest { path: path.into(), kind: WatcherType::ANY })
}

fn get_children(path: &str) -> Operation {
    watch(9, Request::GetChildren, path)
}

fn no_children() -> Result<Response, ErrorCode> {
    Ok(Response::GetChildren(NameList::default()))
}

#[test]
fn events_have_the_zxid_of_their_transaction_and_do_not_count_as_seen() {
    let mut pair = Pair::connected();
    set(&mut pair, 1, "/a", PERSISTENT);
    pair.event(Zxid(70), CHANGED, "/a");
    pair.event(Zxid::NONE, CHANGED, "/a");
    let zxids = news(&mut pair).into_iter().map(|(_, news)| match news {
        WatchNews::Event(event) => event.zxid,
        other => panic!("{other:?}"),
    });
    assert_eq!(zxids.collect::<Vec<_>>(), [Some(Zxid(70)), None]);
    pair.cut();
    assert_eq!(pair.connect(SESSION).last_zxid_seen, Zxid(1), "that of the reply");
    let (_, Request::SetWatches2(batch)) = pair.request().unwrap() else { panic!("no batch") };
    assert_eq!(batch.relative_zxid, Zxid(1));
}

#[test]
fn every_reconnect_is_a_gap_that_precedes_the_events_of_the_connection() {
    let mut pair = Pair::connected();
    set(&mut pair, 1, "/a", PERSISTENT);
    set(&mut pair, 2, "/b", RECURSIVE);
    for _ in 0..2 {
        pair.cut();
        assert_eq!(news(&mut pair), [], "there is nothing to read from yet");
        pair.submit(vec![sync("/a")]);
        pair.connect(SESSION);
        pair.event(Zxid::NONE, CHANGED, "/b/c");
        let event = |news: &WatchNews| matches!(news, WatchNews::Event(_));
        let told = news(&mut pair);
        let [(1, WatchNews::Gap), (2, WatchNews::Gap), (2, last)] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(event(last));
        let requests = pair.requests();
        let [(xid::SET_WATCHES, Request::SetWatches2(batch)), (_, Request::Sync(_))] =
            &requests[..]
        else {
            panic!("{requests:?}")
        };
        assert_eq!(
            (&*batch.persistent, &*batch.persistent_recursive),
            (&["/a".into()][..], &["/b".into()][..])
        );
    }
}

#[test]
fn old_servers_are_asked_for_one_shot_watches_alone_in_the_request_that_they_know() {
    let mut pair = Pair::connected();
    let (_, xid, _) = read(&mut pair, watch(1, Request::GetData, "/a"));
    pair.reply(xid, Ok(data()));
    pair.cut();
    pair.connect(SESSION);
    assert!(matches!(pair.requests()[..], [(xid::SET_WATCHES, Request::SetWatches(_))]));
}

#[test]
fn a_server_without_persistent_watches_ends_them_and_keeps_the_others() {
    let mut pair = Pair::connected();
    set(&mut pair, 1, "/a", PERSISTENT);
    let (_, xid, _) = read(&mut pair, watch(2, Request::GetData, "/b"));
    pair.reply(xid, Ok(data()));
    pair.cut();
    pair.connect(SESSION);
    news(&mut pair);
    assert!(matches!(pair.requests()[..], [(_, Request::SetWatches2(_))]));
    pair.reply_at(xid::SET_WATCHES, Zxid::NONE, Err(ErrorCode::UNIMPLEMENTED));
    assert_eq!(news(&mut pair), [(1, WatchNews::Ended(WatchEnded::Unsupported))]);
    assert_eq!(fired(&mut pair), [0; 0]);
    // The next connection is of use.
    pair.connect(SESSION);
    let requests = pair.requests();
    let [(_, Request::SetWatches(batch))] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((batch.relative_zxid, &*batch.data), (Zxid(2), &["/b".into()][..]));
    pair.reply_at(xid::SET_WATCHES, Zxid(2), Ok(Response::Empty));
    assert_eq!(pair.session.watch_count(), 1);
}

#[test]
fn a_server_that_cannot_restore_watches_fires_all_of_them_once() {
    let mut pair = Pair::connected();
    let (_, xid, _) = read(&mut pair, watch(1, Request::GetData, "/a"));
    pair.reply(xid, Ok(data()));
    let (_, xid, _) = read(&mut pair, get_children("/a"));
    pair.reply(xid, no_children());
    pair.cut();
    pair.connect(SESSION);
    pair.requests();
    pair.reply_at(xid::SET_WATCHES, Zxid::NONE, Err(ErrorCode::UNIMPLEMENTED));
    assert_eq!(fired(&mut pair), [9, 1]);
    pair.connect(SESSION);
    assert_eq!(pair.requests(), [], "there is nothing left to restore");
}

#[test]
fn a_refused_or_lost_request_sets_no_watch() {
    let mut pair = Pair::connected();
    let refused = pair.submit(vec![add(1, "/a", PERSISTENT)]);
    pair.flush();
    let (xid, _) = pair.request().unwrap();
    pair.reply(xid, Err(ErrorCode::THROTTLED_OP));
    assert_eq!(pair.error(refused).server_code(), Some(ErrorCode::THROTTLED_OP));
    let lost = pair.submit(vec![add(2, "/a", PERSISTENT)]);
    pair.flush();
    pair.cut();
    assert_eq!(pair.error(lost).outcome(), Outcome::Unknown);
    assert_eq!(pair.session.watch_count(), 0);
    pair.connect(SESSION);
    assert_eq!(pair.requests(), []);
    pair.event(Zxid(9), CHANGED, "/a");
    assert_eq!(news(&mut pair), []);
}

#[test]
fn a_session_takes_its_streams_with_it() {
    let mut pair = Pair::connected();
    set(&mut pair, 1, "/a", PERSISTENT);
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_expired();
    assert_eq!(pair.session.watch_count(), 0);
    pair.connect(SessionId(SESSION.0 + 1));
    assert_eq!(pair.requests(), []);
}

/// Servers before 3.9 replace a persistent watch by a later one-shot watch of the same path.
#[test]
fn a_one_shot_watch_shares_the_persistent_watch_of_its_path() {
    let mut pair = connected();
    // The first read is sent before the server has confirmed the persistent watch.
    pair.submit(vec![add(1, "/a", PERSISTENT)]);
    let early = pair.submit(vec![watch(2, Request::GetData, "/a")]);
    pair.flush();
    confirm(&mut pair);
    let (xid, request) = pair.request().unwrap();
    assert!(matches!(request, Request::GetData(read) if !read.watch));
    pair.reply(xid, Ok(data()));
    assert!(pair.answer(early).results[0].is_ok());
    let (_, xid, asks) = read(&mut pair, get_children("/a"));
    assert!(!asks);
    pair.reply(xid, no_children());
    let (_, xid, asks) = read(&mut pair, watch(3, Request::GetData, "/b"));
    assert!(asks, "another path");
    pair.reply(xid, Ok(data()));
    pair.event(Zxid(9), CHANGED, "/a");
    assert_eq!((fired(&mut pair), news(&mut pair).len()), (vec![2], 1));
    pair.event(Zxid(10), CHILDREN, "/a");
    assert_eq!((fired(&mut pair), news(&mut pair).len()), (vec![9], 1));
    pair.event(Zxid(11), CHILDREN, "/a");
    assert_eq!((fired(&mut pair), news(&mut pair).len()), (vec![], 1));
}

#[test]
fn one_shot_watches_that_relied_on_a_refused_watch_are_set_on_the_next_connection() {
    let mut pair = connected();
    let refused = pair.submit(vec![add(1, "/a", PERSISTENT)]);
    let reading = pair.submit(vec![watch(2, Request::Exists, "/a")]);
    pair.flush();
    let (xid, _) = pair.request().unwrap();
    pair.reply(xid, Err(ErrorCode::THROTTLED_OP));
    assert_eq!(pair.error(refused).server_code(), Some(ErrorCode::THROTTLED_OP));
    assert_eq!(pair.error(reading).outcome(), Outcome::Unknown);
    pair.connect(SESSION);
    let (_, _, asks) = read(&mut pair, watch(2, Request::Exists, "/a"));
    assert!(asks);
}

/// A recursive watch reports no lists of children, and replaces the watch that does.
#[test]
fn child_watches_are_set_again_behind_a_recursive_watch() {
    let mut pair = connected();
    let (_, xid, asks) = read(&mut pair, get_children("/a"));
    assert!(asks);
    pair.reply(xid, no_children());
    // Another is in flight.
    pair.submit(vec![watch(2, Request::GetChildren, "/b")]);
    pair.submit(vec![add(3, "/a", RECURSIVE), add(4, "/b", RECURSIVE), add(5, "/c", RECURSIVE)]);
    pair.flush();
    let renewed: Vec<ByteString> = pair
        .requests()
        .into_iter()
        .filter_map(|(_, request)| match request {
            Request::SetWatches(batch) => {
                assert_eq!(batch.relative_zxid, Zxid(2));
                Some(batch.child.concat().into())
            }
            _ => None,
        })
        .collect();
    assert_eq!(renewed, ["/a", "/b"]);
    // A later child watch replaces only the part of the recursive watch that reports nothing.
    let mut pair = Pair::connected();
    set(&mut pair, 1, "/a", RECURSIVE);
    let (_, xid, asks) = read(&mut pair, get_children("/a"));
    assert!(asks);
    pair.reply(xid, no_children());
    let (_, _, asks) = read(&mut pair, watch(2, Request::GetData, "/a"));
    assert!(!asks);
}

/// What arrives after the server has closed the connection can cost the client the reply.
#[test]
fn child_watches_are_not_set_again_before_the_server_is_known_to_know_the_recursive_watch() {
    for knows in [true, false] {
        let mut pair = Pair::connected();
        let (_, xid, _) = read(&mut pair, get_children("/a"));
        pair.reply(xid, no_children());
        let adding = pair.submit(vec![add(3, "/a", RECURSIVE)]);
        pair.flush();
        let requests = pair.requests();
        let [(xid, Request::AddWatch(_))] = &requests[..] else { panic!("{requests:?}") };
        if knows {
            pair.reply(*xid, Ok(Response::AddWatch(ErrorCode::OK)));
            assert!(pair.answer(adding).results[0].is_ok());
            pair.flush();
        } else {
            pair.reply_at(*xid, Zxid::NONE, Err(ErrorCode::UNIMPLEMENTED));
            assert!(matches!(pair.error(adding), OpError::Unsupported { .. }));
            pair.connect(SESSION);
        }
        let requests = pair.requests();
        let [(xid::SET_WATCHES, Request::SetWatches(batch))] = &requests[..] else {
            panic!("{requests:?}")
        };
        // The child watch may have missed what was committed since the request was sent.
        assert_eq!((batch.relative_zxid, batch.child.concat()), (Zxid(1), "/a".to_owned()));
    }
}

#[test]
fn a_persistent_stream_joins_the_recursive_watch_of_its_path() {
    let mut pair = Pair::connected();
    assert_eq!(set(&mut pair, 1, "/a", PERSISTENT), PERSISTENT);
    assert_eq!(set(&mut pair, 2, "/a", RECURSIVE), RECURSIVE);
    assert_eq!(set(&mut pair, 3, "/a", PERSISTENT), RECURSIVE);
    pair.event(Zxid(9), EventType::NODE_CREATED, "/a/b");
    let told: Vec<_> = news(&mut pair)
        .into_iter()
        .map(|(number, news)| match news {
            WatchNews::Event(event) => (number, event.kind, event.path),
            other => panic!("{other:?}"),
        })
        .collect();
    let created = EventType::NODE_CREATED;
    assert_eq!(
        told,
        [(2, created, "/a/b".into()), (1, CHILDREN, "/a".into()), (3, CHILDREN, "/a".into())]
    );
}

#[test]
fn the_watch_is_removed_with_its_last_stream() {
    let mut pair = Pair::connected();
    set(&mut pair, 1, "/a", PERSISTENT);
    pair.session.remove_owner(OWNER);
    pair.drain();
    pair.flush();
    let (xid, request) = pair.request().unwrap();
    assert_eq!(request, removal("/a"));
    pair.reply(xid, Err(ErrorCode::NO_WATCHER));
    // The path is like any other again.
    let (_, _, asks) = read(&mut pair, watch(1, Request::GetData, "/a"));
    assert!(asks);
}

/// The server would remove the watch of the read too, and its owner would wait in vain.
#[test]
fn no_watch_is_removed_while_a_one_shot_watch_needs_it_or_may_be_set() {
    let mut pair = connected();
    let adding = pair.submit(vec![add(1, "/a", PERSISTENT)]);
    pair.flush();
    let reading = pair.submit(vec![watch(2, Request::GetData, "/a")]);
    pair.flush();
    // The future of the stream is dropped before the reply arrives.
    pair.session.cancel(pair.now, adding);
    confirm(&mut pair);
    let (xid, _) = pair.request().unwrap();
    assert_eq!(pair.requests(), [], "the read has no reply yet");
    pair.reply(xid, Ok(data()));
    assert!(pair.answer(reading).results[0].is_ok());
    assert_eq!(pair.requests(), [], "the watch of the read needs it");
    pair.event(Zxid(9), CHANGED, "/a");
    assert_eq!(fired(&mut pair), [2]);
    let removed: Vec<_> = pair.requests().into_iter().map(|(_, request)| request).collect();
    assert_eq!(removed, [removal("/a")]);
}

fn remove(path: &str, kind: WatcherType) -> Operation {
    Operation::new(Request::RemoveWatches(WatchesRequest { path: path.into(), kind }))
}

/// A server that gets both requests at once replies to both that they succeeded, and the watch is
/// gone.
#[test]
fn a_removal_waits_for_reads_that_set_watches_on_its_path_and_delays_what_follows() {
    let mut pair = Pair::connected();
    let reading = pair.submit(vec![watch(1, Request::GetData, "/a")]);
    let removing = pair.submit(vec![remove("/a", WatcherType::CHILDREN)]);
    let last = pair.submit(vec![sync("/a")]);
    pair.flush();
    let requests = pair.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    pair.reply(requests[0].0, Ok(data()));
    assert!(pair.answer(reading).results[0].is_ok());
    let requests = pair.requests();
    // The watch on data is not of the type that is removed, so it is set again.
    let [(first, request), (-8, Request::SetWatches(batch)), (third, Request::Sync(_))] =
        &requests[..]
    else {
        panic!("{requests:?}")
    };
    assert_eq!((request, &*batch.data), (&removal("/a"), &["/a".into()][..]));
    assert_eq!(batch.relative_zxid, Zxid(1));
    pair.reply(*first, Ok(Response::Empty));
    assert_eq!(pair.error(removing).server_code(), Some(ErrorCode::NO_WATCHER));
    pair.reply_at(xid::SET_WATCHES, Zxid(1), Ok(Response::Empty));
    pair.reply(*third, Ok(Response::Sync("/a".into())));
    assert!(pair.answer(last).results[0].is_ok());
    assert_eq!((fired(&mut pair), pair.session.watch_count()), (vec![], 1));
}

#[test]
fn a_removal_whose_reply_is_lost_removes_nothing() {
    let mut pair = Pair::connected();
    set(&mut pair, 1, "/a", PERSISTENT);
    let removing = pair.submit(vec![remove("/a", WatcherType::ANY)]);
    pair.flush();
    pair.cut();
    assert_eq!(pair.error(removing).outcome(), Outcome::Unknown);
    pair.connect(SESSION);
    assert!(matches!(pair.requests()[..], [(_, Request::SetWatches2(_))]));
    assert_eq!(news(&mut pair), [(1, WatchNews::Gap)]);
}

/// The connection is lost at each step of restoring many watches.
#[test]
fn a_loss_at_any_step_of_restoring_loses_no_watch() {
    let padding = "x".repeat(1000);
    let paths: Vec<String> = (0..600).map(|number| format!("/{padding}{number:03}")).collect();
    let prepared = || {
        let mut pair = connected();
        for chunk in paths.chunks(50) {
            let mut operations: Vec<_> =
                chunk.iter().map(|path| watch(1, Request::Exists, path)).collect();
            for (number, (operation, path)) in operations.iter_mut().zip(chunk).enumerate() {
                let number = u64::try_from(number).unwrap();
                if number % 3 == 0 {
                    *operation = add(1, path, if number % 2 == 0 { PERSISTENT } else { RECURSIVE });
                }
            }
            for (number, mut operation) in operations.into_iter().enumerate() {
                operation.watch =
                    WatchNumber::new(pair.session.watch_count() as u64 + number as u64 + 1);
                pair.submit(vec![operation]);
            }
            pair.flush();
            for (xid, request) in pair.requests() {
                pair.reply(
                    xid,
                    match request {
                        Request::AddWatch(_) => Ok(Response::AddWatch(ErrorCode::OK)),
                        _ => Err(ErrorCode::NO_NODE),
                    },
                );
            }
            pair.events.clear();
        }
        assert_eq!(pair.session.watch_count(), 600);
        pair.cut();
        pair
    };
    let frozen = Zxid(601);
    let restored = |pair: &mut Pair| -> Vec<ByteString> {
        let mut paths = Vec::new();
        for (_, request) in pair.requests() {
            match request {
                Request::SetWatches(batch) => {
                    assert_eq!(batch.relative_zxid, frozen);
                    paths.extend(batch.exist);
                }
                Request::SetWatches2(batch) => {
                    assert_eq!(batch.relative_zxid, frozen);
                    paths.extend(
                        batch
                            .exist
                            .into_iter()
                            .chain(batch.persistent)
                            .chain(batch.persistent_recursive),
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        paths.sort();
        paths
    };
    let mut whole = prepared();
    whole.connect(SESSION);
    let all = restored(&mut whole);
    assert_eq!(all.len(), 600);
    let batches = 5;
    // Each step is the number of replies before the loss; 0 with and without bytes being sent.
    for replies in 0..=batches {
        for takes_all in [true, false] {
            let mut pair = prepared();
            pair.takes_all = takes_all;
            pair.connect(SESSION);
            if !takes_all && replies == 0 {
                pair.transmit(1);
            }
            pair.flush();
            for _ in 0..replies {
                // The server is ahead, but the watches are still those of the first loss.
                pair.reply_at(xid::SET_WATCHES, Zxid(5000), Ok(Response::Empty));
            }
            pair.events.clear();
            pair.cut();
            pair.takes_all = true;
            pair.connect(SESSION);
            assert_eq!(restored(&mut pair), all, "after {replies} replies");
            assert_eq!(news(&mut pair).len(), 204, "one gap for each stream");
            for _ in 0..batches {
                pair.reply_at(xid::SET_WATCHES, Zxid(5000), Ok(Response::Empty));
            }
            assert_eq!(pair.session.watch_count(), 600);
        }
    }
}
