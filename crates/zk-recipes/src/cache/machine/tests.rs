//! Replies and events in orders that a test with a server hardly ever produces.

use jute_codec::{NameList, Zxid};

use super::*;

const DELETED: EventType = EventType::NODE_DELETED;
const CHANGED: EventType = EventType::NODE_DATA_CHANGED;

fn machine() -> CacheMachine {
    let limits = Limits {
        depth: usize::MAX,
        nodes: 100,
        bytes: 100_000,
        reads: 10,
        accepts_unreadable: false,
    };
    let mut machine = CacheMachine::new("/t".into(), limits);
    machine.start(Source::Persistent);
    machine
}

fn found(zxid: i64, data: &str) -> Result<Response, OpError> {
    let zxid = Zxid(zxid);
    let stat = jute_codec::Stat { czxid: zxid, mzxid: zxid, ..jute_codec::Stat::default() };
    Ok(Response::GetData(DataReply { data: Some(data.to_owned().into()), stat }))
}

fn missing() -> Result<Response, OpError> {
    Err(OpError::server(ErrorCode::NO_NODE))
}

fn news(machine: &mut CacheMachine) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(event) = machine.poll_news() {
        let text = |node: &CachedNode| String::from_utf8_lossy(&node.data).into_owned();
        all.push(match event.expect("it goes on") {
            CacheEvent::Added { path, node } => format!("added {path} {}", text(&node)),
            CacheEvent::Changed { path, node, .. } => format!("changed {path} {}", text(&node)),
            CacheEvent::Removed { path, .. } => format!("removed {path}"),
            CacheEvent::Unreadable { path, .. } => format!("unreadable {path}"),
            CacheEvent::Gap => "gap".to_owned(),
            CacheEvent::Complete => "complete".to_owned(),
        });
    }
    all
}

#[test]
fn a_reply_that_may_be_older_than_a_deletion_is_not_shown() {
    let mut machine = machine();
    let root = machine.poll_read().expect("the root is read");
    machine.reply(&root, found(1, "one"));
    assert_eq!(news(&mut machine), ["added /t one", "complete"]);
    machine.event(CHANGED, &"/t".into());
    let read = machine.poll_read().expect("it has changed");
    machine.event(DELETED, &"/t".into());
    machine.reply(&read, found(1, "one"));
    assert_eq!(news(&mut machine), ["removed /t"]);
    // The reply might have been newer, so the znode is read again.
    let again = machine.poll_read().expect("it may exist");
    machine.reply(&again, missing());
    assert_eq!((news(&mut machine).len(), machine.nodes().len()), (0, 0));
    assert!(machine.poll_read().is_none());
}

#[test]
fn events_while_a_read_is_in_flight_cause_one_more_read() {
    let mut machine = machine();
    let root = machine.poll_read().expect("the root is read");
    for _ in 0..5 {
        machine.event(CHANGED, &"/t".into());
    }
    assert!(machine.poll_read().is_none());
    machine.reply(&root, found(1, "one"));
    let again = machine.poll_read().expect("it has changed");
    assert!(machine.poll_read().is_none());
    machine.reply(&again, found(1, "one"));
    assert!(machine.poll_read().is_none());
    assert_eq!(news(&mut machine), ["added /t one", "complete"]);
}

#[test]
fn an_older_state_is_never_shown_behind_a_newer_one() {
    let mut machine = machine();
    let root = machine.poll_read().expect("the root is read");
    machine.reply(&root, found(7, "new"));
    machine.event(CHANGED, &"/t".into());
    let read = machine.poll_read().expect("it has changed");
    machine.reply(&read, found(6, "old"));
    assert_eq!(news(&mut machine), ["added /t new", "complete"]);
}

