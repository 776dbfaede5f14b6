//! Changes of znodes, and permissions.

use jute_codec::{
    Acl, CreateMode, CreateRequest, Permissions, ReadOp, ReconfigRequest, Request, SetDataRequest,
    Ttl, Version,
};

use crate::peer::*;

/// Sends every operation so that it is refused, for every reason, and reads what is left.
pub(crate) fn errors(stage: &Stage) {
    let mut one = stage.connect();
    let acl = Acl::open;
    one.ask_all([
        create("/a"),
        create("/a"),
        create("/a/b"),
        create("/none/b"),
        create("/"),
        create_mode("/e", CreateMode::Ephemeral),
        create("/e/child"),
        create_mode("/e/child-", CreateMode::PersistentSequential),
        create_mode("/none/s-", CreateMode::EphemeralSequential),
        create_acl("/c", vec![]),
        create_acl("/a", vec![]),
        create_acl("/none/c", vec![]),
        create_acl("/c", vec![Acl::new(Permissions::ALL, "auth", "")]),
        create_acl("/c", vec![Acl::new(Permissions::ALL, "nobody", "knows")]),
        create_acl("/c", vec![Acl::new(Permissions::ALL, "world", "someone")]),
        create_acl("/c", vec![Acl::new(Permissions::ALL, "ip", "not an address")]),
        create_acl("/c", vec![Acl::new(Permissions::ALL, "digest", "no-colon")]),
        delete("/a", -1),
        delete("/a", 3),
        delete("/none", -1),
        delete("/none/b", -1),
        delete("/a/b", 7),
        delete("/", -1),
        delete("/zookeeper", -1),
        delete("/zookeeper/quota", -1),
        delete("/zookeeper/config", -1),
        set_data("/none", "x", -1),
        set_data("/a", "x", 1),
        set_data("/a", "x", -2),
        set_data("/a", "x", 0),
        set_data("/a", "x", 0),
        set_data("/zookeeper/config", "x", -1),
        get_data("/none", false),
        get_children("/none", false),
        get_children2("/none", true),
        exists("/none", false),
        Request::GetAcl("/none".into()),
        set_acl("/none", acl(), -1),
        set_acl("/a", acl(), 1),
        set_acl("/a", vec![], -1),
        set_acl("/a", vec![Acl::new(Permissions::ALL, "auth", "")], -1),
        set_acl("/a", acl(), 0),
        Request::GetAllChildrenNumber("/none".into()),
        Request::GetEphemerals(Some("/none".into())),
        Request::Sync("/none".into()),
        Request::Reconfig(ReconfigRequest {
            joining_servers: None,
            leaving_servers: Some("1".into()),
            new_members: None,
            config_id: -1,
        }),
        get_data("/a", false),
        get_children2("/", false),
    ]);
    one.close();
}

/// Reads the counters and zxids of znodes of all kinds.
pub(crate) fn stats(stage: &Stage) {
    let mut one = stage.connect();
    let ttl = Ttl::from_millis(3_600_000).expect("an hour");
    let plain = |path: &str, mode| {
        Request::Create(CreateRequest { with_stat: false, ..create_as(path, mode) })
    };
    one.ask_all([
        exists("/", false),
        get_children2("/", false),
        get_data("/zookeeper", false),
        get_children2("/zookeeper", false),
        get_children2("/zookeeper/quota", false),
        get_data("/zookeeper/config", false),
        Request::GetAcl("/".into()),
        Request::GetAcl("/zookeeper/config".into()),
        Request::GetAllChildrenNumber("/".into()),
        create("/p"),
        plain("/p/s-", CreateMode::PersistentSequential),
        create_mode("/p/e-", CreateMode::EphemeralSequential),
        create_mode("/p/c", CreateMode::Container),
        create_mode("/p/t", CreateMode::PersistentTtl(ttl)),
        create_mode("/p/ts-", CreateMode::PersistentSequentialTtl(ttl)),
        plain("/p/e", CreateMode::Ephemeral),
        exists("/p", false),
        exists("/p/c", false),
        exists("/p/t", false),
        create("/p/c/x"),
        get_children2("/p/c", false),
        delete("/p/c/x", 0),
        get_children2("/p/c", false),
        delete("/p/s-0000000000", -1),
        exists("/p", false),
        plain("/p/s-", CreateMode::PersistentSequential),
        plain("/p/", CreateMode::PersistentSequential),
        get_children2("/p", false),
        set_data("/p", "12345", -1),
        set_data("/p", "1", 1),
        set_acl("/p", Acl::open(), -1),
        exists("/p", false),
        create("/p/again"),
        delete("/p/again", -1),
        create("/p/again"),
        exists("/p/again", false),
        set_data("/", "root", -1),
        set_data("/", "root", 0),
        exists("/", false),
        set_data("/zookeeper", "x", -1),
        exists("/zookeeper", false),
        create("/zookeeper/mine"),
        exists("/zookeeper", false),
    ]);
    let empty = Some(bytes::Bytes::new());
    let null = CreateRequest { data: None, ..create_as("/null", CreateMode::Persistent) };
    let void = CreateRequest { data: empty, ..create_as("/empty", CreateMode::Persistent) };
    one.ask_all([
        Request::Create(null),
        Request::Create(void),
        get_data("/null", false),
        get_data("/empty", false),
        Request::SetData(SetDataRequest {
            path: "/empty".into(),
            data: None,
            version: Version::ANY,
        }),
        get_data("/empty", false),
        Request::GetAllChildrenNumber("/".into()),
        Request::GetAllChildrenNumber("/p".into()),
        Request::GetAllChildrenNumber("/p/again".into()),
        Request::GetEphemerals(None),
        Request::GetEphemerals(Some("/".into())),
        Request::GetEphemerals(Some("/p/e-".into())),
        Request::GetEphemerals(Some("/p".into())),
    ]);
    let mut two = stage.connect();
    two.ask_all([create_mode("/p/two", CreateMode::Ephemeral), exists("/p/e", false)]);
    one.close();
    two.ask_all([exists("/p", false), get_children2("/p", false), delete("/p/two", 0)]);
    two.ask_all([Request::GetEphemerals(None), exists("/p", false)]);
    two.close();
}

