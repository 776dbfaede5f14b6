//! The program of a run: clients and tasks that use the recipes, drawn from the seed.

mod caches;
mod locks;
mod named;
pub mod queue;
pub mod task;
pub mod values;

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use zk_recipes::Client;

use self::locks::{LOCK_KINDS, LockKind};
use self::task::Task;
use crate::draw::Draw;
use crate::history::Who;
use crate::world::World;

/// What a task does again and again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "each job is run")]
pub enum Job {
    /// Takes a lock.
    Lock(LockKind),
    /// Puts items into the queue.
    Put,
    /// Takes items from the queue.
    Take,
    /// Adds to the counter.
    Add,
    /// Uses the shared value.
    Value,
    /// Creates znodes.
    Create,
    /// Changes the tree that caches follow.
    Tree,
    /// Follows the tree with a cache.
    Cache,
}

/// The tasks of a run, which have not started.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Program {
    /// The jobs of each task, by client.
    pub clients: Vec<Vec<Vec<Job>>>,
    /// How many steps each task has at most.
    pub steps: u64,
    /// How often calls are dropped, in percent.
    pub drops: u64,
}

impl Program {
    /// Draws a program. Each seed leaves out a random part of the recipes.
    pub fn draw(draw: &mut Draw) -> Self {
        let jobs = Self::draw_jobs(draw);
        let clients = (0..draw.size(1, 4))
            .map(|_| {
                (0..draw.size(1, 4))
                    .map(|_| (0..draw.size(1, 3)).map(|_| draw.pick(&jobs)).collect())
                    .collect()
            })
            .collect();
        Self { clients, steps: draw.between(2, 30), drops: draw.pick(&[0, 0, 5, 20]) }
    }

    /// Draws the jobs of which the tasks do some: a few recipes, each with all of its users.
    fn draw_jobs(draw: &mut Draw) -> Vec<Job> {
        let mut jobs = Vec::new();
        for _ in 0..draw.size(1, 3) {
            match draw.between(0, 6) {
                0..=2 => jobs.push(Job::Lock(draw.pick(&LOCK_KINDS))),
                3 => jobs.extend([Job::Put, Job::Take, Job::Take]),
                4 => jobs.extend([Job::Tree, Job::Tree, Job::Cache]),
                5 => jobs.push(Job::Add),
                _ => jobs.push(draw.pick(&[Job::Create, Job::Value])),
            }
        }
        jobs
    }

    /// Starts all tasks.
    pub fn start(&self, world: &Arc<World>, clients: &[Client], draw: &mut Draw) -> Tasks {
        let mut tasks = Tasks::default();
        for (number, (client, jobs)) in clients.iter().zip(&self.clients).enumerate() {
            for (index, jobs) in jobs.iter().enumerate() {
                let who = Who { client: number, task: index };
                let (world, client) = (Arc::clone(world), client.clone());
                let mut task = Task { world, client, who, draw: draw.fork(), drops: self.drops };
                let (jobs, steps) = (jobs.clone(), self.steps);
                if jobs.contains(&Job::Cache) {
                    let (finish, finished) = oneshot::channel();
                    tasks.finish.push(finish);
                    tasks.followers.spawn_local(async move {
                        // An error means that the run has ended.
                        let finished = async { finished.await.unwrap_or_default() };
                        caches::follow(&mut task, finished).await;
                    });
                } else {
                    tasks.workers.spawn_local(async move { work(&mut task, &jobs, steps).await });
                }
            }
        }
        tasks
    }
}

/// The tasks of a run.
#[derive(Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "a run uses its parts")]
pub struct Tasks {
    /// Those that end after their steps, or once the faults have stopped.
    pub workers: JoinSet<()>,
    /// Those that end when they are told to.
    pub followers: JoinSet<()>,
    /// Tells each of them to end.
    pub finish: Vec<oneshot::Sender<()>>,
}

async fn work(task: &mut Task, jobs: &[Job], steps: u64) {
    for _ in 0..steps {
        task.idle().await;
        if task.is_calm() {
            return;
        }
        match task.draw.pick(jobs) {
            Job::Lock(kind) => locks::use_lock(task, kind).await,
            Job::Put => queue::put(task).await,
            Job::Take => queue::take(task).await,
            Job::Add => values::add(task).await,
            Job::Value => values::share(task).await,
            Job::Create => values::create(task).await,
            Job::Tree => values::change_tree(task).await,
            Job::Cache => unreachable!("followers have this job"),
        }
    }
}
