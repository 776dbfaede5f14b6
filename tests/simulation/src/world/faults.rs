//! What goes wrong in a world, and when.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{Action, At, CutOff, Fault, Filter, Reception, Until};

use super::World;
use super::forgery;
use super::kinds::WorldKind;
use super::link::{Direction, Trap};
use super::lulls;
use super::oversleep;
use super::plan::FaultKind;
use super::rows;
use super::stray;
use super::surprises;
use super::waylay;
use crate::cuts::Cuts;
use crate::draw::Draw;
use crate::history::What;
use crate::program::values::TREE;

/// The codes with which these servers refuse single requests, which they do not apply. A later one may
/// be applied. Clients must not know the former: the last two codes leave it open.
pub const REFUSALS: [ErrorCode; 3] =
    [ErrorCode::THROTTLED_OP, ErrorCode::OPERATION_TIMEOUT, ErrorCode::SYSTEM_ERROR];

/// The codes of servers that fail after they have executed a request, or no longer wait for it. They leave
/// it open whether the request was applied.
pub const MISREPORTS: [ErrorCode; 3] =
    [ErrorCode::MARSHALLING_ERROR, ErrorCode::OPERATION_TIMEOUT, ErrorCode::SYSTEM_ERROR];

/// The kinds of requests at which faults strike. `None`: all.
pub(super) const OPS: [Option<OpCode>; 10] = [
    None,
    None,
    None,
    Some(OpCode::CREATE2),
    Some(OpCode::DELETE),
    Some(OpCode::SET_DATA),
    Some(OpCode::MULTI),
    Some(OpCode::GET_CHILDREN2),
    Some(OpCode::GET_DATA),
    Some(OpCode::SYNC),
];

/// Kinds of requests that are rarer, at which faults of newer seeds strike too.
const RARE_OPS: [OpCode; 3] = [OpCode::SET_ACL, OpCode::CREATE_CONTAINER, OpCode::EXISTS];
/// How many faults of newer seeds strike these, in percent.
const RARE_PERCENT: u64 = 20;

/// How often a server refuses a request, and each repetition, until its connection ends. A recipe
/// gives up after fewer refusals.
const REFUSALS_IN_TURN: usize = 9;
/// How long a stop waits for the begin of a call.
const BEGIN_MAX: Duration = Duration::from_secs(5);

/// The requests with which a cache reads.
const READS: [OpCode; 3] = [OpCode::GET_DATA, OpCode::GET_CHILDREN2, OpCode::MULTI_READ];

/// For how long holders go on that are cut off, where their leases matter.
const LINGER: Duration = Duration::from_secs(45);
/// How often a client hears of nobody after it may have heard of a deposed leader, in percent.
const ALONE_PERCENT: u64 = 40;

/// How many readers that move connect again at once, in percent.
const AT_ONCE_PERCENT: u64 = 80;

/// A fault: when it happened, and what decides the rest of it.
#[derive(Clone, Debug)]
pub struct Struck {
    at: Duration,
    kind: FaultKind,
    draw: Draw,
    /// Nothing goes wrong afterwards for a while.
    ends_burst: bool,
}

impl Struck {
    /// A fault of this kind strikes now.
    pub(super) fn new(at: Duration, kind: FaultKind, draw: Draw) -> Self {
        Self { at, kind, draw, ends_burst: false }
    }

    /// Nothing goes wrong after this fault for a while.
    pub(super) fn end_burst(&mut self) {
        self.ends_burst = true;
    }

    /// Returns when it happened.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Returns its kind.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }
}

/// Lets things go wrong until the time has come from which nothing may. Returns what went wrong.
pub async fn afflict(world: &World, mut draw: Draw) -> Vec<Struck> {
    let mut struck = Vec::new();
    if world.plan.is_of(WorldKind::Lulls) {
        struck = lulls::afflict(world, &mut draw).await;
        world.sleep(world.plan.calm_at.saturating_sub(world.history.now())).await;
        world.heal();
        return struck;
    }
    loop {
        let pause = u64::try_from(world.plan.fault_pause.as_millis()).unwrap_or(u64::MAX);
        let pause = draw.ms(1, pause.saturating_mul(3));
        let left = world.plan.calm_at.saturating_sub(world.history.now());
        world.sleep(pause.min(left)).await;
        if pause >= left || world.plan.faults.is_empty() {
            world.sleep(world.plan.calm_at.saturating_sub(world.history.now())).await;
            world.heal();
            return struck;
        }
        let kind = draw.pick(&world.plan.faults);
        struck.push(Struck::new(world.history.now(), kind, draw.clone()));
        strike(world, struck.len() as u64, kind, &mut draw).await;
    }
}

