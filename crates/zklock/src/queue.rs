//! What the servers know of a lock: its entries, in the order of the queue.
//!
//! The kind of a lock is read from the names of its entries, so those of Curator and kazoo are
//! understood too.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use zk_recipes::{Client, ErrorCode, OpError, SessionId, Stat, Version};

use crate::text::printable;

/// How many requests are in flight at a time.
pub(crate) const IN_FLIGHT: usize = 64;

/// The number of digits that servers append to the name of a sequential znode.
const DIGITS: usize = 10;

/// The number of hexadecimal digits of the id in the data of an exclusive lock.
const ID_DIGITS: usize = 32;

/// What an entry of a lock is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Role {
    /// The only entry of an exclusive lock.
    Exclusive,
    Leader,
    /// A semaphore of Curator, whose number of permits no znode has.
    Lease,
    /// A semaphore of kazoo. A lease is created only when there is one, so each of them holds.
    KazooLease,
    Lock,
    Permit,
    Read,
    Write,
}

/// The ends of names before the sequence number.
const MARKS: [(&str, Role); 8] = [
    ("lock-", Role::Lock),
    ("permit-", Role::Permit),
    ("__READ__", Role::Read),
    ("__WRIT__", Role::Write),
    ("lease-", Role::Lease),
    ("latch-", Role::Leader),
    ("__lock__", Role::Lock),
    ("__rlock__", Role::Read),
];

/// The entries of a lock, without their data.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) names: Vec<Name>,
    /// Children that are not entries.
    pub(crate) others: Vec<String>,
    pub(crate) stat: Stat,
}

/// What a read has found.
#[derive(Debug)]
pub(crate) enum Found<T> {
    Gone,
    /// This client may not read it.
    Hidden,
    There(T),
}

/// The name of an entry.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Name {
    pub(crate) number: u32,
    pub(crate) role: Role,
    pub(crate) name: String,
}

/// A holder or a waiter.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) place: usize,
    pub(crate) role: Role,
    /// Whether it holds the lock; `None` if the znodes do not say.
    pub(crate) holds: Option<bool>,
    /// What the servers tell of it; `None` if this client may not read it.
    pub(crate) facts: Option<Facts>,
}

/// What the znode of an entry says.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) identity: String,
    pub(crate) session: Option<SessionId>,
    pub(crate) since: SystemTime,
    pub(crate) token: i64,
    pub(crate) version: Version,
}

/// A lock with its entries.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) path: String,
    /// The kind in words; `None` if the path has neither entries nor is an exclusive lock.
    pub(crate) kind: Option<&'static str>,
    pub(crate) entries: Vec<Entry>,
    /// Whether this client may not list the entries, so that nothing is known of them.
    pub(crate) is_hidden: bool,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Leader => "leader",
            Self::Lease | Self::KazooLease => "lease",
            Self::Lock => "lock",
            Self::Permit => "permit",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Listing {
    /// Returns whether the data of the directory is the number of permits.
    pub(crate) fn has_permits(&self) -> bool {
        self.names.first().is_some_and(|first| first.role == Role::Permit)
    }

    /// Returns the children that may be leases of kazoo's `Semaphore`. They are, if the data of the
    /// directory is the number of leases.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &str> {
        let leases = self.others.iter().map(|name| &**name).filter(|name| is_lease(name));
        leases.filter(|_| self.names.is_empty())
    }
}

impl Name {
    /// Returns what has such an entry, in words.
    pub(crate) fn lock(&self) -> &'static str {
        match self.role {
            Role::Exclusive => "an exclusive lock",
            Role::Leader => "an election",
            Role::Lock if self.name.contains("__lock__") => "a lock or a writer of kazoo",
            Role::Lock => "a fair lock",
            Role::Read if self.name.contains("__rlock__") => "a read/write lock of kazoo",
            Role::Read | Role::Write => "a read/write lock",
            Role::Lease | Role::Permit => "a semaphore",
            Role::KazooLease => "a semaphore of kazoo",
        }
    }

    /// Returns the entry with this name; `None` if it has left.
    pub(crate) fn entry(&self, path: &str, found: &Found<(Bytes, Stat)>) -> Option<Entry> {
        Entry::found(path, self.role, found)
    }
}

impl Entry {
    fn found(path: &str, role: Role, found: &Found<(Bytes, Stat)>) -> Option<Self> {
        let facts = match found {
            Found::Gone => return None,
            Found::Hidden => None,
            Found::There((data, stat)) => Some(Facts::new(role, data, stat)),
        };
        Some(Self { path: path.to_owned(), place: 0, role, holds: None, facts })
    }

