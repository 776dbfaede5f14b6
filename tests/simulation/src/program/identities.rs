//! Credentials that change while their client works. All clients keep the identity to which their
//! znodes belong.

use super::task::Task;

/// The credentials of all clients that have an identity.
pub const APP: (&str, &str) = ("digest", "app:secret");

/// The name of these calls, for judges.
pub const CHANGE: &str = "change_auth";

/// In how many steps of a task its client gets other credentials, in percent.
const PERCENT: u64 = 15;

/// Adds credentials, or replaces them, now and then.
pub(super) async fn change(task: &mut Task) {
    let mut draw = task.aside();
    if !task.world.plan.is_protected || !draw.chance(PERCENT) {
        return;
    }
    let other = format!("other-{}:secret", draw.between(1, 3));
    let (scheme, app) = APP;
    let timeout = draw.chance(40).then(|| draw.ms(1, 20_000));
    let change = match draw.between(0, 2) {
        0 => task.client.add_auth(scheme, app),
        1 => task.client.add_auth(scheme, other),
        _ => task.client.replace_auth([(scheme, app.to_owned()), (scheme, other)]),
    };
    let change = if let Some(timeout) = timeout { change.timeout(timeout) } else { change };
    task.call(CHANGE, "the client", timeout, change).await;
}
