//! A stranger without credentials can neither delete, forge, change nor read what recipes create,
//! if the recipe or its client has an access control list. Legitimate peers are not hindered.
//!
//! Servers check the permission to delete a znode at its parent, so the list of a contender alone
//! protects nothing. These tests run on every server; see [`zk_tests::target`].

#![expect(clippy::unwrap_used, reason = "helpers fail by a panic, as the tests they serve do")]

mod exposure;
mod locks;
mod others;
mod sample;
mod scene;
mod session;

/// Builds a recipe with the list of the scene, if its client does not know it.
macro_rules! build {
    ($scene:expr, $builder:expr) => {
        match &$scene.acl {
            Some(acl) => $builder.unwrap().acl(acl.clone()).build().unwrap(),
            None => $builder.unwrap().build().unwrap(),
        }
    };
}
use build;
