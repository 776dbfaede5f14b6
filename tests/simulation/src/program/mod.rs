//! The program of a run: clients and tasks that use the recipes, drawn from the seed.

pub mod aims;
pub mod barriers;
pub mod bulk;
pub mod caches;
pub mod ends;
pub mod focus;
pub mod groups;
mod guards;
pub mod hosts;
pub mod identities;
pub mod locks;
mod named;
pub mod newer;
mod pace;
pub mod queue;
pub mod settled;
mod streams;
pub mod task;
pub mod trees;
mod unasked;
pub mod values;
pub mod views;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::ends::Ends;
use self::hosts::Moves;
use self::locks::{LOCK_KINDS, LockKind};
use self::task::Task;
use crate::draw::Draw;
use crate::history::Who;
use crate::world::World;
use crate::world::plan::{FaultKind, Plan};

/// How many seeds have programs with the recipes that were added last, in percent.
const MORE_PERCENT: u64 = 40;
/// Chosen so that these recipes did not change the programs of the seeds that were in
/// `tests/corpus.txt` when they were added.
const SALT: u64 = 44;

/// How many seeds have programs of the newest kind, in percent.
const NEWEST_PERCENT: u64 = 30;
/// Chosen like `SALT`, when these programs were added.
const NEWEST_SALT: u64 = 191;

/// How many seeds have programs with operations that settle, in percent.
const SETTLED_PERCENT: u64 = 20;
/// Chosen like `SALT`, when these operations were added.
const SETTLED_SALT: u64 = 682;

/// Chosen once, so that the jobs of clients that may not read are unrelated to who may.
const SECRET_SALT: u64 = 0x5ec4;

/// How many seeds have clients that end while others go on, in percent.
const ENDS_PERCENT: u64 = 25;
/// How many seeds have clients that are given other lists of servers, in percent.
const MOVES_PERCENT: u64 = 20;

/// The most tasks of a client.
pub const TASKS_MAX: usize = 4;

/// How often a follower looks for another client after its own has ended.
const RENEW_INTERVAL: Duration = Duration::from_millis(100);

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
    /// Uses what the guards of locks can do.
    Guard,
    /// Closes, opens and passes the barrier.
    Barrier,
    /// Meets others at the double barrier.
    Meeting,
    /// Is a member of the group for a while.
    Member,
    /// Follows the group.
    Group,
    /// Creates paths with their ancestors, and deletes subtrees.
    Forest,
    /// Takes permits of a semaphore whose number of permits changes, and changes it.
    Permits,
    /// Follows who leads.
    Observe,
    /// Runs bodies that stop while their lock is at risk.
    Body,
    /// Puts and takes with all options of the queue, and hangs.
    Options,
    /// Follows the shared value.
    Changes,
    /// Uses operations that settle.
    Settle,
    /// Turns write locks into read locks.
    Downgrade,
    /// Takes several permits of a semaphore that has many.
    Crowd,
    /// Hands over several creates at once.
    Pipe,
    /// Reads much data at once.
    Bulk,
}

impl Job {
    /// Returns whether this job belongs to the programs that take the place of all others.
    pub fn is_newest(&self) -> bool {
        matches!(
            self,
            Self::Forest
                | Self::Permits
                | Self::Observe
                | Self::Changes
                | Self::Body
                | Self::Options
        )
    }

    /// Returns whether a task with this job follows something until the end of the run.
    fn follows(&self) -> bool {
        matches!(self, Self::Cache | Self::Group | Self::Observe | Self::Changes)
    }
}

/// The tasks of a run, which have not started.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Program {
    /// The jobs of each task, by client. A task without jobs is left out.
    pub clients: Vec<Vec<Vec<Job>>>,
    /// How many steps each task has at most.
    pub steps: u64,
    /// How often calls are dropped, in percent.
    pub drops: u64,
    /// The calls that would be dropped are awaited instead.
    pub drops_nothing: bool,
    /// How clients end while others go on, if they do.
    pub ends: Option<Ends>,
    /// How the lists of servers of clients change, if they do.
    pub moves: Option<Moves>,
    /// Whoever has something often keeps it for long.
    pub is_patient: bool,
    /// Nothing goes wrong.
    pub is_quiet: bool,
}

