//! Operations that settle, on znodes that several tasks write, delete and create again.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Acl, AclInForce, Call, CreateMode, Multi, RecipeError, SettledClient, SettledError, Stat,
};
use zk_session::Permissions;

use super::task::{Called, Task};
use super::values::MARKERS;
use crate::history::{Told, What};

/// The parent of the znodes, which nothing but these calls writes.
pub const SETTLED: &str = "/settled";
/// The name of calls that write, for judges.
pub const WRITE: &str = "settle_write";
/// The name of calls that read, for judges.
pub const READ: &str = "settle_read";

/// How often a caller changes a list long after it has read it, in percent, and how much later.
const LATE_PERCENT: u64 = 40;
const LATE_MS_MAX: u64 = 5_000;
/// How many steps there are.
pub const STEPS: u64 = 12;
/// The step that creates the znode.
pub const CREATE: u64 = 0;

/// Does one thing.
pub async fn settle(task: &mut Task) {
    let Ok(settled) = SettledClient::new(&task.client, MARKERS) else {
        unreachable!("the path is valid")
    };
    let settling = Settling { settled, timeout: task.timeout() };
    let mut path = format!("{SETTLED}/{}", task.draw.between(1, 3));
    if task.world.plan.kinds.settled.is_some() {
        path = format!("{SETTLED}/1");
    }
    // A task that keeps its handle uses its markers again.
    for _ in 0..task.draw.between(1, 4) {
        if task.is_calm() || task.life.is_ending() {
            return;
        }
        settling.step(task, &path).await;
    }
}

struct Settling {
    settled: SettledClient,
    timeout: Option<Duration>,
}

impl Settling {
    async fn step(&self, task: &mut Task, path: &str) {
        let settled = &self.settled;
        let step = match task.world.plan.kinds.settled.clone() {
            Some(steps) => task.draw.pick(&steps),
            None => task.draw.between(0, STEPS - 1),
        };
        match step {
            CREATE | 1 => {
                let create = settled.create_with_parents(path, "new", CreateMode::Persistent);
                let created = self.write(task, path, create).await;
                tell(task, OpCode::CREATE, path, created, |it| it.stat.map(|stat| stat.czxid.0));
            }
            2 => self.create_own(task).await,
            3 => {
                let write = settled.set_data(path, "any", None);
                let written = self.write(task, path, write).await;
                tell(task, OpCode::SET_DATA, path, written, |it| it.map(|stat| stat.mzxid.0));
            }
            4 | 5 => {
                let Some(stat) = self.stat(task, path).await else { return };
                let write = settled.set_data(path, "version", Some(stat.version));
                let written = self.write(task, path, write).await;
                tell(task, OpCode::SET_DATA, path, written, |it| it.map(|stat| stat.mzxid.0));
            }
            6 => {
                let multi = Multi::new().check(path, None).set_data(path, "multi", None);
                let committed = self.write(task, path, settled.commit(multi)).await;
                tell(task, OpCode::SET_DATA, path, committed, |_| None);
            }
            7 => {
                let deleted = self.write(task, path, settled.delete(path, None)).await;
                tell(task, OpCode::DELETE, path, deleted, |()| None);
            }
            8 => {
                let Some(stat) = self.stat(task, path).await else { return };
                let delete = settled.delete(path, Some(stat.version));
                let deleted = self.write(task, path, delete).await;
                tell(task, OpCode::DELETE, path, deleted, |()| None);
            }
            9 => self.set_acl(task, path, None).await,
            10 => {
                let stat = self.stat(task, path).await;
                let mut aside = task.aside();
                if task.world.plan.has_aims && aside.chance(LATE_PERCENT) {
                    // Others delete the znode meanwhile, and create it again.
                    task.rest(aside.ms(0, LATE_MS_MAX)).await;
                }
                self.set_acl(task, path, stat).await;
            }
            _ => self.look(task, path).await,
        }
    }

    /// Creates a znode whose path no other call uses.
    async fn create_own(&self, task: &mut Task) {
        let mode = task.draw.pick(&[
            CreateMode::Ephemeral,
            CreateMode::EphemeralSequential,
            CreateMode::PersistentSequential,
        ]);
        let path = format!("{SETTLED}/own-{}-", task.id());
        let create = self.settled.create_with_parents(&path, "own", mode);
        let created = self.write(task, &path, create).await;
        tell(task, OpCode::CREATE, &path, created, |it| it.stat.map(|stat| stat.czxid.0));
    }

    /// Everybody is still permitted everything.
    async fn set_acl(&self, task: &mut Task, path: &str, expected: Option<Stat>) {
        let user = task.draw.pick(&["one:hash", "two:hash"]);
        let all = Permissions::ALL;
        let acl = vec![Acl::new(all, "world", "anyone"), Acl::new(all, "digest", user)];
        let set = self.write(task, path, self.settled.set_acl(path, acl, expected)).await;
        if let (Called::Done(AclInForce { stat, .. }), Some(expected)) = (&set, expected)
            && stat.czxid != expected.czxid
        {
            let (expected, found) = (expected.czxid.0, stat.czxid.0);
            task.push(What::OtherList { path: path.to_owned(), expected, found });
        }
        match set {
            // Another call may have set the list.
            Called::Done(AclInForce { is_certain: false, .. }) => {
                task.push(What::InForce { path: path.to_owned() });
                push(task, OpCode::SET_ACL, path, Told::Unknown, None);
            }
            set => tell(task, OpCode::SET_ACL, path, set, |_| None),
        }
    }

    async fn stat(&self, task: &mut Task, path: &str) -> Option<Stat> {
        self.read(task, path, self.settled.exists(path)).await.done().flatten()
    }

    /// Reads behind a barrier.
    async fn look(&self, task: &mut Task, path: &str) {
        let newest = self.settled.clone().behind_barrier();
        let from = task.zxid();
        let found = if task.draw.chance(50) {
            self.read(task, path, newest.exists(path)).await.done()
        } else {
            let read = newest.get_data(path);
            self.read(task, path, read).await.done().map(|(_, stat)| Some(stat))
        };
        if let Some(found) = found {
            let state = found.map(|stat| (stat.czxid.0, stat.mzxid.0));
            task.push(What::Looked { path: path.to_owned(), from, to: task.zxid(), state });
        }
    }

    async fn write<T>(
        &self,
        task: &mut Task,
        path: &str,
        call: Call<T, SettledError>,
    ) -> Called<T> {
        let call = if let Some(timeout) = self.timeout { call.timeout(timeout) } else { call };
        task.call(WRITE, path, self.timeout, call).await
    }

    async fn read<T>(&self, task: &mut Task, path: &str, call: Call<T, RecipeError>) -> Called<T> {
        let call = if let Some(timeout) = self.timeout { call.timeout(timeout) } else { call };
        task.call(READ, path, self.timeout, call).await
    }
}

/// Records how a write has ended, and by which transaction it was applied, if its caller knows that.
fn tell<T>(
    task: &Task,
    op: OpCode,
    path: &str,
    called: Called<T>,
    zxid: impl FnOnce(T) -> Option<i64>,
) {
    let told = called.told();
    push(task, op, path, told, called.done().and_then(zxid));
}

fn push(task: &Task, op: OpCode, path: &str, told: Told, zxid: Option<i64>) {
    task.push(What::Settled { op, path: path.to_owned(), told, zxid });
}