    /// Returns how long the entry has existed by the clock of this machine.
    pub(crate) fn age(&self, now: SystemTime) -> Option<Duration> {
        let since = self.facts.as_ref()?.since;
        Some(now.duration_since(since).unwrap_or_default())
    }

    pub(crate) fn token(&self) -> Option<i64> {
        self.facts.as_ref().map(|facts| facts.token)
    }

    /// Returns what identifies the entry to people: some programs store nothing.
    pub(crate) fn shown(&self) -> &str {
        let identity = self.facts.as_ref().map(|facts| &*facts.identity);
        identity.filter(|it| !it.is_empty()).unwrap_or_else(|| self.name())
    }

    /// Returns the name of the znode.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl Facts {
    fn new(role: Role, data: &[u8], stat: &Stat) -> Self {
        let id = Some(data).filter(|_| role == Role::Exclusive).and_then(behind_id);
        let identity = String::from_utf8_lossy(id.unwrap_or(data));
        Self {
            identity: printable(identity.trim()),
            session: stat.ephemeral_owner,
            since: stat.ctime,
            token: stat.czxid.0,
            version: stat.version,
        }
    }
}

impl Queue {
    /// Returns a queue of which nothing is known, or in which nothing is.
    fn empty(path: &str, is_hidden: bool) -> Self {
        Self { path: path.to_owned(), kind: None, entries: Vec::new(), is_hidden }
    }
}

/// Reads a lock with all its entries.
pub(crate) async fn read(client: &Client, path: &str) -> Result<Queue, OpError> {
    let listing = match list(client, path).await? {
        Found::There(listing) => listing,
        Found::Gone => return Ok(Queue::empty(path, false)),
        Found::Hidden => return Ok(Queue::empty(path, true)),
    };
    let of = |kind, entries| Queue { kind, entries, ..Queue::empty(path, false) };
    if listing.stat.ephemeral_owner.is_some() {
        let entry = read_exclusive(client, path).await?;
        return Ok(of(entry.is_some().then_some("exclusive"), entry.into_iter().collect()));
    }
    let permits = permits(client, path, &listing).await?;
    let mut kind = kind(&listing.names);
    let mut entries = read_entries(client, path, &listing.names).await?;
    if permits.is_some() && listing.leases().next().is_some() {
        kind = Some("semaphore");
        entries = read_leases(client, path, &listing).await?;
    }
    for (place, entry) in entries.iter_mut().enumerate() {
        entry.place = place;
    }
    mark_holders(&mut entries, permits);
    Ok(of(kind, entries))
}

/// Reads the leases of kazoo's `Semaphore`, the oldest one first. Who waits has none: it waits for the
/// lock whose path ends with `-__lock__`.
async fn read_leases(
    client: &Client,
    path: &str,
    listing: &Listing,
) -> Result<Vec<Entry>, OpError> {
    let name = |name: &str| Name { number: 0, role: Role::KazooLease, name: name.to_owned() };
    let names: Vec<Name> = listing.leases().map(name).collect();
    let mut entries = read_entries(client, path, &names).await?;
    entries.sort_by_key(Entry::token);
    Ok(entries)
}

/// Reads the znode of an exclusive lock. Returns `None` if it is gone.
pub(crate) async fn read_exclusive(client: &Client, path: &str) -> Result<Option<Entry>, OpError> {
    let found = found(client.get_data(path).await)?;
    let entry = Entry::found(path, Role::Exclusive, &found);
    Ok(entry.map(|entry| Entry { holds: Some(true), ..entry }))
}

/// Returns the entry in an ephemeral znode; `None` if it is not an exclusive lock of ours, all of
/// which have an id in their data.
pub(crate) fn our_exclusive(path: &str, found: &Found<(Bytes, Stat)>) -> Option<Entry> {
    match found {
        Found::There((data, _)) => behind_id(data)?,
        Found::Gone | Found::Hidden => return None,
    };
    Entry::found(path, Role::Exclusive, found).map(|entry| Entry { holds: Some(true), ..entry })
}

/// Lists the entries of a lock, in the order of the queue.
pub(crate) async fn list(client: &Client, path: &str) -> Result<Found<Listing>, OpError> {
    let listed = found(client.get_children_with_stat(path).await)?;
    Ok(listed.map(|(names, stat)| sort(names, stat)))
}

/// Sorts the children of a znode into entries and others.
fn sort(children: Vec<impl AsRef<str>>, stat: Stat) -> Listing {
    let mut listing = Listing { names: Vec::new(), others: Vec::new(), stat };
    for child in children {
        match parse(child.as_ref()) {
            Some(name) => listing.names.push(name),
            None => listing.others.push(child.as_ref().to_owned()),
        }
    }
    listing.names.sort_unstable();
    listing
}