impl Program {
    /// Draws a program. Each seed leaves out a random part of the recipes.
    pub fn draw(draw: &mut Draw) -> Self {
        let jobs = Self::draw_jobs(draw);
        let mut clients: Vec<Vec<Vec<Job>>> = (0..draw.size(1, 4))
            .map(|_| {
                (0..draw.size(1, TASKS_MAX))
                    .map(|_| (0..draw.size(1, 3)).map(|_| draw.pick(&jobs)).collect())
                    .collect()
            })
            .collect();
        let (steps, drops) = (draw.between(2, 30), draw.pick(&[0, 0, 5, 20]));
        // Drawn last, so that the seeds without these recipes still mean the same worlds.
        let mut draw = Draw::new(draw.seed() ^ SALT);
        if draw.chance(MORE_PERCENT) {
            let jobs = Self::draw_more_jobs(&mut draw);
            for task in clients.iter_mut().flatten() {
                if draw.chance(70) {
                    *task = (0..draw.size(1, 3)).map(|_| draw.pick(&jobs)).collect();
                }
            }
        }
        let mut draw = Draw::new(draw.seed());
        let ends = draw.chance(ENDS_PERCENT).then(|| Ends::draw(&mut draw));
        let mut draw = Draw::new(draw.seed());
        let moves = draw.chance(MOVES_PERCENT).then(|| Moves::draw(&mut draw));
        let mut draw = Draw::new(draw.seed() ^ NEWEST_SALT);
        let (mut is_patient, mut is_quiet) = (false, false);
        if draw.chance(NEWEST_PERCENT) {
            let jobs = Self::draw_newest_jobs(&mut draw);
            is_patient = jobs != [Job::Forest] && draw.chance(70);
            is_quiet = draw.chance(if is_patient { 60 } else { 15 });
            for task in clients.iter_mut().flatten() {
                if draw.chance(80) {
                    *task = (0..draw.size(1, 3)).map(|_| draw.pick(&jobs)).collect();
                }
            }
        }
        let drops_nothing = false;
        Self { clients, steps, drops, drops_nothing, ends, moves, is_patient, is_quiet }
    }

    /// Gives many tasks of some programs operations that settle. The draws are those of the whole run,
    /// and others go on with them.
    pub fn settle(&mut self, draws: &Draw) {
        let mut draw = Draw::new(draws.clone().seed() ^ SETTLED_SALT);
        if !draw.chance(SETTLED_PERCENT) {
            return;
        }
        for task in self.clients.iter_mut().flatten() {
            match draw.between(0, 3) {
                0 => {}
                1 => task.push(Job::Settle),
                _ => *task = vec![Job::Settle],
            }
        }
    }

    /// Leaves out what needs containers, which a Keeper lacks, and the configuration of the ensemble.
    pub fn avoid_what_keepers_lack(&mut self) {
        for job in self.clients.iter_mut().flatten().flatten() {
            if *job == Job::Lock(LockKind::Named) {
                *job = Job::Lock(LockKind::Fair);
            }
        }
        self.moves = None;
    }

    /// Gives all tasks jobs that those also have who may not read.
    pub fn look_at_secrets(&mut self, seed: u64) {
        let mut draw = Draw::new(seed ^ SECRET_SALT);
        let kinds = [LockKind::Fair, LockKind::Exclusive, LockKind::ReadWrite, LockKind::Election];
        let jobs = match draw.between(0, 3) {
            0 => vec![Job::Barrier],
            1 => vec![Job::Tree, Job::Tree, Job::Cache],
            _ => vec![Job::Lock(draw.pick(&kinds))],
        };
        self.is_patient = !jobs.contains(&Job::Tree) && draw.chance(70);
        self.is_quiet = draw.chance(40);
        // There must be somebody to wait for.
        while self.clients.len() < 3 {
            self.clients.push(vec![Vec::new()]);
        }
        for task in self.clients.iter_mut().flatten() {
            *task = vec![draw.pick(&jobs)];
        }
    }

