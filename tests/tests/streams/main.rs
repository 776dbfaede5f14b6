//! All streams of the library, as streams of the crate `futures`: no item is lost when `next` and
//! `poll_next` alternate and futures are dropped, each task is woken, also in another runtime, and a
//! stream ends with its client. A refusal that lasts costs few requests.

mod alternating;
mod ending;
mod refusals;
mod runtimes;

use std::any::type_name;
use std::fs;
use std::path::Path;

use futures_util::Stream;
use zk_recipes::{
    Cache, CounterChanges, GroupWatch, Leaders, Phases, StateStream, ValueChanges, ZnodeChanges,
};
use zk_session::WatchStream;
use zk_session::recipe::Lane;

/// The directory of the znodes.
const APP: &str = "/app";

/// Compiles only for a stream that can be moved, and polled without being pinned.
fn stream<S: Stream + Send + Unpin + 'static>() -> &'static str {
    type_name::<S>()
}

/// The streams.
fn streams() -> [&'static str; 10] {
    [
        stream::<Cache>(),
        stream::<CounterChanges>(),
        stream::<GroupWatch>(),
        stream::<Lane>(),
        stream::<Leaders>(),
        stream::<Phases>(),
        stream::<StateStream>(),
        stream::<ValueChanges>(),
        stream::<WatchStream>(),
        stream::<ZnodeChanges>(),
    ]
}

#[test]
fn each_type_with_an_async_next_is_a_stream() {
    fn count(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).expect("it can be listed");
        let of_entry = |path: &Path| match path.is_dir() {
            true => count(path),
            false => {
                let text = fs::read_to_string(path).unwrap_or_default();
                text.matches("    pub async fn next(&mut self)").count()
            }
        };
        entries.map(|entry| of_entry(&entry.expect("it can be listed").path())).sum()
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let found = ["zk-session/src", "zk-recipes/src"].map(|folder| count(&crates.join(folder)));
    let listed = streams();
    assert_eq!(found.iter().sum::<usize>(), listed.len(), "one is missing here: {listed:?}");
}
