//! The reentrant lock in virtual time, around every lock: nesting, tasks of one holder, losses,
//! cancellation, cuts and costs. The safety timer is off.

mod cancelling;
mod costs;
mod cuts;
mod losing;
mod nesting;
mod tasks;

use zk_recipes::{Client, Holder, Level};
use zk_tests::case::Case;

/// Returns a holder of the lock under test.
fn holder<C: Case>(client: &Client) -> Holder<C::Kind> {
    Holder::new(C::of(client).lock())
}

/// Acquires a lock that is free or that the holder holds.
async fn level<K: zk_recipes::kind::Kind>(holder: &Holder<K>) -> Level<K> {
    holder.acquire().await.expect("no other contender has the lock")
}
