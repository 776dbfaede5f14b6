//! Watches of all kinds: set, fired, removed and restored.

use jute_codec::{
    AddWatchMode, AddWatchRequest, CreateMode, Request, SetWatches, SetWatches2, WatcherType, Zxid,
};

use crate::peer::*;

/// Sets watches with reads. They fire once, before the reply to the write that fires them.
pub(crate) fn one_shot(stage: &Stage) {
    let (mut one, mut two) = (stage.connect(), stage.connect());
    for peer in [&mut one, &mut two] {
        peer.ask_all([exists("/w", true), exists("/w", true), get_data("/w", true)]);
        peer.ask(&get_children("/", true));
    }
    one.ask_all([create("/w"), set_data("/w", "x", -1)]);
    for peer in [&mut two, &mut one] {
        peer.ask_all([get_data("/w", true), get_children2("/w", true), exists("/w", true)]);
    }
    one.ask_all([
        set_data("/w", "y", 9),
        create("/w/a"),
        create("/w/b"),
        set_data("/w", "y", -1),
        set_acl("/w", jute_codec::Acl::open(), -1),
    ]);
    two.ask_all([get_data("/w/a", true), get_children("/w/a", true), get_children("/w", true)]);
    one.ask_all([delete("/w/a", -1), delete("/w/b", -1)]);
    two.ask_all([get_children("/w", true), get_data("/w", true), exists("/w/none", true)]);
    one.ask_all([delete("/w", -1), create("/w"), create("/w/none")]);
    // A writer also receives its own events before its replies.
    one.ask_all([get_data("/w", true), get_children("/w", true), get_children("/w/none", true)]);
    one.ask_all([set_data("/w", "1", -1), delete("/w/none", -1), delete("/w", -1)]);
    // Ephemerals are deleted with their session.
    one.ask_all([create("/p"), create_mode("/p/e", CreateMode::Ephemeral)]);
    two.ask_all([exists("/p/e", true), get_children("/p/e", true), get_children("/p", true)]);
    one.close();
    two.ask_all([exists("/p", true), exists("/p/a", true)]);
    // Watches belong to the connection: none of these fires on the new one.
    let mut two = stage.reconnect(two);
    two.ask_all([create("/p/a"), set_data("/p", "x", -1), Request::Ping]);
    two.close();
}

fn add(path: &str, mode: AddWatchMode) -> Request {
    Request::AddWatch(AddWatchRequest { path: path.into(), mode })
}

/// Sets persistent watches beside one-shot watches, and removes them.
pub(crate) fn persistent(stage: &Stage) {
    let (mut one, mut two) = (stage.connect(), stage.connect());
    two.ask_all([
        add("/p", AddWatchMode::PERSISTENT),
        add("/r", AddWatchMode::PERSISTENT_RECURSIVE),
        add("/p", AddWatchMode(7)),
    ]);
    for base in ["/p", "/r"] {
        let (child, grandchild) = (format!("{base}/c"), format!("{base}/c/d"));
        one.ask_all([
            create(base),
            set_data(base, "1", -1),
            set_data(base, "2", -1),
            create(&child),
            set_data(&child, "1", -1),
            create(&grandchild),
            delete(&grandchild, -1),
            delete(&child, -1),
            delete(base, -1),
            create(base),
        ]);
    }
    // One path has both kinds of persistent watches, and one-shot watches beside them.
    two.ask_all([
        get_data("/r", true),
        get_children("/r", true),
        exists("/r/x", true),
        add("/r", AddWatchMode::PERSISTENT),
    ]);
    one.ask_all([set_data("/r", "3", -1), create("/r/x"), set_data("/r/x", "4", -1)]);
    two.ask_all([
        check_watches("/p", WatcherType::ANY),
        check_watches("/p", WatcherType::DATA),
        check_watches("/p", WatcherType::CHILDREN),
        check_watches("/none", WatcherType::ANY),
        check_watches("/p", WatcherType(9)),
        remove_watches("/none", WatcherType::ANY),
        remove_watches("/p", WatcherType::DATA),
    ]);
    one.ask_all([set_data("/p", "5", -1), create("/p/y")]);
    two.ask_all([remove_watches("/p", WatcherType::ANY), remove_watches("/p", WatcherType::ANY)]);
    one.ask_all([set_data("/p", "6", -1), delete("/p/y", -1)]);
    two.ask_all([
        get_data("/p", true),
        get_children("/p", true),
        remove_watches("/p", WatcherType::CHILDREN),
        check_watches("/p", WatcherType::CHILDREN),
    ]);
    one.ask_all([create("/p/z"), set_data("/p", "7", -1)]);
    // The root is an ancestor of everything.
    two.ask_all([add("/", AddWatchMode::PERSISTENT_RECURSIVE)]);
    one.ask_all([create("/p/z/deep"), create_mode("/p/e", CreateMode::Ephemeral)]);
    one.close();
    two.close();
}

/// Restores watches: setWatches causes some events at once, and sets the other watches.
pub(crate) fn restored(stage: &Stage) {
    let (mut one, mut two) = (stage.connect(), stage.connect());
    for name in ["same", "changed", "deleted", "parent"] {
        one.ask(&create(&format!("/{name}")));
    }
    two.ask(&Request::Ping);
    let since = two.zxid;
    let paths = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<_>>();
    one.ask_all([
        set_data("/changed", "x", -1),
        delete("/deleted", -1),
        create("/created"),
        create("/parent/child"),
    ]);
    let mut two = stage.reconnect(two);
    two.ask(&Request::SetWatches(SetWatches {
        relative_zxid: since,
        data: paths(&["/same", "/changed", "/deleted"]),
        exist: paths(&["/none", "/created"]),
        child: paths(&["/same", "/parent", "/deleted"]),
    }));
    // The remaining watches fire now.
    one.ask_all([set_data("/same", "x", -1), create("/same/child"), create("/none")]);
    one.ask_all([set_data("/changed", "y", -1), create("/deleted"), delete("/created", -1)]);
    // The watches are restored with a zxid before all changes, and with a zxid after them.
    for relative_zxid in [Zxid(0), two.zxid, Zxid(i64::MAX)] {
        two = stage.reconnect(two);
        two.ask(&Request::SetWatches2(SetWatches2 {
            relative_zxid,
            data: paths(&["/same", "/gone"]),
            exist: paths(&["/gone", "/same"]),
            child: paths(&["/", "/parent"]),
            persistent: paths(&["/parent"]),
            persistent_recursive: paths(&["/same"]),
        }));
        one.ask_all([
            set_data("/same", "x", -1),
            create("/gone"),
            create("/parent/again"),
            create("/same/again"),
            delete("/gone", -1),
            delete("/parent/again", -1),
            delete("/same/again", -1),
        ]);
    }
    two.ask(&Request::SetWatches(SetWatches {
        relative_zxid: Zxid(0),
        data: vec![],
        exist: vec![],
        child: vec![],
    }));
    one.close();
    two.close();
}