/// Sends multis that succeed, and reads of several znodes.
pub(crate) fn multi(stage: &Stage) {
    let (mut one, mut two) = (stage.connect(), stage.connect());
    let ttl = Ttl::from_millis(3_600_000).expect("an hour");
    let plain = CreateRequest { with_stat: false, ..create_as("/m/a", CreateMode::Persistent) };
    two.ask_all([exists("/m", true), exists("/m/a", true), exists("/m/gone", true)]);
    one.ask_all([
        Request::Multi(vec![]),
        Request::Multi(vec![
            op(create("/m")),
            op(Request::Create(plain)),
            check("/m/a", 0),
            op(set_data("/m/a", "1", 0)),
            op(set_data("/m/a", "2", 1)),
            op(create("/m/gone")),
            op(delete("/m/gone", 0)),
            check("/m", 0),
        ]),
        get_children2("/m", false),
        get_data("/m/a", false),
    ]);
    two.ask_all([get_children("/m", true), get_data("/m/a", true), exists("/m/gone", true)]);
    one.ask_all([
        Request::Multi(vec![
            op(create_mode("/m/s-", CreateMode::PersistentSequential)),
            op(create_mode("/m/s-", CreateMode::EphemeralSequential)),
            op(create_mode("/m/c", CreateMode::Container)),
            op(create_mode("/m/t", CreateMode::PersistentTtl(ttl))),
            op(create_mode("/m/e", CreateMode::Ephemeral)),
            op(set_data("/m", "x", -1)),
            op(delete("/m/a", 2)),
        ]),
        get_children2("/m", false),
        exists("/m/e", false),
        Request::Multi(vec![check("/m", 1)]),
        Request::Multi(vec![op(delete("/m/e", -1)), op(create("/m/e"))]),
        exists("/m/e", false),
        exists("/m", false),
        Request::MultiRead(vec![]),
        Request::MultiRead(vec![
            ReadOp::GetData("/m".into()),
            ReadOp::GetChildren("/m".into()),
            ReadOp::GetData("/none".into()),
            ReadOp::GetChildren("/none".into()),
        ]),
    ]);
    one.close();
    two.ask_all([get_children2("/m", false)]);
    two.close();
}