/// A gap during the first read begins it again, and what was in flight counts for nothing.
#[test]
fn a_gap_while_everything_is_read_reads_everything_again() {
    let mut machine = machine();
    let root = machine.poll_read().expect("the root is read");
    let mut stat = jute_codec::Stat { czxid: Zxid(1), ..jute_codec::Stat::default() };
    stat.num_children = 1;
    let inner = || Ok(Response::GetData(DataReply { data: None, stat }));
    machine.reply(&root, inner());
    let list = machine.poll_read().expect("it has children");
    machine.gap(true, true);
    // The znode in this list was deleted before the gap was known, and another was created.
    let names = |name: &str| Ok(Response::GetChildren(NameList::from_iter([name])));
    machine.reply(&list, names("a"));
    let mut reads = Vec::new();
    for _ in 0..20 {
        let Some(read) = machine.poll_read() else { break };
        reads.push((read.path.to_string(), read.aspect));
        let reply = match (&*read.path, read.aspect) {
            ("/t", Aspect::Data) => inner(),
            ("/t", Aspect::List) => names("b"),
            ("/t/b", Aspect::Data) => found(3, "b"),
            _ => missing(),
        };
        machine.reply(&read, reply);
    }
    assert!(reads.contains(&("/t".to_owned(), Aspect::List)), "{reads:?}");
    assert_eq!(news(&mut machine), ["added /t ", "gap", "added /t/b b", "complete"]);
    assert_eq!(machine.stats().gaps, 1);
}

/// An event of a znode that could not be read is a reason to read the znode, and also what is below
/// it: the refusal had ended the read of everything.
#[test]
fn what_can_be_read_again_is_read_with_all_that_is_below_it() {
    let inner = || {
        let Ok(Response::GetData(mut reply)) = found(1, "") else { unreachable!() };
        reply.stat.num_children = 1;
        Ok(Response::GetData(reply))
    };
    let refusal = || Err(OpError::server(ErrorCode::NO_AUTH));
    let below = || Ok(Response::GetChildren(NameList::from_iter(["a"])));
    for is_list in [false, true] {
        for is_repeated in [false, true] {
            let mut machine = machine();
            let mut refused = machine.poll_read().expect("the root is read");
            if is_list {
                machine.reply(&refused, inner());
                refused = machine.poll_read().expect("it has children");
            }
            if is_repeated {
                // The event comes before the refusal.
                machine.event(CHANGED, &"/t".into());
            }
            machine.reply(&refused, refusal());
            assert!(news(&mut machine).contains(&"unreadable /t".to_owned()));
            assert!(!machine.is_complete());
            if !is_repeated {
                machine.event(CHANGED, &"/t".into());
            }
            if is_list {
                machine.retry_unreadable();
            }
            while let Some(read) = machine.poll_read() {
                let reply = match (&*read.path, read.aspect) {
                    ("/t", Aspect::Data) => inner(),
                    ("/t", Aspect::List) => below(),
                    ("/t/a", Aspect::Data) => found(2, "a"),
                    other => panic!("{other:?}"),
                };
                machine.reply(&read, reply);
            }
            let shown = news(&mut machine);
            assert!(
                shown.contains(&"added /t/a a".to_owned()),
                "{is_list} {is_repeated}: {shown:?}"
            );
            assert_eq!(shown.last().map(String::as_str), Some("complete"), "{shown:?}");
        }
    }
}

/// Returns the reads of a request for the children of the root.
fn children(machine: &mut CacheMachine, count: usize) -> Vec<Read> {
    let root = machine.poll_read().expect("the root is read");
    let Ok(Response::GetData(mut of_root)) = found(1, "") else { unreachable!() };
    of_root.stat.num_children = i32::try_from(count).expect("it is small");
    machine.reply(&root, Ok(Response::GetData(of_root)));
    let list = machine.poll_read().expect("it has children");
    let names: NameList = (0..count).map(|number| number.to_string()).collect();
    machine.reply(&list, Ok(Response::GetChildren(names)));
    news(machine);
    machine.poll_reads()
}

