//! The sample of the page about security, as it is written there.

use zk_recipes::{ErrorCode, LockState, Tree};
use zk_tests::target::Fixture;
use zk_tests::wait::catch_up;

const PAGE: &str = include_str!("../../../docs/security.md");
const SOURCE: &str = include_str!("sample.rs");

#[rustfmt::skip]
#[allow(clippy::print_stdout, reason = "the page prints what is open")]
mod page {
    pub(super) async fn sample(
        servers: &str,
    ) -> Result<(zk_recipes::Client, zk_recipes::FairLock), Box<dyn std::error::Error>> {
// begin
use zk_recipes::{Acl, Answer, Client, FairLock};

let client = Client::builder(servers)
    // Anything that becomes `Bytes`.
    .auth("digest", "worker:worker-secret")
    .default_acl(Acl::creator_all())
    .connect()
    .await?;
let lock = FairLock::new(&client, "/locks/reports")?;
// Reads the lists up to `/`. As an operation of the client, it fails if the connection is lost.
let exposure = client.exposure("/locks/reports").await?;
// `Yes` for `/locks` itself, and until it exists, while everyone may change `/`.
if exposure.strangers_may_touch() != Answer::No {
    println!("open to strangers: {:?}", exposure.open_ancestors().collect::<Vec<_>>());
}
// end
        Ok((client, lock))
    }
}

#[tokio::test]
async fn the_sample_of_the_page_is_safe_as_written() {
    let (_, sample) = SOURCE.split_once("// begin\n").unwrap();
    let (sample, _) = sample.split_once("// end\n").unwrap();
    assert!(PAGE.contains(sample), "docs/security.md has another sample");

    let fixture = Fixture::start().await;
    let stranger = fixture.client().await;
    let servers = format!("{}{}", fixture.target.hosts(), fixture.chroot());
    let (client, lock) = page::sample(&servers).await.unwrap();
    let guard = lock.acquire().await.unwrap();
    catch_up(&stranger).await;
    let refusals = [
        stranger.delete(guard.path(), None).await,
        stranger.get_children("/locks/reports").await.map(drop),
        stranger.get_data(guard.path()).await.map(drop),
        stranger.delete("/locks/reports", None).await,
    ];
    for refusal in refusals {
        assert_eq!(refusal.unwrap_err().server_code(), Some(ErrorCode::NO_AUTH));
    }
    assert_eq!(guard.validate().await, Ok(()));
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.unwrap();
    // The cleanup of the fixture has another identity.
    Tree::of(&client).delete("/locks").await.unwrap();
}