/// Lets the same things go wrong as in the run of the whole seed, at the same times, without those
/// that are left out. They do not depend on each other: a fault draws the same without those before.
pub async fn afflict_again(world: &World, cuts: &Cuts, struck: &[Struck]) -> Vec<Struck> {
    let mut again = Vec::new();
    for (number, fault) in (1..).zip(struck) {
        let is_left_out = cuts.skips(number) || !world.plan.faults.contains(&fault.kind);
        if fault.at >= world.plan.calm_at || (is_left_out && !fault.ends_burst) {
            continue;
        }
        world.sleep(fault.at.saturating_sub(world.history.now())).await;
        if !is_left_out {
            strike(world, number, fault.kind, &mut fault.draw.clone()).await;
            again.push(fault.clone());
        }
        if fault.ends_burst {
            world.disarm();
        }
    }
    world.sleep(world.plan.calm_at.saturating_sub(world.history.now())).await;
    world.heal();
    again
}

pub(super) async fn strike(world: &World, number: u64, kind: FaultKind, draw: &mut Draw) {
    let left = world.plan.calm_at.saturating_sub(world.history.now());
    let text = match kind {
        FaultKind::Suspension => {
            let duration = outage(draw).min(left);
            world.suspend(duration);
            "the clients go on".to_owned()
        }
        FaultKind::Stop if world.plan.is_of(WorldKind::Waylaid) => {
            oversleep::strike(world, draw, left).await
        }
        FaultKind::Stop => stop(world, draw, left).await,
        FaultKind::Expiry => expire(world, draw),
        FaultKind::Ambush => world.strangers.ambush(world, draw, left).await,
        FaultKind::Intruder => world.strangers.intrude(world, draw).await,
        FaultKind::Row => rows::strike(world, draw, left).await,
        FaultKind::Surprise => surprises::strike(world, draw, left).await,
        FaultKind::Waylay => waylay::strike(world, draw, left).await,
        FaultKind::Stray => stray::strike(world, draw, left).await,
        FaultKind::Deposition => depose(world, draw, left).await,
        FaultKind::Forgery => forgery::strike(world, draw, left).await,
        kind => inflict(world, draw, kind),
    };
    world.history.note(What::Fault { number, text: format!("{kind:?}: {text}") });
}

