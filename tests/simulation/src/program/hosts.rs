//! Lists of servers that change while their clients work.

use std::sync::Arc;
use std::time::Duration;

use crate::draw::Draw;
use crate::history::What;
use crate::world::World;

/// How the lists of servers change in the middle of a run.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Moves {
    /// The longest time between two changes.
    pub pause: Duration,
}

impl Moves {
    /// Draws how often lists change.
    pub fn draw(draw: &mut Draw) -> Self {
        Self { pause: draw.ms(500, 30_000) }
    }

    /// Gives another list to one client after the other, until the faults stop.
    pub async fn happen(self, world: Arc<World>, mut draw: Draw) {
        loop {
            let longest = u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX);
            let pause = draw.ms(longest / 10, longest);
            let left = world.plan.calm_at.saturating_sub(world.history.now());
            world.sleep(pause.min(left)).await;
            if pause >= left {
                return;
            }
            let client = draw.size(0, world.count.saturating_sub(1));
            let members = members(&mut draw, world.plan.members);
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

/// Draws some members, or all of them.
fn members(draw: &mut Draw, count: usize) -> Vec<usize> {
    let mut members: Vec<usize> = (0..count).filter(|_| draw.chance(60)).collect();
    if members.is_empty() {
        members.push(draw.size(0, count - 1));
    }
    members
}
