//! Every order in which readers and writers can join, downgrade and leave. After each step, exactly
//! the contenders that may hold the lock hold it.

#![expect(clippy::indexing_slicing, reason = "contenders are known by their index")]

use zk_recipes::{Client, LockState};

use crate::access::Access::{self, Read, Write};
use crate::access::{Holding, Waiter, check_waits, granted, join};
use crate::case::Writer;
use crate::scene::create_directory;
use crate::world::{World, run, sleep_ms};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A contender joins the queue. Contenders join in the order of their numbers.
    Come(usize),
    /// A writer that holds the lock becomes a reader.
    GiveWay(usize),
    /// A contender leaves: it releases the lock if it holds the lock, and gives up if it waits.
    Go(usize),
}

/// The expected queue: its contenders in order, as readers or writers.
#[derive(Clone, Debug, Default)]
struct Model {
    come: usize,
    queue: Vec<(usize, Access)>,
}

impl Model {
    /// Returns whether the contender holds the lock, which is the case if no contender ahead
    /// excludes it.
    fn holds(&self, who: usize) -> bool {
        let Some(place) = self.queue.iter().position(|(other, _)| *other == who) else {
            return false;
        };
        let (_, side) = self.queue[place];
        !self.queue[..place].iter().any(|(_, ahead)| side.excludes(*ahead))
    }

    fn take(&mut self, step: Step, sides: &[Access]) {
        match step {
            Step::Come(who) => {
                self.come += 1;
                self.queue.push((who, sides[who]));
            }
            Step::GiveWay(who) => {
                for (other, side) in &mut self.queue {
                    if *other == who {
                        *side = Read;
                    }
                }
            }
            Step::Go(who) => self.queue.retain(|(other, _)| *other != who),
        }
    }

    /// Returns the possible next steps.
    fn steps(&self, sides: &[Access], with_downgrades: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.come < sides.len() {
            steps.push(Step::Come(self.come));
        }
        for (who, side) in &self.queue {
            steps.push(Step::Go(*who));
            if with_downgrades && *side == Write && self.holds(*who) {
                steps.push(Step::GiveWay(*who));
            }
        }
        steps
    }
}

/// Returns all orders in which these contenders can join, downgrade and leave.
fn schedules(sides: &[Access], with_downgrades: bool) -> Vec<Vec<Step>> {
    let mut schedules = Vec::new();
    let mut open = vec![(Vec::new(), Model::default())];
    while let Some((begun, model)) = open.pop() {
        let steps = model.steps(sides, with_downgrades);
        for step in &steps {
            let mut model = model.clone();
            model.take(*step, sides);
            open.push(([begun.as_slice(), &[*step]].concat(), model));
        }
        if steps.is_empty() {
            schedules.push(begun);
        }
    }
    schedules
}

/// A contender that has joined but not left.
enum Contender {
    Waiting(Waiter),
    Holding(Holding),
}

struct Table {
    world: World,
    clients: Vec<Client>,
    here: Vec<Option<Contender>>,
    model: Model,
}

impl Table {
    async fn new(contenders: usize, is_one_session: bool) -> Self {
        let world = World::new();
        create_directory::<Writer>(&world);
        let mut clients = vec![world.client(0).await];
        for seed in 1..contenders as u64 {
            let client = clients[0].clone();
            clients.push(if is_one_session { client } else { world.client(seed).await });
        }
        let here = (0..contenders).map(|_| None).collect();
        Self { world, clients, here, model: Model::default() }
    }

    async fn take(&mut self, step: Step, sides: &[Access]) {
        self.model.take(step, sides);
        match step {
            Step::Come(who) => {
                let lock = World::rw_lock(&self.clients[who]);
                let waiter = join(&self.world, &lock, sides[who]).await;
                self.here[who] = Some(Contender::Waiting(waiter));
            }
            Step::GiveWay(who) => match self.here[who].take() {
                Some(Contender::Holding(Holding::Write(guard))) => {
                    let reading = guard.downgrade().await.expect("the lock is held");
                    self.here[who] = Some(Contender::Holding(Holding::Read(reading)));
                }
                _ => panic!("only a writer that holds gives way"),
            },
            Step::Go(who) => match self.here[who].take().expect("it has come") {
                Contender::Holding(held) => held.release().await,
                Contender::Waiting(waiter) => waiter.abort(),
            },
        }
        sleep_ms(20).await;
        for contender in &mut self.here {
            *contender = match contender.take() {
                Some(Contender::Waiting(waiter)) if waiter.is_finished() => {
                    Some(Contender::Holding(granted(waiter).await))
                }
                other => other,
            };
        }
    }

    fn check(&self, label: &str) {
        for (who, contender) in self.here.iter().enumerate() {
            let Some(contender) = contender else { continue };
            let holds = matches!(contender, Contender::Holding(_));
            assert_eq!(holds, self.model.holds(who), "{who} of {label}\n{}", self.world.trace());
            if let Contender::Holding(held) = contender {
                assert_eq!(held.state(), LockState::Held, "{label}");
            }
        }
    }
}

/// Runs every order of these contenders, and returns the number of orders.
///
/// # Panics
///
/// If a contender holds the lock that must not, or waits though it could hold the lock.
pub fn check_every_order(
    all_sides: impl IntoIterator<Item = Vec<Access>>,
    with_downgrades: bool,
    is_one_session: bool,
) -> usize {
    let mut orders = 0;
    for sides in all_sides {
        for schedule in schedules(&sides, with_downgrades) {
            orders += 1;
            run(async {
                let mut table = Table::new(sides.len(), is_one_session).await;
                for step in &schedule {
                    table.take(*step, &sides).await;
                    table.check(&format!("{sides:?} after {step:?} of {schedule:?}"));
                }
                let Table { world, clients, .. } = table;
                if !is_one_session {
                    check_waits(&world);
                }
                world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
            });
        }
    }
    orders
}

/// Returns each choice of readers and writers among this many contenders.
pub fn all_sides(contenders: usize) -> impl Iterator<Item = Vec<Access>> {
    let kinds = 0..1_u32 << contenders;
    kinds.map(move |kinds| {
        (0..contenders).map(|who| if kinds >> who & 1 == 0 { Read } else { Write }).collect()
    })
}