fn inflict(world: &World, draw: &mut Draw, kind: FaultKind) -> String {
    match kind {
        FaultKind::Cut if draw.chance(30) => cut_link(world, draw),
        FaultKind::Cut => {
            let action = match draw.between(0, 3) {
                0 => Action::CutBefore,
                1 => Action::CutAfter,
                2 => Action::CutAtReplyByte(draw.size(0, 60)),
                _ => Action::Error(ErrorCode::CONNECTION_LOSS),
            };
            let action = match action {
                // This one has a meaning for clients only, and stands for another cut.
                Action::Error(_) => Action::CutAfter,
                action => action,
            };
            inject(world, draw, action)
        }
        FaultKind::LateCommit => {
            let until = match draw.between(0, 2) {
                0 => Until::NextWrite,
                1 => Until::Reads(draw.size(1, 3)),
                _ => Until::After(draw.ms(1, 8_000)),
            };
            inject_at_request(world, draw, Action::LateCommit(until))
        }
        FaultKind::Delay => inject(world, &mut draw.clone(), Action::Delay(draw.ms(10, 15_000))),
        FaultKind::Freeze => inject(world, draw, Action::Freeze),
        FaultKind::BlackHole => {
            let (up, down) = draw.pick(&[(true, true), (true, false), (false, true)]);
            let duration = draw.ms(100, 30_000);
            world.disturb(duration);
            world.network.black_hole(up, down, duration);
            format!("up {up}, down {down}, for {duration:?}")
        }
        FaultKind::Isolate => {
            let (client, mut duration) = (any_client(world, draw), outage(draw));
            if world.plan.leases.is_some() {
                // The holder goes on, to see when its lease ends.
                duration = duration.max(LINGER);
                world.trouble.linger_until(world.history.now() + duration);
            }
            world.network.isolate(client, duration);
            format!("client {client} for {duration:?}")
        }
        FaultKind::LostReply => {
            let mut aside = draw.aside();
            let mut trap = Trap {
                client: any_client(world, draw),
                direction: Direction::Up,
                skipped: draw.size(0, 6),
                duration: outage(draw),
                is_cut: draw.chance(50),
            };
            // A client that has learned something of its server moves to one that may lag behind.
            if aside.chance(35) {
                trap.direction = Direction::Down;
                trap.is_cut = true;
                trap.duration = aside.pick(&[Duration::ZERO, trap.duration]);
            }
            if world.plan.is_of(WorldKind::Moving) {
                move_reader(world, &mut aside, &mut trap);
            }
            world.network.set_trap(trap);
            format!("{trap:?}")
        }
        FaultKind::SlowLinks => {
            let (longer, duration) = (draw.ms(10, 3_000), draw.ms(500, 30_000));
            world.disturb(duration + longer);
            world.network.slow_down(longer, duration);
            format!("{longer:?} longer, for {duration:?}")
        }
        FaultKind::SlowCommits => {
            let (longer, duration) = (draw.ms(10, 3_000), draw.ms(500, 30_000));
            world.disturb(duration + longer);
            world.network.slow_down_commits(longer, duration);
            format!("{longer:?} longer, for {duration:?}")
        }
        FaultKind::Pause => pause(world, draw),
        FaultKind::Restart => {
            let member = draw.size(0, world.plan.members - 1);
            world.server.member(member).disconnect_member();
            let duration = draw.ms(1, 5_000);
            world.disturb(duration);
            if draw.chance(30) {
                world.server.refuse_for(duration);
            }
            format!("member {member}, at most {duration:?}")
        }
        FaultKind::Election => {
            let duration = draw.ms(50, 8_000);
            let reception = draw.pick(&[
                Reception::Refused,
                Reception::HangUp,
                Reception::Silent,
                Reception::BlackHole,
            ]);
            world.disturb(duration);
            world.server.pause(duration);
            world.server.disconnect_all();
            world.server.set_reception_for(reception, duration);
            format!("{reception:?} for {duration:?}")
        }
        FaultKind::CutOff => cut_off(world, draw),
        FaultKind::Partition => {
            let member = world.server.member(draw.size(0, world.plan.members - 1));
            let is_partitioned = member.is_partitioned();
            if is_partitioned {
                member.heal()
            } else {
                member.partition()
            }
            format!("{member:?}, ended: {is_partitioned}")
        }
        FaultKind::Throttle => {
            let duration = draw.ms(10, 10_000);
            world.disturb(duration);
            world.server.throttle_for(duration);
            format!("for {duration:?}")
        }
        FaultKind::Stampede => {
            let (away, busy) = (draw.ms(10, 2_000), draw.ms(500, 5_000));
            world.disturb(away + busy);
            world.server.refuse_for(away);
            world.server.disconnect_all();
            world.server.throttle_for(away + busy);
            format!("nobody for {away:?}, and too many for {busy:?}")
        }
        FaultKind::Refusal => {
            let code = draw.pick(&REFUSALS);
            refuse(world, draw, code)
        }
        FaultKind::Misreport => {
            let (code, count) = (draw.pick(&MISREPORTS), draw.pick(&[1, 1, 1, 3]));
            let texts: Vec<String> = (0..count)
                .map(|_| inject_at_request(world, draw, Action::ErrorAfter(code)))
                .collect();
            texts.join(", ")
        }
        FaultKind::Permission => world.permissions.take(world, draw),
        FaultKind::Deletion => world.strangers.delete(world, draw),
        FaultKind::Stranger => world.strangers.create(world, draw),
        FaultKind::SequenceEnd => world.strangers.end_sequence(world, draw),
        FaultKind::Overload => {
            let duration = draw.ms(5_000, 60_000);
            world.disturb(duration);
            let is_refused = draw.chance(50);
            if is_refused {
                world.server.refuse_for(duration);
                world.server.disconnect_all();
            } else {
                world.server.throttle_for(duration);
            }
            format!("for {duration:?}, connections: {is_refused}")
        }
        FaultKind::Ambush
        | FaultKind::Deposition
        | FaultKind::Expiry
        | FaultKind::Forgery
        | FaultKind::Intruder
        | FaultKind::Row
        | FaultKind::Stop
        | FaultKind::Stray
        | FaultKind::Surprise
        | FaultKind::Suspension
        | FaultKind::Waylay => unreachable!("these have other arguments"),
    }
}

