//! A number that clients share: a shared value with a format.

mod format;

use std::fmt;
use std::time::Duration;

use zk_session::{Acl, Client, ConfigError};

pub use self::format::CounterFormat;

use crate::engine::call::Call;
use crate::shared_value::{SharedValue, SharedValueBuilder, ValueChanges, ValueError, Versioned};
use crate::stream::stream;

/// A number that clients share, stored in the data of one znode.
///
/// Building a counter does no I/O, and clones are cheap. The znode is created, written and read as
/// that of a [`SharedValue`], which also describes the costs and the permissions.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, Counter};
///
/// let client = Client::connect(address.to_string()).await?;
/// let visits = Counter::new(&client, "/counters/visits")?;
/// assert_eq!(visits.add(2).await?, 2);
/// assert_eq!(visits.add(-3).await?, -1);
/// assert_eq!(visits.get().await?, -1);
/// # Ok(()) }
/// ```
///
/// **Each addition counts once.** After a lost connection, requests are replayed. If the session
/// ends before the outcome is known, the error is [`ValueError::Undecided`]; do not repeat such an
/// addition, unless counting it twice is harmless.
#[derive(Clone)]
pub struct Counter {
    value: SharedValue,
    format: CounterFormat,
    initial: i64,
}

/// Options of a [`Counter`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct CounterBuilder {
    value: SharedValueBuilder,
    format: CounterFormat,
    initial: i64,
}

/// The numbers of a [`Counter`] over time; see [`Counter::changes`].
#[derive(Debug)]
pub struct CounterChanges {
    changes: ValueChanges,
    counter: Counter,
    has_ended: bool,
}

stream!(CounterChanges, Option<i64>, ValueError);

impl Counter {
    /// Builds a counter at a path, with default options: decimal text that starts at 0.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        Self::builder(client, path)?.build()
    }

    /// Returns a builder for a counter at a path.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(client: &Client, path: &str) -> Result<CounterBuilder, ConfigError> {
        let value = SharedValue::builder(client, path)?;
        Ok(CounterBuilder { value, format: CounterFormat::default(), initial: 0 })
    }

    /// Reads the number, or creates the znode with the initial number.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. **Cancel
    /// safe**. It costs one read if the znode exists.
    ///
    /// # Errors
    ///
    /// [`ValueError::Malformed`], and the errors of [`SharedValue::get`].
    pub fn get(&self) -> Call<i64, ValueError> {
        let counter = self.clone();
        self.value.reading(move |value| counter.decode(value.bytes()))
    }

    /// Adds to the number, and returns the sum.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned: the addition
    /// counts once. **Cancel safe** in that it counts once or not at all. It costs a read and a
    /// write, and both again whenever another client has changed the number in between; pauses
    /// between them grow to a second. While others write often, it reads twice for each write.
    ///
    /// # Errors
    ///
    /// [`ValueError::Overflow`] if the sum does not fit, [`ValueError::Malformed`], and the errors
    /// of [`SharedValue::update`], in particular [`ValueError::Undecided`].
    pub fn add(&self, delta: i64) -> Call<i64, ValueError> {
        let counter = self.clone();
        self.value.writing(async move |value, deadline| {
            let add = |value: i64| {
                let overflow = ValueError::Overflow { value, delta };
                let sum = value.checked_add(delta).ok_or_else(|| overflow.clone())?;
                counter.format.encode(sum).ok_or(overflow)
            };
            let change = |old: &Versioned| counter.decode(old.bytes()).and_then(add);
            counter.decode(value.try_update(deadline, change).await??.bytes())
        })
    }

    /// Replaces the number, if it is the expected one.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. **Cancel
    /// safe** in that the number is written once or not at all. It costs a read, and a write if the
    /// number is the expected one.
    ///
    /// # Errors
    ///
    /// [`ValueError::Conflict`] if the number is another one; [`ValueError::Overflow`] if the new
    /// number does not fit into the format; otherwise as for [`add`](Self::add).
    pub fn compare_and_set(&self, expected: i64, new: i64) -> Call<(), ValueError> {
        let counter = self.clone();
        self.value.writing(async move |value, deadline| {
            let overflow = ValueError::Overflow { value: new, delta: 0 };
            let bytes = counter.format.encode(new).ok_or(overflow)?;
            let change = |old: &Versioned| match counter.decode(old.bytes())? {
                value if value == expected => Ok(bytes.clone()),
                _ => Err(ValueError::Conflict),
            };
            value.try_update(deadline, change).await?.map(drop)
        })
    }

    /// Follows the number: the current one first, and then the newest one after each change. See
    /// [`SharedValue::changes`].
    pub fn changes(&self) -> CounterChanges {
        CounterChanges { changes: self.value.changes(), counter: self.clone(), has_ended: false }
    }

    /// The path of the znode.
    pub fn path(&self) -> &str {
        self.value.path()
    }

    fn decode(&self, data: &bytes::Bytes) -> Result<i64, ValueError> {
        if data.is_empty() {
            return Ok(self.initial);
        }
        self.format.decode(data).ok_or_else(|| ValueError::Malformed {
            path: self.path().to_owned(),
            data: data.escape_ascii().to_string(),
            expected: self.format.name(),
        })
    }
}

impl CounterBuilder {
    /// Sets how the number is stored. All clients of a counter must use the same format. Default:
    /// [`CounterFormat::Decimal`].
    pub fn format(mut self, format: CounterFormat) -> Self {
        self.format = format;
        self
    }

    /// Sets the number of a znode that does not exist yet, or has no data. Default: 0.
    pub fn initial(mut self, initial: i64) -> Self {
        self.initial = initial;
        self
    }

    /// Sets the access control list of what the counter creates. See [`SharedValueBuilder::acl`].
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.value = self.value.acl(acl);
        self
    }

    /// Makes each operation give up after this time. See [`SharedValueBuilder::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.value = self.value.timeout(timeout);
        self
    }

    /// Checks the options and builds the counter. This does no I/O.
    ///
    /// # Errors
    ///
    /// The access control list is empty, or the initial number does not fit into the format.
    pub fn build(self) -> Result<Counter, ConfigError> {
        let Self { value, format, initial } = self;
        let Some(bytes) = format.encode(initial) else {
            return Err(ConfigError::Option {
                option: "initial number of the counter",
                value: initial.to_string(),
                defect: zk_session::OptionDefect::Other("it does not fit into the format"),
            });
        };
        Ok(Counter { value: value.initial(bytes).build()?, format, initial })
    }
}

impl CounterChanges {
    /// Returns the current number on the first call. Each later call waits for a change, and
    /// returns the newest number. `None` means that the znode does not exist. Two equal results may
    /// follow each other.
    ///
    /// **Connection loss** and the end of the session are waited out. **Cancel safe**: no change is
    /// lost.
    ///
    /// # Errors
    ///
    /// [`ValueError::Malformed`]; [`ValueError::Recipe`] if a server refuses to read the znode, or
    /// the client has stopped. The next call continues.
    pub async fn next(&mut self) -> Result<Option<i64>, ValueError> {
        let value = self.changes.next().await?;
        value.map(|value| self.counter.decode(value.bytes())).transpose()
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter")
            .field("path", &self.path())
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}
