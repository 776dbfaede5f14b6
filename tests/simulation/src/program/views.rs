//! Callers that follow something until the end of the run: the leader of an election, and a value.

use std::future::Future;
use std::pin::Pin;

use zk_recipes::{Election, SharedValue};

use super::task::{Called, Task};
use super::values::VALUE;
use crate::history::{Failure, What};
use crate::world::trouble::{ViewOf, leader_text, value_text};

/// The directory of the election.
pub const ELECTION: &str = "/election";

/// Follows who leads. Returns whether the stream has ended before the run.
pub(super) async fn observe<F: Future<Output = ()>>(
    task: &mut Task,
    finished: &mut Pin<&mut F>,
) -> bool {
    let Ok(election) = Election::new(&task.client, ELECTION) else {
        unreachable!("the path is valid")
    };
    let (view, mut leaders) = (task.id(), election.observe());
    let shows = task.world.trouble.view(view, ViewOf::Leader, task.who.client, &task.life);
    loop {
        let leader = tokio::select! {
            biased;
            () = &mut *finished => return false,
            () = task.life.abandoned() => return true,
            leader = leaders.next() => leader,
        };
        match leader {
            Ok(leader) => {
                let leader = leader.map(|leader| (leader.path, leader.fencing_token.get()));
                shows.set(leader_text(leader.as_ref().map(|(path, _)| path.as_str())));
                task.push(What::Leads { view, leader });
            }
            Err(error) => {
                let called = task.call_to_end("observe", ELECTION, async { Err::<(), _>(error) });
                if has_ended(&called.await) {
                    if task.life.has_expired() {
                        // It has ended, and says so again.
                        task.call_to_end("observe", ELECTION, leaders.next()).await;
                    }
                    return true;
                }
            }
        }
    }
}

/// Follows the shared value. Returns whether the stream has ended before the run.
pub(super) async fn follow_value<F: Future<Output = ()>>(
    task: &mut Task,
    finished: &mut Pin<&mut F>,
) -> bool {
    let Ok(value) = SharedValue::new(&task.client, VALUE) else {
        unreachable!("the path is valid")
    };
    let (view, mut changes) = (task.id(), value.changes());
    let shows = task.world.trouble.view(view, ViewOf::Value, task.who.client, &task.life);
    loop {
        let change = tokio::select! {
            biased;
            () = &mut *finished => return false,
            () = task.life.abandoned() => return true,
            change = changes.next() => change,
        };
        match change {
            Ok(value) => {
                let state = value.map(|value| (value.czxid().0, value.version().0));
                shows.set(value_text(state));
                task.push(What::Valued { view, state });
            }
            Err(error) => {
                let called = task.call_to_end("changes", VALUE, async { Err::<(), _>(error) });
                if has_ended(&called.await) {
                    if task.life.has_expired() {
                        // It has ended, and says so again.
                        task.call_to_end("changes", VALUE, changes.next()).await;
                    }
                    return true;
                }
            }
        }
    }
}

/// After a refusal, a stream goes on.
fn has_ended(called: &Called<()>) -> bool {
    !matches!(called, Called::Failed(Failure::Refused(_), _))
}