/// Most outages are about as long as a session.
pub(super) fn outage(draw: &mut Draw) -> Duration {
    let longest = draw.pick(&[2_000, 10_000, 20_000, 60_000]);
    draw.ms(100, longest)
}

/// Lets a trap cut the connection of a client that follows something, right after an event.
fn move_reader(world: &World, draw: &mut Draw, trap: &mut Trap) {
    let readers = world.trouble.readers();
    if !readers.is_empty() {
        trap.client = draw.pick(&readers);
    }
    (trap.direction, trap.skipped, trap.is_cut) = (Direction::Down, draw.size(0, 1), true);
    if draw.chance(AT_ONCE_PERCENT) {
        trap.duration = Duration::ZERO;
    }
}

/// Stops the callers of a client, and in most cases its links.
async fn stop(world: &World, draw: &mut Draw, longest: Duration) -> String {
    let mut aside = draw.aside();
    let (client, mut duration) = (any_client(world, draw), outage(draw).min(longest));
    let is_isolated = draw.chance(60);
    let mut isolation = duration;
    if world.plan.has_aims {
        if aside.chance(50) {
            wait_for_call(world, &mut aside, client, longest).await;
            let left = world.plan.calm_at.saturating_sub(world.history.now());
            duration = duration.min(left);
        }
        // The client learns of what has happened before its callers do.
        isolation = duration * u32::try_from(aside.size(30, 90)).unwrap_or(100) / 100;
        if aside.chance(50)
            && let Some((handle, _)) = world.clients.get(client)
        {
            // Its session goes on.
            isolation = isolation.min(handle.status().timeout.saturating_sub(world.plan.tick));
        }
    }
    world.freezer.stop(client, duration);
    if is_isolated {
        world.network.isolate(client, isolation);
    }
    format!("client {client} for {duration:?}, with its links: {is_isolated}, for {isolation:?}")
}

/// Waits until a call of this client has begun, and perhaps some of its requests have arrived.
async fn wait_for_call(world: &World, draw: &mut Draw, client: usize, longest: Duration) {
    tokio::select! {
        biased;
        () = world.trouble.begun(client) => {}
        () = world.sleep(BEGIN_MAX.min(longest)) => {}
    }
    let longest = u64::try_from(world.plan.round_trip_max().as_millis()).unwrap_or(1);
    world.sleep(Duration::from_millis(draw.between(0, 3 * longest))).await;
}

/// Lets nothing of a client arrive until its session has ended. Prefers one that ends with it.
fn expire(world: &World, draw: &mut Draw) -> String {
    let mortals: Vec<usize> = (0..world.count).filter(|it| world.plan.is_mortal(*it)).collect();
    let client = if mortals.is_empty() { any_client(world, draw) } else { draw.pick(&mortals) };
    let Some((handle, _)) = world.clients.get(client) else { return format!("no client {client}") };
    let timeout = handle.status().timeout + 2 * world.plan.tick;
    let duration = world.plan.true_time(timeout).max(timeout) + draw.ms(1, 10_000);
    world.network.isolate(client, duration);
    format!("client {client} for {duration:?}")
}

fn any_client(world: &World, draw: &mut Draw) -> usize {
    draw.size(0, world.count.saturating_sub(1))
}

fn cut_link(world: &World, draw: &mut Draw) -> String {
    let direction = draw.pick(&[Direction::Up, Direction::Down]);
    let bytes = draw.size(0, 500);
    world.network.cut_after(direction, bytes);
    format!("{direction:?} after {bytes} bytes")
}