/// Sends multis that fail at every position, and leave nothing behind.
pub(crate) fn multi_failures(stage: &Stage) {
    let (mut one, mut two) = (stage.connect(), stage.connect());
    one.ask_all([create("/f"), create("/f/a"), create_mode("/f/e", CreateMode::Ephemeral)]);
    two.ask_all([get_children("/f", true), exists("/f/b", true), get_data("/f", true)]);
    let (create_b, set) = (|| op(create("/f/b")), || op(set_data("/f", "x", -1)));
    one.ask_all([
        Request::Multi(vec![check("/f", 7), create_b(), set()]),
        Request::Multi(vec![create_b(), check("/f", 7), set()]),
        Request::Multi(vec![create_b(), set(), check("/f", 0)]),
        Request::Multi(vec![create_b(), create_b()]),
        Request::Multi(vec![op(delete("/f/a", 0)), op(delete("/f/a", 0))]),
        Request::Multi(vec![op(delete("/f", -1)), create_b()]),
        Request::Multi(vec![op(create("/f/e/child"))]),
        Request::Multi(vec![op(create("/none/child")), check("/f", 0)]),
        Request::Multi(vec![check("/none", -1), check("/none", 0)]),
        Request::Multi(vec![set(), op(set_data("/none", "x", -1))]),
        Request::Multi(vec![op(create("no slash"))]),
        Request::Multi(vec![set(), op(create_acl("/f/b", vec![]))]),
        Request::Multi(vec![
            op(create_mode("/f/s-", CreateMode::PersistentSequential)),
            check("/f", 9),
        ]),
        get_children2("/f", false),
        create_mode("/f/s-", CreateMode::PersistentSequential),
        get_data("/f", false),
        Request::GetEphemerals(None),
    ]);
    one.ask_all([Request::Multi(vec![op(delete("/f/e", -1)), check("/f", 9)])]);
    one.ask_all([Request::GetEphemerals(None), exists("/f/e", false)]);
    one.close();
    two.close();
}

/// Uses identities and access control lists.
pub(crate) fn access(stage: &Stage) {
    let (mut bob, mut eve) = (stage.connect(), stage.connect());
    let bobs = "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=";
    let everybody = |perms| Acl::new(perms, "world", "anyone");
    let only = |perms| vec![Acl::new(perms, "digest", bobs)];
    bob.ask_all([
        Request::WhoAmI,
        auth("digest", "bob:secret"),
        auth("digest", "bob:secret"),
        auth("digest", "rob:other"),
        Request::WhoAmI,
        create_acl("/all", Acl::creator_all()),
        Request::GetAcl("/all".into()),
        create_acl("/mixed", [only(Permissions::ALL), vec![everybody(Permissions::READ)]].concat()),
        create_acl("/twice", [only(Permissions::ALL), only(Permissions::ALL)].concat()),
        Request::GetAcl("/twice".into()),
        create_acl("/secret", only(Permissions::ALL)),
        create("/secret/child"),
        create_acl("/mute", vec![Acl::new(Permissions(0), "world", "anyone")]),
        create_acl("/local", vec![Acl::new(Permissions::ALL, "ip", "127.0.0.1")]),
        create_acl("/net", vec![Acl::new(Permissions::READ, "ip", "127.0.0.0/8")]),
        create_acl("/abroad", vec![Acl::new(Permissions::ALL, "ip", "10.0.0.0/8")]),
        create_acl(
            "/admin",
            [only(Permissions::ADMIN), vec![everybody(Permissions::WRITE)]].concat(),
        ),
    ]);
    for path in ["/all", "/mixed", "/secret", "/local", "/net", "/admin"] {
        let child = format!("{path}/new");
        eve.ask_all([
            get_data(path, true),
            get_children(path, true),
            exists(path, true),
            Request::GetAcl(path.into()),
            set_data(path, "eve", -1),
            create(&child),
            delete(&child, -1),
            set_acl(path, Acl::open(), 9),
            Request::GetAllChildrenNumber(path.into()),
            Request::Multi(vec![check(path, -1), op(set_data(path, "eve", -1))]),
        ]);
    }
    eve.ask_all([delete("/secret/child", -1), exists("/secret/child", true)]);
    eve.ask_all([Request::MultiRead(vec![
        ReadOp::GetData("/secret".into()),
        ReadOp::GetChildren("/mixed".into()),
    ])]);
    bob.ask_all([
        set_data("/secret", "x", -1),
        delete("/secret/child", -1),
        delete("/secret", -1),
        set_data("/mixed", "x", -1),
        set_acl("/mixed", only(Permissions::READ), 0),
        set_acl("/mixed", only(Permissions::READ), -1),
        Request::GetAcl("/mixed".into()),
        delete("/mute", -1),
        delete("/admin", -1),
    ]);
    bob.close();
    eve.ask_all([auth("ip", "whatever"), auth("world", "anyone")]);
    eve.ask(&get_data("/net", false));
    eve.drop_connection();
    let mut nobody = stage.connect();
    nobody.ask_all([auth("nobody", "knows"), Request::Ping]);
    nobody.drop_connection();
    let mut nobody = stage.connect();
    nobody.ask_all([auth("digest", ""), Request::WhoAmI]);
    nobody.drop_connection();
}