fn data(zxid: i64, data: &str) -> ReadResult {
    let Ok(Response::GetData(DataReply { data, stat })) = found(zxid, data) else { unreachable!() };
    ReadResult::Data { data, stat }
}

#[test]
fn the_reads_of_a_request_are_answered_one_by_one() {
    let mut machine = machine();
    let reads = children(&mut machine, 10);
    assert_eq!(reads.len(), 10);
    // The first was deleted since, and the second has changed.
    machine.event(DELETED, &reads[0].path);
    machine.event(CHANGED, &reads[1].path);
    let mut results: Vec<_> = (0..10).map(|number| data(number + 2, "x")).collect();
    results[2] = ReadResult::Error(ErrorCode::NO_NODE);
    results[3] = ReadResult::Error(ErrorCode::NO_AUTH);
    machine.replies(&reads, Ok(Response::MultiRead(results)));
    let shown = news(&mut machine);
    assert_eq!(shown.len(), 7, "{shown:?}");
    assert_eq!(shown.first(), Some(&format!("added {} x", reads[1].path)));
    let again: Vec<_> = std::iter::repeat_with(|| machine.poll_reads())
        .take_while(|reads| !reads.is_empty())
        .map(|reads| reads.iter().map(|read| read.path.clone()).collect::<Vec<_>>())
        .collect();
    // A refusal that is reported names its znode.
    let expected: Vec<_> = [0, 1, 3].map(|number| vec![reads[number].path.clone()]).into();
    assert_eq!(again, expected);
}

#[test]
fn reads_that_do_not_fit_in_one_reply_are_sent_one_by_one() {
    let mut machine = machine();
    let reads = children(&mut machine, 20);
    // The length of what was not read before is guessed.
    assert!((8..20).contains(&reads.len()), "{}", reads.len());
    machine
        .replies(&reads, Err(OpError::ResponseTooLarge { length: 9, target: Default::default() }));
    let rest = machine.poll_reads();
    assert_eq!(rest.len(), 20 - reads.len(), "they were not refused");
    for read in &reads {
        let alone = machine.poll_reads();
        assert_eq!(alone.iter().map(|it| &it.path).collect::<Vec<_>>(), [&read.path]);
        machine.replies(&alone, found(2, "long"));
    }
}

#[test]
fn servers_that_do_not_know_the_operation_get_single_reads() {
    let mut machine = machine();
    let reads = children(&mut machine, 10);
    machine.replies(&reads, Err(OpError::Unsupported { target: Default::default() }));
    for _ in 0..10 {
        let single = machine.poll_reads();
        assert_eq!(single.len(), 1);
        machine.replies(&single, found(2, "x"));
    }
    assert_eq!(news(&mut machine).last().map(String::as_str), Some("complete"));
}

/// A cache of the root and two znodes below it, which is complete.
fn of_two() -> CacheMachine {
    let mut machine = machine();
    for read in children(&mut machine, 2) {
        machine.reply(&read, found(2, &read.path));
    }
    let second = machine.poll_read().expect("few reads are sent one by one");
    machine.reply(&second, found(2, &second.path));
    assert_eq!(news(&mut machine).last().map(String::as_str), Some("complete"));
    machine
}

/// Answers the reads of a check. Returns what was read, and what was reported.
fn checked(
    machine: &mut CacheMachine,
    answer: impl Fn(&Read) -> Result<Response, OpError>,
) -> (Vec<String>, Vec<String>) {
    machine.check();
    let mut reads = Vec::new();
    while let Some(read) = machine.poll_read() {
        reads.push(format!("{:?} {}", read.aspect, read.path));
        assert!(reads.len() < 20, "{reads:?}");
        machine.reply(&read, answer(&read));
    }
    (reads, news(machine))
}

