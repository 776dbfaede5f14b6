//! Paths that are created and subtrees that are deleted, in virtual time: cuts of the connection at
//! every request, sessions that expire, futures that are dropped, refusals, and costs.

mod deleting;
mod ensuring;
mod with_parents;

use zk_tests::world::World;

/// Creates this subtree as another client does. Returns the number of its znodes.
fn grow(world: &World, root: &str, width: usize, depth: usize) -> u64 {
    world.server.admin_create(root, b"", None);
    if depth == 0 {
        return 1;
    }
    1 + (0..width)
        .map(|index| grow(world, &format!("{root}/{index}"), width, depth - 1))
        .sum::<u64>()
}
