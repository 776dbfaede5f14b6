//! Callers that follow something until the end of the run: the leader of an election, and a value.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use zk_recipes::{
    Election, RecipeError, SettledClient, SharedValue, Stat, ValueChanges, Versioned, ZnodeChanges,
};

use super::streams;
use super::task::{Called, Task};
use super::values::{MARKERS, VALUE};
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
    let is_polled = streams::is_polled(task);
    let shows = task.world.trouble.view(view, ViewOf::Leader, task.who.client, &task.life);
    loop {
        let leader = tokio::select! {
            biased;
            () = &mut *finished => return false,
            () = task.life.abandoned() => return true,
            leader = async {
                if is_polled { streams::next(&mut leaders).await } else { leaders.next().await }
            } => leader,
        };
        match leader {
            Ok(leader) => {
                let leader = leader.map(|leader| (leader.path, leader.fencing_token.get()));
                shows.set(leader_text(leader.as_ref().map(|(path, _)| path.as_str())));
                task.push(What::Leads { view, leader });
            }
            Err(error) => {
                let called = task.call_to_end("observe", ELECTION, async { Err::<(), _>(error) });
                let called = called.await;
                if has_ended(&called) {
                    if is_polled {
                        streams::poll_after(task, "observe", &called, &mut leaders);
                    } else if task.life.has_expired() {
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
    let mut changes = Changes::of(task);
    let is_polled = streams::is_polled(task);
    let view = task.id();
    let shows = task.world.trouble.view(view, ViewOf::Value, task.who.client, &task.life);
    loop {
        let change = tokio::select! {
            biased;
            () = &mut *finished => return false,
            () = task.life.abandoned() => return true,
            change = async {
                if is_polled { streams::next(&mut changes).await } else { changes.next().await }
            } => change,
        };
        match change {
            Ok(state) => {
                shows.set(value_text(state));
                task.push(What::Valued { view, state });
            }
            Err(error) => {
                let called = task.call_to_end("changes", VALUE, async { Err::<(), _>(error) });
                let called = called.await;
                if has_ended(&called) {
                    if is_polled {
                        streams::poll_after(task, "changes", &called, &mut changes);
                    } else if task.life.has_expired() {
                        // It has ended, and says so again.
                        task.call_to_end("changes", VALUE, changes.next()).await;
                    }
                    return true;
                }
            }
        }
    }
}

/// What follows the value: the recipe, or the changes of any znode.
enum Changes {
    Value(ValueChanges),
    Znode(ZnodeChanges),
}

impl Changes {
    fn of(task: &Task) -> Self {
        if task.aside().chance(50) {
            let settled = SettledClient::new(&task.client, MARKERS);
            let changes = settled.and_then(|settled| settled.changes(VALUE));
            return changes.map_or_else(|_| unreachable!("the paths are valid"), Self::Znode);
        }
        let value = SharedValue::new(&task.client, VALUE);
        value.map_or_else(|_| unreachable!("the path is valid"), |it| Self::Value(it.changes()))
    }

    /// Returns the czxid and the version of the next state.
    async fn next(&mut self) -> Result<State, RecipeError> {
        Ok(match self {
            Self::Value(changes) => of_value(changes.next().await?),
            Self::Znode(changes) => of_znode(changes.next().await?),
        })
    }
}

/// The czxid and the version of a znode that exists.
type State = Option<(i64, i32)>;

fn of_value(value: Option<Versioned>) -> State {
    value.map(|value| (value.czxid().0, value.version().0))
}

fn of_znode<T>(znode: Option<(T, Stat)>) -> State {
    znode.map(|(_, stat)| (stat.czxid.0, stat.version.0))
}

impl Stream for Changes {
    type Item = Result<State, RecipeError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.get_mut() {
            Self::Value(changes) => {
                Pin::new(changes).poll_next(cx).map(|item| item.map(|it| it.map(of_value)))
            }
            Self::Znode(changes) => {
                Pin::new(changes).poll_next(cx).map(|item| item.map(|it| it.map(of_znode)))
            }
        }
    }
}

/// After a refusal, a stream goes on.
fn has_ended(called: &Called<()>) -> bool {
    !matches!(called, Called::Failed(Failure::Refused(_), _))
}