fn unchanged(read: &Read) -> Result<Response, OpError> {
    match (&*read.path, read.aspect) {
        ("/t", Aspect::Data) => {
            let Ok(Response::GetData(mut root)) = found(1, "") else { unreachable!() };
            root.stat.num_children = 2;
            Ok(Response::GetData(root))
        }
        ("/t", Aspect::List) => Ok(Response::GetChildren(NameList::from_iter(["0", "1"]))),
        _ => found(2, &read.path),
    }
}

#[test]
fn a_check_reads_one_znode_after_the_other_and_reports_nothing() {
    let mut machine = of_two();
    for reads in
        [&["Data /t", "List /t"][..], &["Data /t/0"], &["Data /t/1"], &["Data /t", "List /t"]]
    {
        assert_eq!(
            checked(&mut machine, unchanged),
            (reads.iter().map(|it| it.to_string()).collect(), vec![])
        );
    }
    assert_eq!((machine.stats().gaps, machine.is_complete()), (0, true));
}

#[test]
fn a_check_that_finds_what_no_event_has_reported_reads_everything_again() {
    let found_again = ["Data /t", "List /t", "Data /t/0", "Data /t/1"].map(str::to_owned);
    let changes: [(&str, Aspect, Result<Response, OpError>, &str); 4] = [
        ("/t", Aspect::List, Ok(Response::GetChildren(NameList::from_iter(["1"]))), "removed /t/0"),
        ("/t/0", Aspect::Data, missing(), "removed /t/0"),
        ("/t/0", Aspect::Data, found(9, "new"), "changed /t/0 new"),
        ("/t/0", Aspect::Data, Err(OpError::server(ErrorCode::NO_AUTH)), "unreadable /t/0"),
    ];
    for (path, aspect, changed, told) in changes {
        let mut machine = of_two();
        let answer = |read: &Read| match (&*read.path, read.aspect) {
            (at, of) if (at, of) == (path, aspect) => changed.clone(),
            ("/t/0", _) if told.starts_with("removed") => missing(),
            _ => unchanged(read),
        };
        if path == "/t/0" {
            assert_eq!(
                checked(&mut machine, answer).1,
                Vec::<String>::new(),
                "the root is the same"
            );
        }
        let (reads, reported) = checked(&mut machine, answer);
        assert!(found_again.iter().all(|read| reads.contains(read)), "{told}: {reads:?}");
        assert_eq!(reported.first().map(String::as_str), Some("gap"), "{told}");
        assert!(reported.contains(&told.to_owned()), "{told}: {reported:?}");
        assert_eq!(machine.stats().gaps, 1);
    }
}

#[test]
fn a_check_during_which_an_event_comes_finds_nothing_that_was_missed() {
    let mut machine = of_two();
    checked(&mut machine, unchanged);
    machine.check();
    let check = machine.poll_read().expect("it is read again");
    assert_eq!(&*check.path, "/t/0");
    machine.event(CHANGED, &check.path);
    machine.reply(&check, found(9, "new"));
    let again = machine.poll_read().expect("it has changed since");
    machine.reply(&again, found(9, "new"));
    assert_eq!(news(&mut machine), ["changed /t/0 new"]);
    // Nor does a child that is about to be read.
    let (reads, told) = checked(&mut machine, unchanged);
    assert_eq!((reads.len(), told.len()), (1, 0), "{reads:?}");
    machine.check();
    let root = machine.poll_read().expect("it is read again");
    machine.reply(&root, unchanged(&root));
    let list = machine.poll_read().expect("it has children");
    machine.event(EventType::NODE_CREATED, &"/t/2".into());
    let names = NameList::from_iter(["0", "1", "2"]);
    machine.reply(&list, Ok(Response::GetChildren(names)));
    assert_eq!(machine.stats().gaps, 0);
    // No check begins before it was read.
    machine.check();
    let created = machine.poll_read().expect("it is new");
    assert_eq!((&*created.path, machine.poll_read().is_none()), ("/t/2", true));
}
