//! Access control lists.

use jute_codec::OpCode;
use zk_session::{Acl, Client, Op, Stat, Target, Version, Zxid};

use super::SettledClient;
use super::change::{Change, Judged, make};
use super::error::SettledError;
use crate::engine::call::Call;
use crate::error::check_path;

/// What a [`set_acl`](SettledClient::set_acl) has achieved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AclInForce {
    /// The metadata of the znode, which has the list.
    pub stat: Stat,
    /// Whether it is certain that this call has set the list. If not, a reply was lost, and the znode
    /// has the list that the call was to set: the call has set it, or another client has set the same
    /// one. Nobody can tell the two apart.
    pub is_certain: bool,
}

impl SettledClient {
    /// Replaces the access control list of a znode. If metadata is given, for example that of
    /// [`get_acl`](Self::get_acl), it must be that of the same znode, whose list must not have changed
    /// since ([`Stat::aversion`]). Otherwise the metadata is read first, which costs a request, and
    /// again if others change the list meanwhile.
    ///
    /// No transaction can contain this operation, so no marker shows whether it was applied. After a
    /// **connection loss**, the list is read behind a write barrier, in the next session if this one
    /// has ended, and the request is repeated if the list has not changed. **Cancel safe** in that the
    /// list is set or not. Needs ADMIN; if this takes ADMIN and READ from the caller, a lost reply
    /// makes the outcome unknown. So does a list with the scheme `auth`, which servers replace by
    /// others: give the identities themselves.
    ///
    /// # Errors
    ///
    /// [`SettledError::Refused`] if a server refuses it. `BAD_VERSION` always means that another
    /// client has set the list. [`SettledError::Overtaken`] if a reply was lost, and others have
    /// changed the list more than once since, or in a way that hides the outcome.
    /// [`SettledError::Replaced`] if the znode was deleted, and another one was created at its path; if
    /// no reply was lost, the list of the other one was set, since servers do not compare creation
    /// zxids. [`SettledError::SessionEnded`] if the session ended before the outcome was known, and
    /// the client opens no other one. [`SettledError::Unknown`] if the time was up before it was
    /// known, if the client stopped, if a server refuses to read the list, for example because the
    /// znode is deleted, or if the session ended and a server refuses the request in the next one.
    /// [`SettledError::Recipe`] if nothing was applied for another reason.
    pub fn set_acl(
        &self,
        path: &str,
        acl: Vec<Acl>,
        expected: Option<Stat>,
    ) -> Call<AclInForce, SettledError> {
        let client = self.profile.client.clone();
        let change = SetAcl { path: path.to_owned(), acl, is_expected: expected.is_some() };
        let known = expected.map(|stat| (stat.aversion, stat.czxid));
        self.call(&path.into(), async move |deadline| {
            if change.path != "/" {
                check_path("path to write", &change.path)?;
            }
            make(&client, &change, known, deadline).await
        })
    }
}

struct SetAcl {
    path: String,
    acl: Vec<Acl>,
    /// The caller has given the version.
    is_expected: bool,
}

/// How two lists compare.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Likeness {
    Same,
    Other,
    /// The server has replaced or hidden a part of the list.
    Hidden,
}

impl Change for SetAcl {
    /// The version of the list, and the creation of the znode.
    type Version = (Version, Zxid);
    type Found = (Vec<Acl>, Stat);
    type Reply = Stat;
    type Output = AclInForce;

    fn target(&self) -> Target {
        Target::new(OpCode::SET_ACL, self.path.as_str())
    }

    fn read(&self, client: &Client) -> Op<Self::Found> {
        client.get_acl(&self.path)
    }

    fn version(&self, (_, stat): &Self::Found) -> Self::Version {
        (stat.aversion, stat.czxid)
    }

    fn send(&self, client: &Client, (version, _): Self::Version) -> Op<Stat> {
        client.set_acl(&self.path, self.acl.clone(), Some(version))
    }