fn inject(world: &World, draw: &mut Draw, action: Action) -> String {
    match draw.between(0, 5) {
        0 => arm(world, draw, At::event(0), action),
        1 => arm(world, draw, At::connect(0), action),
        _ => inject_at_request(world, draw, action),
    }
}

/// Refuses some requests of the same kind in a row.
fn refuse(world: &World, draw: &mut Draw, code: ErrorCode) -> String {
    let mut filter = Filter { op: draw.pick(&OPS), ..Filter::default() };
    let mut code = code;
    let mut aside = draw.aside().aside();
    if let Some(op) = any_rare_op(world, &mut aside) {
        filter.op = Some(op);
    }
    if world.plan.has_aims && code == ErrorCode::SYSTEM_ERROR && aside.chance(25) {
        return refuse_to_the_end(world, draw, filter, code);
    }
    if draw.chance(25) {
        // Only caches read the tree, and only this code tells them that they may not.
        code = ErrorCode::NO_AUTH;
        filter.op = Some(draw.pick(&READS));
        filter.path_prefix = Some(TREE.to_owned());
    }
    if world.plan.has_rows && code != ErrorCode::NO_AUTH && draw.aside().chance(25) {
        // Somebody has changed permissions, and perhaps changes them back.
        code = ErrorCode::NO_AUTH;
        filter.op = filter.op.or(Some(OpCode::DELETE));
    }
    let count = draw.pick(&[1, 1, 2, 5, 30]);
    for _ in 0..count {
        let at = At::Request { nth: 0, filter: filter.clone() };
        world.server.inject(Fault::new(at, Action::Error(code)));
        world.trouble.arm();
    }
    format!("{count} times {code:?} at {filter:?}")
}

/// Refuses a request of a session, and each repetition, and then loses the connection.
fn refuse_to_the_end(
    world: &World,
    draw: &mut Draw,
    mut filter: Filter,
    code: ErrorCode,
) -> String {
    filter.session = any_session(world, draw);
    let refusal = Fault::new(At::Request { nth: 0, filter: filter.clone() }, Action::Error(code));
    let mut faults = vec![refusal; REFUSALS_IN_TURN];
    let any = Filter { op: None, ..filter.clone() };
    faults.push(Fault::new(At::Request { nth: 0, filter: any }, Action::CutBefore));
    faults.iter().for_each(|_| world.trouble.arm());
    world.server.inject_in_turn(faults);
    format!("{REFUSALS_IN_TURN} times {code:?} at {filter:?}, and a cut")
}

/// Returns a kind of requests that is rare, in some worlds of newer seeds.
fn any_rare_op(world: &World, aside: &mut Draw) -> Option<OpCode> {
    (world.plan.has_aims && aside.chance(RARE_PERCENT)).then(|| aside.pick(&RARE_OPS))
}

fn inject_at_request(world: &World, draw: &mut Draw, action: Action) -> String {
    let rare = any_rare_op(world, &mut draw.aside());
    let usual = draw.pick(&OPS);
    let filter = Filter { op: rare.or(usual), ..Filter::default() };
    let at = At::Request { nth: draw.size(0, 5), filter };
    arm(world, draw, at, action)
}

fn arm(world: &World, draw: &mut Draw, at: At, action: Action) -> String {
    let mut fault = Fault::new(at, action);
    if draw.chance(30) {
        fault = fault.refuse_for(draw.ms(10, 3_000));
    }
    let text = format!("{fault:?}");
    world.server.inject(fault);
    world.trouble.arm();
    text
}

fn pause(world: &World, draw: &mut Draw) -> String {
    let mut aside = draw.aside();
    let duration = draw.ms(100, 20_000);
    if world.plan.has_aims
        && !world.plan.resumes()
        && aside.chance(60)
        && let Some(text) = pause_keeper(world, &mut aside)
    {
        return text;
    }
    world.disturb(duration);
    match any_session(world, draw) {
        Some(session) if draw.chance(60) => {
            world.server.pause_connection(session, duration);
            format!("the server of {session} for {duration:?}")
        }
        _ => {
            world.server.pause(duration);
            format!("all for {duration:?}")
        }
    }
}

