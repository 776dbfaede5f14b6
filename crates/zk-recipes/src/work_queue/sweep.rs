//! Deleting the markers of puts whose clients have ended.
//!
//! A client that ends between a put and the delete of its marker leaves the marker behind. Nobody
//! else knows the put, so without a sweep the markers of clients that crash would accumulate.
//!
//! One put in [`PUTS_PER_SWEEP`] sweeps, in the background. Its own marker tells the time of the
//! servers; markers that are older than a day are deleted. A put repeats its transaction for at most
//! half a day, so no transaction that such a marker refuses can be on its way.

use std::time::Duration;

use zk_session::{Client, ErrorCode, OpError, Stat};

use super::layout::Layout;
use crate::machine::child;

/// How many puts there are for each sweep, on average. The id of the put decides, because a client
/// may end before it has counted so far.
const PUTS_PER_SWEEP: u128 = 64;
/// Number of markers below which a sweep does nothing.
const MARKERS_MIN: usize = 16;
/// Maximum number of markers that a sweep reads, one after another. It is larger than
/// [`PUTS_PER_SWEEP`], so sweeps delete more than puts can leave behind.
const LOOKS_MAX: usize = 128;
/// Age of a marker from which no put needs it.
const OUTDATED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns whether the put with this id sweeps.
pub(crate) fn is_due(id: u128) -> bool {
    id.is_multiple_of(PUTS_PER_SWEEP)
}

/// Deletes outdated markers, and returns their number. `own` is the metadata of the marker of a put
/// that has just been applied. Costs a list and, if there are many markers, a read for each of at
/// most [`LOOKS_MAX`], and a delete for each of them that is outdated.
///
/// # Errors
///
/// The first error ends the sweep; another put will sweep again.
pub(crate) async fn sweep(
    client: &Client,
    layout: &Layout,
    id: u128,
    own: &Stat,
) -> Result<usize, OpError> {
    let names = client.get_children(&layout.puts).await?;
    if names.len() < MARKERS_MIN {
        return Ok(0);
    }
    // Each sweep starts at another place, so that young markers cannot hide old ones.
    let start = usize::try_from(id / PUTS_PER_SWEEP % names.len() as u128).unwrap_or_default();
    let chosen = names.iter().cycle().skip(start).take(names.len().min(LOOKS_MAX));
    let mut deleted = 0;
    for name in chosen.filter(|name| is_marker(name)) {
        let path = child(&layout.puts, name);
        let Some(found) = client.exists(&path).await? else { continue };
        let age = own.ctime.duration_since(found.ctime).unwrap_or_default();
        if age >= OUTDATED_AFTER {
            match client.delete(&path, None).await {
                Ok(()) => deleted += 1,
                Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(deleted)
}

/// Returns whether a znode has the name of a marker. Others are not ours to delete.
fn is_marker(name: &str) -> bool {
    name.len() == 32 && u128::from_str_radix(name, 16).is_ok()
}
