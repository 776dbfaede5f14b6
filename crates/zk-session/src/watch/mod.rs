//! What users receive from watches: the event of a one-shot watch, or the stream of a persistent one.

pub(crate) mod item;
pub(crate) mod stream;
pub(crate) mod watcher;