    /// Draws the jobs that take the place of all others, even of those that were added before them.
    fn draw_newest_jobs(draw: &mut Draw) -> Vec<Job> {
        match draw.between(0, 13) {
            0 | 1 => vec![Job::Forest],
            2 => vec![Job::Lock(draw.pick(&LOCK_KINDS))],
            3 | 4 => vec![Job::Lock(LockKind::Semaphore)],
            5 => vec![Job::Barrier],
            6 | 7 => vec![Job::Permits],
            8 => vec![Job::Lock(LockKind::Election), Job::Observe],
            9 | 10 => vec![Job::Body],
            11 | 12 => vec![Job::Options],
            _ => vec![Job::Value, Job::Changes],
        }
    }

    /// Draws the jobs that take the place of others in some worlds.
    fn draw_more_jobs(draw: &mut Draw) -> Vec<Job> {
        let mut jobs = Vec::new();
        for _ in 0..draw.size(1, 2) {
            match draw.between(0, 4) {
                0 | 1 => jobs.push(Job::Guard),
                2 => jobs.push(Job::Barrier),
                3 => jobs.push(Job::Meeting),
                _ => jobs.extend([Job::Member, Job::Member, Job::Group]),
            }
        }
        jobs
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

    /// Returns whether a run waits in the end until the caches have checked all znodes once. Only then
    /// they know what servers have not told them, because permissions were missing.
    pub fn waits_for_checks(&self, plan: &Plan) -> bool {
        self.has(Job::Cache) && plan.has_aims && plan.faults.contains(&FaultKind::Permission)
    }

    /// Gives all tasks some of these jobs. There are two clients at least, and somebody has the first
    /// job, and somebody the last one.
    pub fn only(&mut self, jobs: &[Job], draw: &mut Draw) {
        while self.clients.len() < 2 {
            self.clients.push(vec![Vec::new()]);
        }
        let (mut first, last) = (jobs.first().copied(), jobs.last().copied());
        for task in self.clients.iter_mut().flatten() {
            *task = vec![first.take().unwrap_or_else(|| draw.pick(jobs))];
        }
        let task = self.clients.last_mut().and_then(|tasks| tasks.last_mut());
        if let (Some(task), Some(last)) = (task, last) {
            *task = vec![last];
        }
        self.is_quiet = false;
    }

    /// Returns the directories in which the first contender may have to wait for something else: a
    /// multi-lock has one of its locks while it waits for the other.
    pub fn shared_directories(&self) -> Vec<&'static str> {
        let is_multi = |job: &Job| *job == Job::Lock(LockKind::Multi);
        let has_multi = self.clients.iter().flatten().flatten().any(is_multi);
        if has_multi { vec!["/locks/a", "/locks/b"] } else { Vec::new() }
    }

    /// Returns the jobs of the tasks that are not left out.
    pub fn tasks(&self) -> impl Iterator<Item = &[Job]> {
        self.clients.iter().flatten().filter(|jobs| !jobs.is_empty()).map(Vec::as_slice)
    }

    /// Returns whether some task has this job.
    pub fn has(&self, job: Job) -> bool {
        self.clients.iter().flatten().flatten().any(|other| *other == job)
    }

    /// Returns whether the client of this number has a task.
    pub fn uses(&self, client: usize) -> bool {
        self.clients.get(client).is_some_and(|tasks| tasks.iter().any(|jobs| !jobs.is_empty()))
    }