/// Lets the server of a session pause for about as long as the session lasts, perhaps at a multi: a
/// Keeper replaces the session then, and may execute late what it was sent.
fn pause_keeper(world: &World, draw: &mut Draw) -> Option<String> {
    let session = any_session(world, draw)?;
    let client = world.sessions().get(&session).copied()?;
    let timeout = world.clients.get(client)?.0.status().timeout;
    let duration = timeout * u32::try_from(draw.between(70, 105)).unwrap_or(100) / 100;
    world.disturb(duration);
    if draw.chance(50) {
        let at = At::op(OpCode::MULTI).of_session(session);
        world.server.inject(Fault::new(at, Action::Pause(duration)));
        world.trouble.arm();
        return Some(format!("the server of {session} for {duration:?} at its next multi"));
    }
    world.server.pause_connection(session, duration);
    Some(format!("the server of {session} for {duration:?}"))
}

/// Lets a member lead on while the others, perhaps after a while, follow another one. Clients that have
/// lost their connections may resume their sessions on it, and perhaps one of them hears of nobody after
/// that.
async fn depose(world: &World, draw: &mut Draw, left: Duration) -> String {
    let last = world.plan.members - 1;
    // Some clients use only the last one.
    let member = if draw.chance(50) { last } else { draw.size(0, last) };
    let notices_after = noticed_after(world, draw);
    let busy = draw.pick(&[Duration::ZERO, Duration::from_millis(500), notices_after]);
    world.disturb(notices_after.max(busy));
    // Most holders would give up before the session has ended, which nobody tells them.
    if draw.chance(50) {
        world.trouble.linger_until(world.history.now() + notices_after);
    }
    world.server.member(member).depose(notices_after);
    for other in (0..=last).filter(|other| *other != member) {
        world.server.member(other).disconnect_member();
    }
    world.server.refuse_for(busy);
    let text = format!("member {member} for {notices_after:?}, the others are away for {busy:?}");
    if !draw.chance(ALONE_PERCENT) {
        return text;
    }
    let most = u64::try_from(notices_after.as_millis()).unwrap_or(1);
    world.sleep(draw.ms(1, most).min(left)).await;
    let alone = expire(world, draw);
    // Holders go on, to see when their leases end.
    world.trouble.linger_until(world.history.now() + LINGER);
    format!("{text}; then nothing of {alone}")
}

/// Returns how long a server may take to notice that it has lost the others.
fn noticed_after(world: &World, draw: &mut Draw) -> Duration {
    let tick = u64::try_from(world.plan.tick.as_millis()).unwrap_or(1);
    // Only a server that notices late outlives a session.
    let least = if draw.chance(50) { 4 * tick } else { 1 };
    // `syncLimit` is five ticks in the sample configuration, and a tick passes until it counts.
    Duration::from_millis(draw.between(least, 5 * tick))
}

fn cut_off(world: &World, draw: &mut Draw) -> String {
    let Some(session) = any_session(world, draw) else { return "nobody".to_owned() };
    let tick = u64::try_from(world.plan.tick.as_millis()).unwrap_or(1);
    let cut_off = CutOff {
        notices_after: noticed_after(world, draw),
        unreported: Duration::from_millis(draw.between(0, tick / 2)),
    };
    world.disturb(cut_off.notices_after);
    // Most holders would give up before the session has ended, which nobody tells them.
    if draw.clone().chance(50) {
        world.trouble.linger_until(world.history.now() + cut_off.notices_after);
    }
    world.server.cut_off(session, cut_off);
    format!("{session}: {cut_off:?}")
}

pub(super) fn any_session(world: &World, draw: &mut Draw) -> Option<SessionId> {
    // Whoever has a znode of its own has something to lose.
    let owners: Vec<SessionId> =
        world.server.ephemerals().into_iter().map(|(_, owner)| owner).collect();
    if !owners.is_empty() && draw.chance(60) {
        return Some(draw.pick(&owners));
    }
    let sessions = world.server.sessions();
    (!sessions.is_empty()).then(|| draw.pick(&sessions))
}
