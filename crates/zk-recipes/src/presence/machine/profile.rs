//! What a presence needs to know, and what its owner can see.

use bytestring::ByteString;
use jute_codec::Acl;
use zk_session::SessionId;

use crate::error::RecipeError;
use crate::machine::Failure;
use crate::presence::state::{Absence, Standing};

/// What a presence needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// The path of the znode.
    pub(crate) path: ByteString,
    /// The access control list of the znode, and of missing directories.
    pub(crate) acl: Vec<Acl>,
    /// What to wait out before the znode was created for the first time.
    pub(crate) at_first: Patience,
    /// What to wait out later. Refusals are always waited out then.
    pub(crate) later: Patience,
    /// Whether to create a znode that was deleted again without a pause, unless that has happened
    /// lately, and one that was refused as soon as something changes. Many owners whose znodes are
    /// deleted or refused together should pause.
    pub(crate) is_prompt: bool,
}

/// What a presence waits out instead of ending.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Patience {
    /// Only lost connections, and servers that are overloaded.
    Nothing,
    /// An ephemeral znode of another session too.
    Sessions,
    /// Whatever is in the way: znodes that are not ephemeral, and refusals.
    Everything,
}

/// How a presence ends without being asked to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// The first create was refused.
    Failed(Failure),
    /// The znode is not ephemeral.
    NotEphemeral,
    /// The client has stopped.
    Stopped,
    /// Another session has the znode.
    Taken(SessionId),
}

/// What the owner of a presence can see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Report {
    /// The znode, or why it is absent; `None` until it was created for the first time.
    pub(crate) standing: Option<Result<Standing, Absence>>,
    pub(crate) settled: Settled,
}

/// Which data the servers have accepted or refused.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Settled {
    pub(crate) generation: u64,
    /// Why the data of this generation were refused.
    pub(crate) refusal: Option<RecipeError>,
}
