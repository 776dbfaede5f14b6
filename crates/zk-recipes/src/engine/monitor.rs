//! Following a znode through its changes.

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::recipe::Session;
use zk_session::{Client, Time};

use super::drive::{Caller, drive};
use super::feed::Feed;
use crate::error::RecipeError;
use crate::machine::{Aspect, Monitor, Repeating};

/// A znode that is followed through its changes. It keeps the client's session open.
#[derive(Debug)]
pub(crate) struct Monitored {
    feed: Feed,
    machine: Repeating<Monitor>,
}

impl Monitored {
    pub(crate) fn new(client: &Client, path: &ByteString, aspect: Aspect) -> Self {
        let machine = Monitor::new(path.clone(), aspect).pausing();
        let machine = Repeating::new(machine);
        Self { feed: Feed::new(Session::of(client).lane()), machine }
    }

    /// Returns what the znode is now on the first call; each later call waits for a change. `None`
    /// means that it does not exist. Two equal results may follow each other, and changes that
    /// follow each other fast may be reported as one. After an error, it tries again, after a pause.
    ///
    /// Cancel safe: no change is lost.
    pub(crate) async fn next(
        &mut self,
        deadline: Option<Time>,
    ) -> Result<Option<Response>, RecipeError> {
        let mut caller = Caller { deadline };
        drive(&mut self.feed, &mut self.machine, &mut caller).await?.map_err(RecipeError::of)
    }
}
