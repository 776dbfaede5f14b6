//! Lists of servers that change while their clients work.

use std::sync::Arc;
use std::time::Duration;

use super::aims::aim;
use crate::draw::Draw;
use crate::history::What;
use crate::world::World;
use crate::world::plan::Plan;

/// How the lists of servers change in the middle of a run.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Moves {
    /// The longest time between two changes.
    pub pause: Duration,
    /// The ensemble publishes the list, and all clients follow it.
    pub is_published: bool,
    /// How many changes in a row concern the same client.
    pub run: u64,
}

impl Moves {
    /// Draws how often lists change.
    pub fn draw(draw: &mut Draw) -> Self {
        let pause = draw.ms(500, 30_000);
        // Drawn apart, so that seeds from before still mean the same worlds.
        let salt = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        let is_published = Draw::new(salt ^ PUBLISHED_SALT).chance(PUBLISHED_PERCENT);
        Self { pause, is_published, run: 1 }
    }

    /// In some worlds with aims, the lists of one client change without a pause, so that it looks for
    /// a server while its list changes.
    pub fn hurry(&mut self, plan: &Plan, seed: u64) {
        let Some(mut aim) = aim(plan, &Draw::new(seed), "lists that change without a pause") else {
            return;
        };
        if aim.chance(HURRIED_PERCENT) {
            // No client could connect if its list changed sooner than a server answers.
            let pause = aim.ms(300, 1_500).max(ROUND_TRIPS * plan.round_trip_max());
            *self = Self { pause, is_published: false, run: RUN };
        }
    }

    /// Gives another list to one client after the other, or to all, until the faults stop.
    pub async fn happen(self, world: Arc<World>, mut draw: Draw) {
        let (mut client, mut left_of_run) = (0, 0);
        loop {
            let longest = u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX);
            let pause = draw.ms(longest / 10, longest);
            let left = world.plan.calm_at.saturating_sub(world.history.now());
            world.sleep(pause.min(left)).await;
            if pause >= left {
                return;
            }
            if left_of_run == 0 {
                (client, left_of_run) = (draw.size(0, world.count.saturating_sub(1)), self.run);
            }
            left_of_run -= 1;
            let members = members(&mut draw, world.plan.members);
            if self.is_published {
                publish(&world, &mut draw, &members);
                continue;
            }
            let names: Vec<String> = members.iter().map(|member| format!("m{member}")).collect();
            if let Some((handle, life)) = world.clients.get(client)
                && handle.set_hosts(&names.join(",")).is_ok()
            {
                life.set_hosts(world.history.now(), members.clone());
                world.history.note(What::Hosts { client, members });
            }
        }
    }
}

/// Publishes a configuration with these members. Now and then it is one that clients must not use:
/// an older version, or one whose servers nobody can reach.
fn publish(world: &World, draw: &mut Draw, members: &[usize]) {
    let is_old = draw.chance(15);
    let has_strangers = draw.chance(15);
    // Clients can use such names, but nobody answers.
    let are_gone = has_strangers && draw.clone().chance(50);
    let version = if is_old { world.publish_old() } else { world.publish(has_strangers) };
    let line = |member: &usize| match has_strangers {
        true if are_gone => {
            format!("server.{member}={GONE}{member}:2888:3888:participant;0.0.0.0:2181\n")
        }
        true => format!("server.{member}=x:1:2;127.0.0.1:{member}\n"),
        false => format!("server.{member}=m{member}:2888:3888:participant;0.0.0.0:2181\n"),
    };
    let aim = aim(&world.plan, draw, "many servers that are gone");
    let are_many = are_gone && aim.is_some_and(|mut aim| aim.chance(MANY_PERCENT));
    let gone: Vec<usize> = (0..MANY).collect();
    let members = if are_many { &gone } else { members };
    let lines: String = members.iter().map(line).collect();
    let text = format!("{lines}version={version:x}");
    world.server.admin_set_data("/zookeeper/config", text.as_bytes());
}

/// Draws some members, or all of them.
fn members(draw: &mut Draw, count: usize) -> Vec<usize> {
    let mut members: Vec<usize> = (0..count).filter(|_| draw.chance(60)).collect();
    if members.is_empty() {
        members.push(draw.size(0, count - 1));
    }
    members
}

/// How many of the configurations with servers that nobody reaches have very many of them, in percent.
const MANY_PERCENT: u64 = 50;
/// How many these are. A client that asked all of them would not look at the next configuration for
/// minutes.
const MANY: usize = 150;

/// In how many of the worlds with aims and with lists that change they do so without a pause, in
/// percent.
const HURRIED_PERCENT: u64 = 35;
/// The pauses are between a tenth of this many round trips and all of them, or longer.
const ROUND_TRIPS: u32 = 15;
/// How many changes in a row concern the same client there: enough for pauses that would grow.
const RUN: u64 = 20;

/// The beginning of the names of servers that do not answer.
pub const GONE: &str = "gone";

/// In how many of the worlds with lists that change the ensemble publishes them, in percent.
const PUBLISHED_PERCENT: u64 = 30;
const PUBLISHED_SALT: u64 = 0xe45e;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_change_without_a_pause_in_some_worlds_with_aims() {
        let is_hurried = |seed: u64, has_aims: bool| {
            let plan = Plan { has_aims, ..Plan::draw(&mut Draw::new(seed)) };
            let mut moves = Moves::draw(&mut Draw::new(seed));
            moves.hurry(&plan, seed);
            moves.run == RUN && !moves.is_published
        };
        assert!((0..100).any(|seed| is_hurried(seed, true)));
        assert!((0..100).all(|seed| !is_hurried(seed, false)));
    }
}
