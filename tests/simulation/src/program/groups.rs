//! Members of a group, presences beside them, and watches that follow them until the end of the run.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use zk_recipes::{Group, GroupChange, Presence, PresenceState, Released};

use super::streams;
use super::task::{Called, Task};
use crate::history::{Gathered, Id, What};
use crate::judges::patience::PRESENT;
use crate::world::trouble::{States, ViewOf};

/// The directory of the group.
pub const GROUP: &str = "/group";

/// What a watch has reported last: the czxid and the data of each member.
type Shown = BTreeMap<String, (i64, String)>;

/// Joins the group, stays for a while, and leaves.
pub(super) async fn join(task: &mut Task) {
    let id = task.draw.pick(&["a", "b", "c", "d"]);
    let limit = task.timeout();
    // Whoever waits for another member needs a timeout: it may stay until the end.
    let waits = limit.is_some() && task.draw.chance(30);
    let built = Group::builder(&task.client, GROUP).and_then(|group| {
        let group = if waits { group.wait_if_taken() } else { group };
        match limit {
            Some(limit) => group.timeout(limit).build(),
            None => group.build(),
        }
    });
    let Ok(group) = built else { unreachable!("the options are valid") };
    if task.draw.chance(20) {
        task.call("members", GROUP, limit, group.members()).await;
        return;
    }
    let number = task.id();
    let data = number.to_string();
    task.push(What::Said { id: id.to_owned(), data: data.clone() });
    // A draw would change what all seeds mean that were drawn before.
    if number.is_multiple_of(3) {
        be_present(task, id, data, limit).await;
        return;
    }
    let joining = group.join(id, data);
    let Some(membership) = task.call("join", id, limit, joining).await.done() else { return };
    task.hold().await;
    if task.draw.chance(40) {
        let data = task.id().to_string();
        task.push(What::Said { id: id.to_owned(), data: data.clone() });
        task.call("set_member", id, limit, membership.set_data(data)).await;
        task.hold().await;
    }
    if task.draw.chance(80) {
        task.call("leave_group", id, limit, membership.leave()).await;
    } else {
        drop(membership);
    }
}

/// Is present at the path of a member, which looks like a member to everyone else.
async fn be_present(task: &mut Task, id: &str, data: String, limit: Option<Duration>) {
    let path = format!("{GROUP}/{id}");
    let built = Presence::builder(&task.client, &path);
    let Ok(mut builder) = built else { unreachable!("the path is valid") };
    if let Some(limit) = limit {
        // A begin that keeps trying needs a timeout: another member may stay until the end.
        builder = builder.keep_trying().timeout(limit);
    } else if task.world.plan.aims.takes_contenders && task.aside().chance(50) {
        // Without a limit, only a test of the znode in the way tells it that this one is gone.
        builder = builder.keep_trying();
    }
    let beginning = builder.begin(data);
    let Some(presence) = task.call("begin", &path, limit, beginning).await.done() else { return };
    let standing = task.id();
    tell_presence(task, standing, &path, &presence);
    let (client, life) = (task.who.client, task.life.clone());
    // A presence pauses if it is deleted again and again.
    if task.is_calm() || !task.world.plan.aims.touches_groups {
        task.world.trouble.begin(standing, PRESENT, &path, client, life);
    }
    task.hold().await;
    task.world.trouble.end(standing);
    tell_presence(task, standing, &path, &presence);
    if task.draw.chance(40) {
        let data = task.id().to_string();
        task.push(What::Said { id: id.to_owned(), data: data.clone() });
        let writing = presence.set_data(data);
        task.call("set_presence", &path, limit, writing).await;
        tell_presence(task, standing, &path, &presence);
    }
    let PresenceState::Present { czxid, .. } = presence.state() else { return };
    if !task.draw.chance(80) {
        return;
    }
    let closed = task.call("close_presence", &path, limit, presence.close()).await.done();
    if let Some(Released::Released | Released::AlreadyGone) = closed {
        task.push(What::Gone { path, czxid: czxid.0, at: task.zxid() });
    }
}

