//! What a client says that strangers may do is what a stranger can do.

use crate::scene::ALICE;
use zk_recipes::{Acl, Answer, Client, CreateMode, CreateOptions, ErrorCode, Permissions, Touch};
use zk_session::OpError;
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::catch_up;

const PERSISTENT: CreateMode = CreateMode::Persistent;
const EACH: [Permissions; 6] = [
    Permissions::NONE,
    Permissions::READ,
    Permissions::WRITE,
    Permissions::CREATE,
    Permissions::DELETE,
    Permissions::ADMIN,
];

/// A list with which its owner may do everything, and everyone else this.
fn with(permissions: Permissions) -> Vec<Acl> {
    let mut acl = Acl::creator_all();
    acl.push(Acl::new(permissions, "world", "anyone"));
    acl
}

fn is_permitted<T>(result: Result<T, OpError>) -> Answer {
    match result {
        Err(error) if error.server_code() == Some(ErrorCode::NO_AUTH) => Answer::No,
        Ok(_) | Err(_) => Answer::Yes,
    }
}

#[tokio::test]
async fn strangers_can_do_what_the_client_says_and_nothing_else() {
    let fixture = Fixture::start().await;
    let stranger = fixture.client().await;
    let owner = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    for at_parent in EACH {
        for at_znode in EACH {
            let options = |permissions| CreateOptions::from(PERSISTENT).acl(with(permissions));
            owner.create("/parent", "", options(at_parent)).await.unwrap();
            owner.create("/parent/x", "", options(at_znode)).await.unwrap();
            owner.create("/parent/x/child", "", options(Permissions::NONE)).await.unwrap();
            let found = owner.exposure("/parent/x").await.unwrap();
            assert!(found.exists());
            catch_up(&stranger).await;
            let what = format!("{at_parent:?} at the parent, {at_znode:?} at the znode");
            let expect = |touch, allowed: Answer, by: Permissions, at: Permissions| {
                // A stranger who may change the list can allow itself the rest.
                let expected = if at == Permissions::ADMIN { Answer::Yes } else { allowed };
                assert_eq!(found.strangers_may(touch), expected, "{touch:?} by {by:?}, {what}");
            };
            let read = is_permitted(stranger.get_data("/parent/x").await);
            expect(Touch::Read, read, Permissions::READ, at_znode);
            let written = is_permitted(stranger.set_data("/parent/x", "", None).await);
            expect(Touch::Write, written, Permissions::WRITE, at_znode);
            let made = is_permitted(stranger.create("/parent/x/new", "", PERSISTENT).await);
            expect(Touch::CreateChildren, made, Permissions::CREATE, at_znode);
            let replaced = is_permitted(stranger.create("/parent/x", "", PERSISTENT).await);
            expect(Touch::Replace, replaced, Permissions::CREATE, at_parent);
            let deleted = is_permitted(stranger.delete("/parent/x", None).await);
            expect(Touch::Delete, deleted, Permissions::DELETE, at_parent);
            let emptied = is_permitted(stranger.delete("/parent/x/child", None).await);
            expect(Touch::DeleteChildren, emptied, Permissions::DELETE, at_znode);
            // The stranger has no identity for an entry of the scheme `auth`.
            let list = vec![Acl::new(Permissions::ALL, "digest", ALICE)];
            let is_changed = is_permitted(stranger.set_acl("/parent/x", list, None).await);
            assert_eq!(found.strangers_may(Touch::ChangeAcl), is_changed, "{what}");
            let is_open = |at: Permissions, harmless: &[Permissions]| {
                at != Permissions::NONE && !harmless.contains(&at)
            };
            let harmless_at_parent = [Permissions::READ, Permissions::WRITE];
            let touchable =
                is_open(at_znode, &[Permissions::READ]) || is_open(at_parent, &harmless_at_parent);
            let expected = if touchable { Answer::Yes } else { Answer::No };
            assert_eq!(found.strangers_may_touch(), expected, "{what}");
            remove(&owner).await;
        }
    }
}

async fn remove(owner: &Client) {
    catch_up(owner).await;
    zk_recipes::Tree::of(owner).delete("/parent").await.unwrap();
}
