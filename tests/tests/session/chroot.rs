//! The chroot of a client that does not wait for its first connection.

use jute_codec::{Acl, CreateRequest, ErrorCode, MultiOp, OpCode, Request};
use zk_session::recipe::{Flight, LaneEvent, Operation, Session};
use zk_session::{
    Client, ClientBuilder, Clock, ConnectError, CreateMode, Multi, MultiError, OpError,
    Permissions, Target,
};
use zk_tests::scene::spawn;
use zk_tests::world::{run, sleep_ms};
use zk_testserver::{Action, At, Fault, Reception, ServerConfig, TestServer};

const CHROOT: &str = "zk:2181/a/b/c";

fn builder(server: &TestServer) -> ClientBuilder {
    let connector = server.connector();
    Client::builder(CHROOT).seed(1).clock(Clock::tokio()).transport(connector)
}

#[test]
fn starting_creates_the_chroot_before_any_request_is_sent() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        server.set_reception(Reception::Refused);
        let client = builder(&server).start().expect("the options are valid");
        let creates: Vec<_> = (0..100)
            .map(|index| client.create(&format!("/{index}"), "", CreateMode::Persistent))
            .map(spawn)
            .collect();
        sleep_ms(3_000).await;
        server.set_reception(Reception::Open);
        for create in creates {
            create.await.expect("it does not panic").expect("the chroot exists");
        }
        assert!(server.stat("/a/b/c/99").is_some());
    });
}

#[test]
fn a_connection_lost_while_the_chroot_is_created_costs_no_request() {
    run(async {
        // The read, and each of the creates.
        for (nth, action) in
            (0..4).flat_map(|nth| [Action::CutBefore, Action::CutAfter].map(|it| (nth, it)))
        {
            let server = TestServer::start(ServerConfig::default());
            server.inject(Fault::new(At::request(nth), action.clone()));
            let client = builder(&server).start().expect("the options are valid");
            let created = client.create("/x", "", CreateMode::Persistent).await;
            // After the last create, the request was in flight.
            if nth == 0 || !created.as_ref().is_err_and(OpError::is_connection_loss) {
                created.unwrap_or_else(|error| panic!("{nth}, {action:?}: {error}"));
            }
            client.get_children("/").await.expect("the chroot exists");
            assert_eq!(server.pending_faults(), []);
        }
    });
}

#[test]
fn a_chroot_that_exists_costs_one_read() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        for path in ["/a", "/a/b", "/a/b/c"] {
            server.admin_create(path, b"", None);
        }
        let client = builder(&server).start().expect("the options are valid");
        client.sync("/").await.expect("the server answers");
        let ops: Vec<_> = server.requests().into_iter().map(|request| request.op).collect();
        assert_eq!(ops, [OpCode::EXISTS, OpCode::SYNC]);
        server.disconnect_all();
        client.sync("/").await.expect("the client reconnects");
        let seeks = server.requests().iter().filter(|request| request.op == OpCode::EXISTS).count();
        assert_eq!(seeks, 1, "it is not sought again");
    });
}

#[test]
fn a_chroot_that_is_not_to_be_created_is_left_alone() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let client = builder(&server).create_chroot(false).start().expect("the options are valid");
        let refused = client.create("/x", "", CreateMode::Persistent).await;
        assert!(matches!(refused, Err(OpError::ChrootMissing { .. })), "{refused:?}");
        assert!(server.stat("/a").is_none());
    });
}

