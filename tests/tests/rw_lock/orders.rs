//! Every order in which four contenders can come and go, whatever they want: after each step,
//! exactly those hold who may.

use zk_recipes::Client;
use zk_tests::scene::make_directory;
use zk_tests::world::{World, run, sleep_ms};

use crate::Side::{self, Read, Write};
use crate::{Holding, Waiter, check_waits, granted, join};

const CONTENDERS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A contender joins the queue. They come in the order of their numbers.
    Come(usize),
    /// A contender leaves: it releases if it holds, and gives up if it waits.
    Go(usize),
}

/// All orders in which this many contenders can come and go.
fn schedules(contenders: usize) -> Vec<Vec<Step>> {
    fn extend(begun: &[Step], come: usize, here: &[usize], all: usize) -> Vec<Vec<Step>> {
        if come == all && here.is_empty() {
            return vec![begun.to_vec()];
        }
        let mut schedules = Vec::new();
        if come < all {
            let here = [here, &[come]].concat();
            schedules.extend(extend(&[begun, &[Step::Come(come)]].concat(), come + 1, &here, all));
        }
        for gone in here {
            let left: Vec<_> = here.iter().copied().filter(|other| other != gone).collect();
            schedules.extend(extend(&[begun, &[Step::Go(*gone)]].concat(), come, &left, all));
        }
        schedules
    }
    extend(&[], 0, &[], contenders)
}

/// A contender that has come and not gone.
enum Contender {
    Waiting(Waiter),
    Holding(Holding),
}

struct Table {
    world: World,
    sides: [Side; CONTENDERS],
    clients: Vec<Client>,
    here: [Option<Contender>; CONTENDERS],
}

impl Table {
    async fn new(sides: [Side; CONTENDERS], is_one_session: bool) -> Self {
        let world = World::new();
        make_directory(&world);
        let mut clients = vec![world.client(0).await];
        for seed in 1..CONTENDERS as u64 {
            let client = clients[0].clone();
            clients.push(if is_one_session { client } else { world.client(seed).await });
        }
        Self { world, sides, clients, here: [const { None }; CONTENDERS] }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Come(who) => {
                let lock = World::rw_lock(&self.clients[who]);
                let waiter = join(&self.world, &lock, self.sides[who]).await;
                self.here[who] = Some(Contender::Waiting(waiter));
            }
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

    /// Whoever has nobody ahead that it excludes, holds, and nobody else.
    fn check(&self, label: &str) {
        for who in 0..CONTENDERS {
            let Some(contender) = &self.here[who] else { continue };
            let mut ahead = (0..who).filter(|other| self.here[*other].is_some());
            let may_hold = !ahead.any(|other| self.sides[who].excludes(self.sides[other]));
            let holds = matches!(contender, Contender::Holding(_));
            assert_eq!(holds, may_hold, "{who} of {label}\n{}", self.world.trace());
            if let Contender::Holding(held) = contender {
                assert_eq!(held.state(), zk_recipes::LockState::Held, "{label}");
            }
        }
    }
}

fn check_every_order(is_one_session: bool) -> usize {
    let schedules = schedules(CONTENDERS);
    assert_eq!(schedules.len(), 105, "1 * 3 * 5 * 7");
    let mut steps = 0;
    for kinds in 0..1_u32 << CONTENDERS {
        let sides = std::array::from_fn(|who| if kinds >> who & 1 == 0 { Read } else { Write });
        for schedule in &schedules {
            run(async {
                let mut table = Table::new(sides, is_one_session).await;
                for step in schedule {
                    steps += 1;
                    table.take(*step).await;
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
    steps
}

#[test]
fn in_every_order_of_four_contenders_exactly_those_hold_who_may() {
    assert_eq!(check_every_order(false), 16 * 105 * 2 * CONTENDERS);
}

/// Znodes of one session are ahead of each other like those of any other.
#[test]
fn the_same_is_true_of_four_contenders_of_one_session() {
    check_every_order(true);
}
