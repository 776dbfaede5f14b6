//! Large requests, large replies, and large numbers of both.

use bytes::Bytes;
use zk_session::{
    CreateMode, ErrorCode, Multi, MultiError, MultiRead, OpCode, OpError, Outcome,
    REQUEST_LIMIT_DEFAULT, Target, Version,
};
use zk_tests::bare::Bare as _;
use zk_tests::target::Fixture;
use zk_tests::wait::soon;

use crate::restore::Outage;

const PERSISTENT: CreateMode = CreateMode::Persistent;

/// Returns the maximum length of the data in a setData request. The rest of the request consists of
/// the xid, opcode, path, length of the data, and version.
fn data_max(full_path: &str) -> usize {
    REQUEST_LIMIT_DEFAULT - 8 - (4 + full_path.len()) - 4 - 4
}

#[tokio::test]
async fn a_request_of_exactly_the_limit_is_served() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let data = Bytes::from(vec![7; data_max(&fixture.full("/a"))]);
    let stat = client.set_data("/a", data.clone(), None).await.unwrap();
    assert_eq!(stat.data_length, data.len());
    // The reply is longer than any request may be.
    assert_eq!(client.get_data("/a").await, Ok((data, stat)));
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn a_longer_request_is_not_sent() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let data = vec![7; data_max(&fixture.full("/a")) + 1];
    let error = client.set_data("/a", data, None).await.unwrap_err();
    let (length, limit) = (REQUEST_LIMIT_DEFAULT + 1, REQUEST_LIMIT_DEFAULT);
    let target = Target::new(OpCode::SET_DATA, "/a");
    assert_eq!(error, OpError::RequestTooLarge { length, limit, target });
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(client.exists("/a").await.unwrap().unwrap().version, Version(0));
    assert_eq!(client.status().connection, 1);
}

/// A client that does not limit the length of its requests exceeds the server's limit.
#[tokio::test]
async fn a_server_drops_the_connection_over_a_request_beyond_its_limit() {
    let fixture = Fixture::start().await;
    let builder = fixture.builder().request_limit(8 << 20);
    let client = builder.connect().await.unwrap();
    client.create("/a", "", PERSISTENT).await.unwrap();
    let before = client.status();
    let error = client.set_data("/a", vec![7; 2 << 20], None).await.unwrap_err();
    assert!(matches!(error, OpError::ConnectionLoss { .. }), "{error}");
    assert_eq!(client.exists("/a").await.unwrap().unwrap().version, Version(0));
    let after = client.status();
    assert_eq!((after.session, after.connection), (before.session, before.connection + 1));
}

#[tokio::test]
async fn a_reply_beyond_the_limit_fails_its_own_request_only() {
    let fixture = Fixture::start().await;
    let client = fixture.builder().response_limit(1024).connect().await.unwrap();
    client.create("/small", "s", PERSISTENT).await.unwrap();
    client.create("/large", vec![7; 300_000], PERSISTENT).await.unwrap();
    let before = client.get_data("/small");
    let large = client.get_data("/large");
    let missing = client.get_data("/missing");
    let after = client.get_data("/small");
    assert_eq!(before.await.unwrap().0, "s");
    // The rest of the reply consists of the header, the length of the data, and the stat.
    let length = 300_000 + 16 + 4 + 68;
    let target = Target::new(OpCode::GET_DATA, "/large");
    assert_eq!(large.await, Err(OpError::ResponseTooLarge { length, target }));
    assert_eq!(missing.await.bare(), Err(OpError::server(ErrorCode::NO_NODE)));
    assert_eq!(after.await.unwrap().0, "s");
    assert_eq!(client.set_data("/large", "s", None).await.unwrap().version, Version(1));
    assert_eq!(client.get_data("/large").await.unwrap().0, "s");
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn a_watch_left_by_a_reply_beyond_the_limit_disturbs_nobody() {
    let fixture = Fixture::start().await;
    let client = fixture.builder().response_limit(1024).connect().await.unwrap();
    client.create("/large", vec![7; 5000], PERSISTENT).await.unwrap();
    let error = client.get_data_and_watch("/large").await.unwrap_err();
    assert!(matches!(error, OpError::ResponseTooLarge { .. }), "{error}");
    client.set_data("/large", "s", None).await.unwrap();
    assert_eq!(client.get_data("/large").await.unwrap().0, "s");
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn many_requests_at_once_are_answered_in_the_order_of_calls() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let writes: Vec<_> = (0..500).map(|at| client.set_data("/a", format!("{at}"), None)).collect();
    let read = client.get_data("/a");
    // The replies are awaited in reverse order, which must not matter.
    assert_eq!(read.await.unwrap().0, "499");
    for (version, write) in (1..501).zip(writes).rev() {
        assert_eq!(write.await.unwrap().version, Version(version));
    }
}

#[tokio::test]
async fn a_long_list_of_children_arrives_whole() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/q", "", PERSISTENT).await.unwrap();
    let padding = "x".repeat(200);
    let creates: Vec<_> = (0..400)
        .map(|_| {
            let path = format!("/q/{padding}-");
            client.create(&path, "", CreateMode::PersistentSequential)
        })
        .collect();
    for (number, create) in creates.into_iter().enumerate() {
        assert_eq!(create.await.unwrap().path, format!("/q/{padding}-{number:010}"));
    }
    let mut names = client.get_children("/q").await.unwrap();
    names.sort();
    let expected: Vec<_> = (0..400).map(|number| format!("{padding}-{number:010}")).collect();
    assert_eq!(names, expected);
}