    fn applied(&self, (_, created): Self::Version, stat: Stat) -> Result<AclInForce, SettledError> {
        if stat.czxid != created {
            return Err(SettledError::Replaced { target: self.target(), is_applied: true });
        }
        Ok(AclInForce { stat, is_certain: true })
    }

    fn judge(
        &self,
        (version, created): Self::Version,
        (found, stat): Self::Found,
    ) -> Judged<AclInForce> {
        if stat.czxid != created {
            let target = self.target();
            return Judged::Undecidable(SettledError::Replaced { target, is_applied: false });
        }
        let changes = i64::from(stat.aversion.0) - i64::from(version.0);
        let likeness = compare(&self.acl, &found);
        match (changes, likeness) {
            (..=0, _) => Judged::Unchanged,
            (1, Likeness::Other) => Judged::Beaten,
            (1, Likeness::Same) => Judged::InForce(AclInForce { stat, is_certain: false }),
            // A caller that sets a list at any version wants it to be there, no matter who set it
            // last.
            (_, Likeness::Same) if !self.is_expected => {
                Judged::InForce(AclInForce { stat, is_certain: false })
            }
            _ => Judged::Undecidable(SettledError::Overtaken { target: self.target() }),
        }
    }
}

/// Compares a list with what a server has made of a list. Servers ignore repeated entries.
fn compare(sent: &[Acl], found: &[Acl]) -> Likeness {
    let is_auth = |entry: &&Acl| &*entry.id.scheme == "auth";
    let is_hidden = |entry: &Acl| &*entry.id.scheme == "digest" && entry.id.id.ends_with(":x");
    let user = |entry: &Acl| entry.id.id.split(':').next().map(str::to_owned);
    // What the server hides may be this entry.
    let fits = |one: &Acl, other: &Acl| {
        one == other
            || (is_hidden(other)
                && &*one.id.scheme == "digest"
                && one.perms == other.perms
                && user(one) == user(other))
    };
    let is_there = |entry: &Acl| found.iter().any(|other| fits(entry, other));
    let is_of_auth = |entry: &Acl| sent.iter().any(|one| is_auth(&one) && one.perms == entry.perms);
    let is_sent = |entry: &Acl| sent.iter().any(|one| fits(one, entry)) || is_of_auth(entry);
    if !sent.iter().filter(|entry| !is_auth(entry)).all(is_there) || !found.iter().all(is_sent) {
        return Likeness::Other;
    }
    let is_exact = !sent.iter().any(|entry| is_auth(&entry)) && !found.iter().any(is_hidden);
    if is_exact { Likeness::Same } else { Likeness::Hidden }
}

#[cfg(test)]
mod tests {
    use zk_session::Permissions;

    use super::*;

    fn entry(perms: Permissions, scheme: &str, id: &str) -> Acl {
        Acl::new(perms, scheme, id)
    }

    #[test]
    fn lists_are_compared_as_servers_keep_them() {
        let (all, read) = (Permissions::ALL, Permissions::READ);
        let one = entry(all, "digest", "a:hash");
        let other = entry(read, "world", "anyone");
        let hidden = entry(all, "digest", "a:x");
        let auth = entry(all, "auth", "");
        let compare = |sent: &[&Acl], found: &[&Acl]| {
            let owned = |list: &[&Acl]| list.iter().copied().cloned().collect::<Vec<_>>();
            compare(&owned(sent), &owned(found))
        };
        assert_eq!(compare(&[&one, &other], &[&other, &one]), Likeness::Same);
        assert_eq!(compare(&[&one, &one], &[&one]), Likeness::Same);
        assert_eq!(compare(&[&one, &other], &[&one]), Likeness::Other);
        assert_eq!(compare(&[&one], &[&one, &other]), Likeness::Other);
        assert_eq!(compare(&[&one], &[&hidden]), Likeness::Hidden);
        assert_eq!(compare(&[&entry(read, "digest", "a:hash")], &[&hidden]), Likeness::Other);
        assert_eq!(compare(&[&auth], &[&one]), Likeness::Hidden);
        assert_eq!(compare(&[&auth], &[&other]), Likeness::Other);
    }
}