/// The results of a multi refuse it, not an error.
#[test]
fn a_multi_whose_create_misses_the_chroot_says_so_to_operations_and_lanes() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        server.admin_create("/a", b"", None);
        let client = builder(&server).create_chroot(false).start().expect("the options are valid");
        let missing = OpError::ChrootMissing { chroot: "/a/b/c".into(), path: "/x".into() };
        let multi = Multi::new().create("/x", "", CreateMode::Persistent);
        let error = client.commit(multi).await.expect_err("there is no chroot");
        assert_eq!(error, MultiError::Op(missing.clone()));

        let creates = |paths: &[&str]| {
            let create = |path: &&str| {
                MultiOp::Create(CreateRequest {
                    path: (*path).into(),
                    data: None,
                    acl: Acl::open(),
                    mode: CreateMode::Persistent,
                    with_stat: false,
                })
            };
            Operation::new(Request::Multi(paths.iter().map(create).collect()))
        };
        let mut lane = Session::of(&client).lane();
        // The second multi misses a znode below the chroot, as far as it can tell.
        for (paths, expected) in [(["/x", "/y"], Some(&missing)), (["/x/y", "/y"], None)] {
            let operations = vec![creates(&paths)];
            lane.submit(Flight { operations, session: None, deadline: None }).expect("it is open");
            let reply = loop {
                if let LaneEvent::Reply { reply, .. } = lane.next().await {
                    break reply;
                }
            };
            assert_eq!(reply.results[0].as_ref().err(), expected, "{reply:?}");
            let refused = reply.refused.map(|target| target.path.to_string());
            assert_eq!(refused.as_deref(), expected.is_none().then_some("/x/y"));
        }
    });
}

#[test]
fn a_refused_chroot_is_tried_again_on_the_next_connection() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        // After the read and the creates of two ancestors.
        server.inject(Fault::new(At::request(3), Action::Error(ErrorCode::NO_AUTH)));
        let client = builder(&server).start().expect("the options are valid");
        let refused = client.create("/x", "", CreateMode::Persistent).await;
        assert!(matches!(refused, Err(OpError::ChrootMissing { .. })), "{refused:?}");
        server.disconnect_all();
        client.create("/x", "", CreateMode::Persistent).await.expect("the chroot exists");
    });
}

/// Which ancestor is missing, and why, is known only from the refusal before the one that misses it.
#[test]
fn a_chroot_whose_ancestor_may_not_be_created_names_that_ancestor_and_the_permission() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        server.admin_create("/a", b"", None);
        let readable = vec![Acl::new(Permissions::READ, "world", "anyone")];
        assert!(server.admin_set_acl("/a", readable));
        let error = builder(&server).connect().await.expect_err("it may not be created");
        let ConnectError::Chroot { path, error } = &error else { panic!("{error}") };
        assert_eq!((path.as_str(), error.server_code()), ("/a/b/c", Some(ErrorCode::NO_AUTH)));
        assert_eq!(error.target(), Some(&Target::new(OpCode::CREATE2, "/a/b")));
        assert!(error.to_string().contains("the permission CREATE on \"/a\""), "{error}");
    });
}

/// Paths of a client are below its chroot, so an error at the root is one at the chroot.
#[test]
fn a_refusal_at_the_chroot_says_that_the_root_of_the_client_is_the_chroot() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let client = builder(&server).create_chroot(false).start().expect("the options are valid");
        let missing = client.get_children("/").await.expect_err("it is missing").to_string();
        assert!(missing.contains("the chroot does not exist on the servers"), "{missing}");
        let missing = client.create("/x", "", CreateMode::Persistent).await.expect_err("the same");
        assert!(missing.to_string().contains("CREATE on the parent of the chroot"), "{missing}");
        for path in ["/a", "/a/b", "/a/b/c"] {
            server.admin_create(path, b"", None);
        }
        let nothing = vec![Acl::new(Permissions::ADMIN, "world", "anyone")];
        assert!(server.admin_set_acl("/a/b/c", nothing));
        for refused in [
            client.get_children("/").await.map(drop),
            client.create("/x", "", CreateMode::Persistent).await.map(drop),
        ] {
            let refused = refused.expect_err("nobody may").to_string();
            assert!(
                refused.contains("on \"/\", which is the chroot if the client has one"),
                "{refused}"
            );
        }
    });
}