/// In two of three rounds, the connection is cut again while the requests are sent.
#[tokio::test]
async fn a_thousand_requests_without_a_connection_keep_their_order_and_none_is_lost() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    client.create("/q", "", PERSISTENT).await.unwrap();
    let session = client.session_id();
    let mut outage = Outage::begin(&proxy, &client).await;
    for (round, cut_at) in [(0, Some(100)), (1, Some(700)), (2, None)] {
        let create = |index| {
            let path = format!("/q/{round}-{index:03}-");
            client.create(&path, vec![7; 1000], CreateMode::PersistentSequential)
        };
        let creates: Vec<_> = (0..1000).map(create).collect();
        outage.end().await;
        let (mut created, mut unknown, mut next) = (Vec::new(), 0, None);
        for (index, create) in creates.into_iter().enumerate() {
            match soon("a reply", create).await {
                Ok(reply) => {
                    assert_eq!(created.len(), index, "no request before it has failed");
                    created.push(reply);
                }
                Err(OpError::ConnectionLoss { outcome: Outcome::Unknown, .. }) => unknown += 1,
                Err(error) => {
                    assert_eq!(error.bare(), OpError::connection_loss(Outcome::NotApplied));
                }
            }
            if Some(index) == cut_at {
                next = Some(Outage::begin(&proxy, &client).await);
            }
        }
        assert!(created.is_sorted_by(|a, b| a.stat.czxid < b.stat.czxid));
        let Some(next) = next else {
            assert_eq!(created.len(), 1000, "nothing was cut");
            break;
        };
        assert!(created.len() > cut_at.unwrap());
        outage = next;

        // What was applied begins with the first request and has no gap.
        let all = fixture.observer.get_children(&fixture.full("/q")).await.unwrap();
        let mut applied: Vec<(usize, usize)> = Vec::new();
        for name in &all {
            let parts: Vec<usize> = name.split('-').map(|part| part.parse().unwrap()).collect();
            if parts[0] == round {
                applied.push((parts[2], parts[1]));
            }
        }
        applied.sort_unstable();
        let indexes: Vec<usize> = applied.iter().map(|(_, index)| *index).collect();
        assert_eq!(indexes, (0..applied.len()).collect::<Vec<_>>());
        assert!(applied.len() <= created.len() + unknown);
    }
    assert_eq!(client.session_id(), session);
}

#[tokio::test]
async fn replies_of_every_kind_beyond_the_limit_fail_their_own_request_only() {
    let fixture = Fixture::start().await;
    let client = fixture.builder().response_limit(1024).connect().await.unwrap();
    let session = client.session_id();
    client.create("/q", "", PERSISTENT).await.unwrap();
    let padding = "x".repeat(100);
    let paths: Vec<_> = (0..20).map(|at| format!("/q/{padding}-{at}")).collect();
    // The outcomes of a multi are longer than the limit too: it was committed, and its caller is
    // not told so.
    let multi = paths
        .iter()
        .fold(Multi::new(), |multi, path| multi.create(path, "", CreateMode::Ephemeral));
    let error = client.commit(multi).await.unwrap_err();
    assert!(matches!(error, MultiError::Op(OpError::ResponseTooLarge { .. })), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
    let reads = paths.iter().fold(MultiRead::new(), |reads, path| reads.get_data(path));
    let (many, small) = (client.multi_read(reads), client.get_data("/q"));
    let (names, ephemerals) = (client.get_children("/q"), client.get_ephemerals("/"));
    let (named, watched) =
        (client.get_children_with_stat("/q"), client.get_children_and_watch("/q"));
    for error in [
        many.await.unwrap_err(),
        names.await.unwrap_err(),
        ephemerals.await.unwrap_err(),
        named.await.unwrap_err(),
        watched.await.unwrap_err(),
    ] {
        assert!(matches!(error, OpError::ResponseTooLarge { .. }), "{error}");
    }
    assert_eq!(small.await.unwrap().1.num_children, 20);
    assert_eq!(client.exists(&paths[19]).await.unwrap().unwrap().ephemeral_owner, session);
    assert_eq!((client.session_id(), client.status().connection), (session, 1));
}
