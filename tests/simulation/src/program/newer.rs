//! Operations that old servers do not know.

use zk_session::MultiRead;

use super::task::Task;
use super::values::TREE;

/// The names of these calls. Servers before 3.6 do not know them.
pub const NEWER: [&str; 3] = ["count_descendants", "get_ephemerals", "multi_read"];
/// The name of a call that servers before 3.7 do not know.
pub const NEWEST: &str = "who_am_i";

/// Asks several questions, one right after the other. A client that learns from each of them what its
/// server does not know loses as many connections.
pub(super) async fn ask(task: &mut Task) {
    let client = task.client.clone();
    let [count, ephemerals, read] = NEWER;
    task.call(count, TREE, None, client.count_descendants(TREE)).await;
    task.call(ephemerals, "/", None, client.get_ephemerals("/")).await;
    let reads = MultiRead::new().get_data(TREE).get_children("/");
    task.call(read, TREE, None, client.multi_read(reads)).await;
    // Those of 3.6 close the connection at this one, and the world would take that for a fault.
    if task.world.plan.closes_connections() || task.world.plan.knows_identities() {
        task.call(NEWEST, "the client", None, client.who_am_i()).await;
    }
}