    /// Starts all tasks.
    pub fn start(&self, world: &Arc<World>, draw: &mut Draw) -> Tasks {
        let mut tasks = Tasks::default();
        for (number, jobs) in self.clients.iter().enumerate() {
            for (index, jobs) in jobs.iter().enumerate() {
                // Also the draws of tasks that are left out, so that the others stay the same.
                let draw = draw.fork();
                let working = world.clients.get(number);
                let Some((client, life)) = working.filter(|_| !jobs.is_empty()) else { continue };
                let who = Who { client: number, task: index };
                let world = Arc::clone(world);
                let (drops, drops_nothing) = (self.drops, self.drops_nothing);
                let is_patient = self.is_patient;
                let mut task =
                    Task { world, client, life, who, draw, drops, drops_nothing, is_patient };
                let (jobs, steps) = (jobs.clone(), self.steps);
                if let Some(job) = jobs.iter().copied().find(Job::follows) {
                    let (finish, finished) = oneshot::channel();
                    tasks.finish.push(finish);
                    tasks.followers.spawn_local(async move {
                        // An error means that the run has ended.
                        let finished = async { finished.await.unwrap_or_default() };
                        let world = Arc::clone(&task.world);
                        let caller = follow(&mut task, finished, job);
                        world.run_caller(number, caller).await;
                    });
                } else {
                    tasks.workers.spawn_local(async move {
                        let world = Arc::clone(&task.world);
                        world.run_caller(number, work(&mut task, &jobs, steps)).await;
                    });
                }
            }
        }
        let (ending, moving) = (draw.fork(), draw.fork());
        if let Some(ends) = self.ends.clone() {
            // Who ends a client has a number of its own.
            let numbers = self.clients.iter().map(Vec::len).collect();
            tasks.ending.spawn_local(ends.happen(Arc::clone(world), numbers, ending));
        }
        if let Some(moves) = self.moves {
            tasks.ending.spawn_local(moves.happen(Arc::clone(world), moving));
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
    /// What ends clients and changes their lists of servers, until the faults have stopped.
    pub ending: JoinSet<()>,
    /// Those that end when they are told to.
    pub followers: JoinSet<()>,
    /// Tells each of them to end.
    pub finish: Vec<oneshot::Sender<()>>,
}

/// Follows something with one client after the other, until the end of the run.
async fn follow(task: &mut Task, finished: impl Future<Output = ()>, job: Job) {
    let mut finished = pin!(finished);
    loop {
        let has_failed = match job {
            Job::Observe => views::observe(task, &mut finished).await,
            Job::Changes => views::follow_value(task, &mut finished).await,
            Job::Group => groups::follow(task, &mut finished).await,
            _ => caches::follow(task, &mut finished).await,
        };
        if !has_failed || !task.life.is_ending() {
            return;
        }
        while !task.renew() {
            tokio::select! {
                biased;
                () = &mut finished => return,
                () = task.world.sleep(RENEW_INTERVAL) => {}
            }
        }
    }
}

async fn work(task: &mut Task, jobs: &[Job], steps: u64) {
    for _ in 0..steps {
        task.idle().await;
        task.renew();
        if task.is_calm() {
            return;
        }
        identities::change(task).await;
        match task.draw.pick(jobs) {
            Job::Lock(kind) => locks::use_lock(task, kind).await,
            Job::Put => queue::put(task).await,
            Job::Take => queue::take(task).await,
            Job::Add => values::add(task).await,
            Job::Value => values::share(task).await,
            Job::Create => values::create(task).await,
            Job::Tree => values::change_tree(task).await,
            Job::Guard => guards::use_guard(task).await,
            Job::Barrier => barriers::pass(task).await,
            Job::Meeting => barriers::meet(task).await,
            Job::Member => groups::join(task).await,
            Job::Forest => trees::use_tree(task).await,
            Job::Body => guards::run_body(task).await,
            Job::Options => queue::use_options(task).await,
            Job::Permits => locks::use_permits(task).await,
            Job::Settle => settled::settle(task).await,
            Job::Downgrade => guards::downgrade(task).await,
            Job::Crowd => locks::crowd(task).await,
            Job::Pipe => values::pipe(task).await,
            Job::Bulk => bulk::read(task).await,
            Job::Cache | Job::Group | Job::Observe | Job::Changes => {
                unreachable!("followers have this job")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the program of a seed, as a run draws it.
    fn program(seed: u64) -> Program {
        let mut draw = Draw::new(seed);
        draw.fork();
        Program::draw(&mut draw.fork())
    }

    fn has_more(program: &Program) -> bool {
        let more = [Job::Guard, Job::Barrier, Job::Meeting, Job::Member, Job::Group];
        program.clients.iter().flatten().flatten().any(|job| more.contains(job))
    }

    #[test]
    fn a_third_of_all_seeds_have_the_recipes_that_were_added_last() {
        let count = (1..=1_000).filter(|seed| has_more(&program(*seed))).count();
        assert!((200..=400).contains(&count), "{count} of 1,000");
        let has_newest =
            |program: &Program| program.clients.iter().flatten().flatten().any(Job::is_newest);
        let count = (1..=1_000).filter(|seed| has_newest(&program(*seed))).count();
        assert!((120..=300).contains(&count), "{count} of 1,000");
    }
}