/// Records what a presence says of itself.
fn tell_presence(task: &Task, number: Id, path: &str, presence: &Presence) {
    if let PresenceState::Present { session, czxid, .. } = presence.state() {
        let (path, czxid) = (path.to_owned(), czxid.0);
        task.push(What::Stands { presence: number, path, session, czxid });
    }
}

/// Follows the group, records what the watch reports, and in the end all of it. Returns whether the
/// watch has ended before.
pub(super) async fn follow<F: Future<Output = ()>>(
    task: &mut Task,
    finished: &mut Pin<&mut F>,
) -> bool {
    let watches_data = task.draw.chance(70);
    let built = Group::builder(&task.client, GROUP)
        .and_then(|group| group.watch_data(watches_data).build());
    let Ok(group) = built else { unreachable!("the options are valid") };
    let (watch, mut changes) = (task.id(), group.watch());
    let is_polled = streams::is_polled(task);
    let of = ViewOf::Group(watches_data);
    let shows = task.world.trouble.view(watch, of, task.who.client, &task.life);
    let mut shown = Shown::new();
    loop {
        let change = tokio::select! {
            biased;
            () = &mut *finished => break,
            () = task.life.abandoned() => return true,
            change = async {
                if is_polled { streams::next(&mut changes).await } else { changes.next().await }
            } => change,
        };
        match change {
            Ok(change) => {
                report(task, watch, &mut shown, change);
                shows.replace(states(&shown, watches_data));
            }
            Err(error) => {
                let called = task.call_to_end("next", GROUP, async { Err::<(), _>(error) }).await;
                // After a refusal, the watch goes on.
                if !matches!(called, Called::Failed(crate::history::Failure::Refused(_), _)) {
                    if is_polled {
                        streams::poll_after(task, "next", &called, &mut changes);
                    } else if task.life.has_expired() {
                        // It has ended, and says so again.
                        task.call_to_end("next", GROUP, changes.next()).await;
                    }
                    return true;
                }
            }
        }
    }
    let plan = &task.world.plan;
    let settled = plan.unapplied_max() + 4 * plan.round_trip_max() + plan.tick;
    while let Ok(Ok(change)) = tokio::time::timeout(settled, changes.next()).await {
        report(task, watch, &mut shown, change);
    }
    let real = task.world.server.children(GROUP).unwrap_or_default();
    let real = real.into_iter().filter_map(|id| {
        let path = format!("{GROUP}/{id}");
        let (stat, data) = (task.world.server.stat(&path)?, task.world.server.data(&path)?);
        Some((id, stat.czxid.0, watches_data.then(|| text(&data))))
    });
    let mut real: Vec<Gathered> = real.collect();
    real.sort();
    let shown = shown.into_iter();
    let shown = shown.map(|(id, (czxid, data))| (id, czxid, watches_data.then_some(data)));
    task.push(What::Gathered { watch, shown: shown.collect(), real });
    false
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

fn states(shown: &Shown, has_data: bool) -> States {
    let members = shown.iter();
    let members = members.map(|(id, (czxid, data))| {
        let data = if has_data { data.as_str() } else { "" };
        (id.clone(), format!("{czxid:#x} {data}"))
    });
    members.collect()
}

fn report(task: &Task, watch: Id, shown: &mut Shown, change: GroupChange) {
    let (member, is_joined, is_left) = match change {
        GroupChange::Joined(member) => (member, true, false),
        GroupChange::Changed(member) => (member, false, false),
        GroupChange::Left(member) => (member, false, true),
        _ => return,
    };
    let (id, czxid, data) = (member.id, member.czxid.0, text(&member.data));
    if is_left {
        shown.remove(&id);
    } else {
        shown.insert(id.clone(), (czxid, data.clone()));
    }
    task.push(What::Reported { watch, id, czxid, data, is_joined, is_left });
}