/// Reads entries of a lock, without those that have left.
pub(crate) async fn read_entries(
    client: &Client,
    path: &str,
    names: &[Name],
) -> Result<Vec<Entry>, OpError> {
    let mut entries = Vec::new();
    for names in names.chunks(IN_FLIGHT) {
        let paths: Vec<String> = names.iter().map(|it| child(path, &it.name)).collect();
        for ((name, path), found) in names.iter().zip(&paths).zip(read_all(client, &paths).await?) {
            entries.extend(name.entry(path, &found));
        }
    }
    Ok(entries)
}

/// Reads the data of znodes.
pub(crate) async fn read_all(
    client: &Client,
    paths: &[String],
) -> Result<Vec<Found<(Bytes, Stat)>>, OpError> {
    let mut all = Vec::new();
    for paths in paths.chunks(IN_FLIGHT) {
        let reads: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
        for read in reads {
            all.push(found(read.await)?);
        }
    }
    Ok(all)
}

/// Lists the children of as many znodes as may be listed at a time.
pub(crate) async fn list_all(
    client: &Client,
    paths: &[String],
) -> Result<Vec<Found<Listing>>, OpError> {
    let mut all = Vec::new();
    for paths in paths.chunks(IN_FLIGHT) {
        let lists: Vec<_> = paths.iter().map(|it| client.get_children_with_stat(it)).collect();
        for list in lists {
            all.push(found(list.await)?.map(|(names, stat)| sort(names, stat)));
        }
    }
    Ok(all)
}

/// Returns the kind of lock that has these entries.
pub(crate) fn kind(names: &[Name]) -> Option<&'static str> {
    let has = |roles: &[Role]| names.iter().any(|name| roles.contains(&name.role));
    let reads = has(&[Role::Read, Role::Write]);
    let kinds = [
        // The writers of kazoo have the names of its locks.
        (has(&[Role::Lock]) && !reads, "fair"),
        (reads, "read/write"),
        (has(&[Role::Permit, Role::Lease]), "semaphore"),
        (has(&[Role::Leader]), "election"),
    ];
    let mut found = kinds.iter().filter(|(is_there, _)| *is_there).map(|(_, kind)| *kind);
    let first = found.next();
    if found.next().is_some() { Some("mixed") } else { first }
}

/// Reads how many permits a semaphore has; `None` if none is stored, or it is not a semaphore.
async fn permits(client: &Client, path: &str, listing: &Listing) -> Result<Option<usize>, OpError> {
    if !listing.has_permits() && listing.leases().next().is_none() {
        return Ok(None);
    }
    Ok(permits_in(&found(client.get_data(path).await)?))
}

/// Returns how many permits the data of a semaphore's directory says it has.
pub(crate) fn permits_in(found: &Found<(Bytes, Stat)>) -> Option<usize> {
    let Found::There((data, _)) = found else { return None };
    std::str::from_utf8(data).ok()?.parse().ok()
}

/// Returns whether a name is like that of a lease of kazoo's `Semaphore`, which has no number.
pub(crate) fn is_lease(name: &str) -> bool {
    name.len() == ID_DIGITS && name.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

/// Says of each entry whether it holds the lock.
fn mark_holders(entries: &mut [Entry], permits: Option<usize>) {
    let roles: Vec<Role> = entries.iter().map(|it| it.role).collect();
    for (entry, holds) in entries.iter_mut().zip(holds(&roles, permits)) {
        entry.holds = holds;
    }
}

/// Returns whether each entry of a queue holds the lock; `None` if the znodes do not say.
pub(crate) fn holds(
    roles: &[Role],
    permits: Option<usize>,
) -> impl Iterator<Item = Option<bool>> + '_ {
    let mut are_readers = true;
    roles.iter().enumerate().map(move |(place, role)| {
        are_readers &= *role == Role::Read;
        match role {
            Role::Exclusive | Role::Leader | Role::Lock | Role::Write => Some(place == 0),
            Role::Read => Some(are_readers),
            Role::Permit => permits.map(|permits| place < permits),
            Role::Lease => None,
            Role::KazooLease => Some(true),
        }
    })
}

/// Parses the name of an entry. Returns `None` for other names.
pub(crate) fn parse(name: &str) -> Option<Name> {
    let (head, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    if !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let is_marked = |mark: &str| {
        let Some(id) = head.strip_suffix(mark) else { return false };
        mark.starts_with('_') || id.is_empty() || id.ends_with('-')
    };
    let (_, role) = MARKS.iter().find(|(mark, _)| is_marked(mark))?;
    Some(Name { number: digits.parse().ok()?, role: *role, name: name.to_owned() })
}

/// Returns what follows the id in the data of an exclusive lock; `None` if it has no id.
fn behind_id(data: &[u8]) -> Option<&[u8]> {
    let (id, rest) = data.split_at_checked(ID_DIGITS)?;
    let is_id = id.iter().all(u8::is_ascii_hexdigit);
    match rest {
        [] if is_id => Some(rest),
        [b' ', identity @ ..] if is_id => Some(identity),
        _ => None,
    }
}

/// Returns the path of a child.
pub(crate) fn child(path: &str, name: &str) -> String {
    format!("{}/{name}", path.trim_end_matches('/'))
}

impl<T> Found<T> {
    fn map<U>(self, map: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Self::Gone => Found::Gone,
            Self::Hidden => Found::Hidden,
            Self::There(value) => Found::There(map(value)),
        }
    }
}

/// Returns what a read has found. It is not a failure if this client may not read it.
pub(crate) fn found<T>(result: Result<T, OpError>) -> Result<Found<T>, OpError> {
    match result {
        Ok(value) => Ok(Found::There(value)),
        Err(error) if error.is_no_node() => Ok(Found::Gone),
        Err(error) if error.server_code() == Some(ErrorCode::NO_AUTH) => Ok(Found::Hidden),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_implementations_are_known() {
        for (name, number, role) in [
            ("0123456789abcdef0123456789abcdef-lock-0000000007", 7, Role::Lock),
            ("_c_8d3a1f6e-b8f0-4a0e-9f53-2d6a6f3f8c11-lock-0000000010", 10, Role::Lock),
            ("_c_8d3a1f6e-b8f0-4a0e-9f53-2d6a6f3f8c11-__WRIT__0000000002", 2, Role::Write),
            ("_c_8d3a1f6e-b8f0-4a0e-9f53-2d6a6f3f8c11-latch-0000000000", 0, Role::Leader),
            ("0123456789abcdef__rlock__0000000003", 3, Role::Read),
            ("0123456789abcdef__lock__0000000004", 4, Role::Lock),
            ("lease-0000000001", 1, Role::Lease),
            ("a-permit-0000000001", 1, Role::Permit),
        ] {
            let name = name.to_owned();
            assert_eq!(parse(&name), Some(Name { number, role, name: name.clone() }), "{name}");
        }
        for name in
            ["unlock-0000000001", "a-lock-000000001", "a-lock-x000000001", "permits-set", "é"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn holders_depend_on_the_kind() {
        let held =
            |roles: &[Role], permits| -> Vec<Option<bool>> { holds(roles, permits).collect() };
        use Role::{KazooLease, Lease, Lock, Permit, Read, Write};
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(held(&[Lock, Lock], None), [yes, no]);
        assert_eq!(held(&[Read, Read, Write, Read], None), [yes, yes, no, no]);
        assert_eq!(held(&[Write, Read], None), [yes, no]);
        assert_eq!(held(&[Permit, Permit, Permit], Some(2)), [yes, yes, no]);
        assert_eq!(held(&[Permit], None), [None]);
        assert_eq!(held(&[Lease], Some(2)), [None]);
        assert_eq!(held(&[KazooLease, KazooLease], Some(2)), [yes, yes]);
    }

    #[test]
    fn kinds_that_exclude_each_other_are_mixed() {
        let of = |roles: &[Role]| {
            let name = |role: &Role| Name { number: 0, role: *role, name: String::new() };
            kind(&roles.iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(of(&[Role::Lock]), Some("fair"));
        assert_eq!(of(&[Role::Read, Role::Lock]), Some("read/write"));
        assert_eq!(of(&[Role::Leader, Role::Lock]), Some("mixed"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_lease_of_kazoo_has_the_name_of_an_id() {
        assert!(is_lease("0123456789abcdef0123456789abcdef"));
        for name in ["0123456789abcdef0123456789abcde", "0123456789ABCDEF0123456789abcdef", ""] {
            assert!(!is_lease(name), "{name}");
        }
    }

    #[test]
    fn identities_are_shown_without_ids() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(behind_id(format!("{id} host").as_bytes()), Some(&b"host"[..]));
        assert_eq!(behind_id(id.as_bytes()), Some(&b""[..]));
        assert_eq!(behind_id(format!("{id}f").as_bytes()), None);
    }
}
