//! Permissions of a lock's directory: what this client may do there, and who could delete an entry.

use zk_recipes::{Acl, Client, ErrorCode, OpError, Permissions};

use super::finding::{Findings, Level};
use super::session::rehearse;
use crate::queue::{Found, found};

/// The length of a reply that Java clients accept, by default.
const REPLY_MAX: usize = 1_048_575;

/// What the program knows of a lock.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) path: String,
    /// The znode whose permissions decide: the directory, or the nearest ancestor that exists.
    pub(super) directory: Option<String>,
    /// The identities that may delete entries, without their secrets.
    pub(super) deleters: Option<Vec<String>>,
}

/// Checks a lock.
///
/// `has_identity` says whether the client has credentials of any kind.
pub(super) async fn check(
    client: &Client,
    path: &str,
    has_identity: bool,
    findings: &mut Findings,
) -> Lock {
    let mut lock = Lock { path: path.to_owned(), directory: None, deleters: None };
    let directory = match directory(client, path).await {
        Ok(directory) => directory,
        Err(error) => {
            unknown(path, &error, findings);
            return lock;
        }
    };
    let list = match client.get_acl(&directory).await {
        Ok((list, _)) => list,
        Err(error) => {
            unknown(&directory, &error, findings);
            Vec::new()
        }
    };
    if !list.is_empty() {
        lock.deleters = Some(judge(&list, &directory, findings));
    }
    let is_allowed = abilities(client, &directory, findings).await;
    if is_allowed && !has_identity && is_for_others(&list) {
        findings.add(
            Level::Problem,
            "acl-ignored",
            &*directory,
            "This client has no identity, and may create and delete there against its ACL: the server \
             does not check permissions, so everyone may take locks away.",
            "Remove skipACL from the server.",
        );
    }
    lock.directory = Some(directory);
    lock
}

/// Returns the znode whose permissions decide who may create and delete the entries of a lock.
async fn directory(client: &Client, path: &str) -> Result<String, OpError> {
    let mut path = path;
    loop {
        match client.exists(path).await {
            // An exclusive lock is a znode without children.
            Ok(Some(stat)) if stat.ephemeral_owner.is_some() => {}
            Ok(None) => {}
            Ok(Some(_)) => return Ok(path.to_owned()),
            // From 3.8.4 and 3.9.2 on, servers refuse this only if the znode exists.
            Err(error) if error.server_code() == Some(ErrorCode::NO_AUTH) => {
                return Ok(path.to_owned());
            }
            Err(error) => return Err(error),
        }
        let parent = path.rfind('/').and_then(|at| path.get(..at)).unwrap_or_default();
        if parent.is_empty() {
            return Ok("/".to_owned());
        }
        path = parent;
    }
}

fn judge(list: &[Acl], directory: &str, findings: &mut Findings) -> Vec<String> {
    let having = |permission| list.iter().filter(move |acl| acl.perms.intersects(permission));
    let anyone = |permission| having(permission).any(|acl| acl.id.scheme == "world");
    if anyone(Permissions::DELETE) {
        findings.add(
            Level::Warning,
            "anyone-deletes",
            directory,
            "Everyone who reaches the servers may delete the entries of holders, and so take their \
             locks.",
            "Create it with --digest-file, or change its ACL.",
        );
    } else if anyone(Permissions::ADMIN) {
        findings.add(
            Level::Warning,
            "anyone-administers",
            directory,
            "Everyone who reaches the servers may change its ACL, and then delete entries.",
            "Take ADMIN from world:anyone.",
        );
    }
    having(Permissions::DELETE).map(name).collect()
}

/// Returns whether a list gives CREATE only to identities that have credentials.
fn is_for_others(list: &[Acl]) -> bool {
    let mut creating =
        list.iter().filter(|acl| acl.perms.intersects(Permissions::CREATE)).peekable();
    let has_secret = |acl: &Acl| ["digest", "sasl", "x509"].contains(&&*acl.id.scheme);
    !list.is_empty() && (creating.peek().is_none() || creating.all(has_secret))
}

/// Returns an identity. A digest is shown without the hash of its password.
fn name(acl: &Acl) -> String {
    let id = &*acl.id.id;
    let user = if acl.id.scheme == "digest" { id.split(':').next().unwrap_or(id) } else { id };
    format!("{}:{user}", acl.id.scheme)
}

/// Checks what this client may do in a directory, and returns whether it may create and delete.
async fn abilities(client: &Client, directory: &str, findings: &mut Findings) -> bool {
    let mut is_allowed = false;
    match rehearse(client, directory).await {
        Ok((0, ErrorCode::NO_AUTH)) => findings.add(
            Level::Problem,
            "may-not-create",
            directory,
            "This client may not create znodes there, so it cannot get the lock.",
            "Use the credentials of its owner, or let the owner grant CREATE.",
        ),
        Ok((1, ErrorCode::NO_AUTH)) => findings.add(
            Level::Problem,
            "may-not-delete",
            directory,
            "This client may create znodes there, but not delete them, so it releases a lock only \
             with the end of its session.",
            "Use the credentials of its owner, or let the owner grant DELETE.",
        ),
        Ok((0, ErrorCode::QUOTA_EXCEEDED)) => findings.add(
            Level::Problem,
            "quota",
            directory,
            "Its quota is used up, so nobody can join the queue.",
            "Increase the quota.",
        ),
        Ok((2, _)) => is_allowed = true,
        Ok((_, code)) => unknown(directory, &code, findings),
        Err(error) => unknown(directory, &error, findings),
    }
    match found(client.get_children(directory).await) {
        Ok(Found::Gone) => {}
        Ok(Found::There(names)) => {
            let length: usize = names.iter().map(|name| 4 + name.len()).sum();
            if length > REPLY_MAX {
                findings.add(
                    Level::Warning,
                    "long-list",
                    directory,
                    format!("The list of its znodes has {length} bytes. Java clients refuse it."),
                    "Increase jute.maxbuffer of all clients and servers, or use more directories.",
                );
            }
        }
        Ok(Found::Hidden) => findings.add(
            Level::Problem,
            "may-not-read",
            directory,
            "This client may not list it, so it cannot see its place in the queue.",
            "Use the credentials of its owner, or let the owner grant READ.",
        ),
        Err(error) => unknown(directory, &error, findings),
    }
    is_allowed
}

fn unknown(subject: &str, error: &dyn std::fmt::Display, findings: &mut Findings) {
    findings.add(
        Level::Unknown,
        "permissions",
        subject,
        format!("Not all of its permissions are known: {error}."),
        "Use credentials that may read it.",
    );
}

#[cfg(test)]
mod tests {
    use zk_recipes::Id;

    use super::*;

    fn acl(perms: Permissions, scheme: &str, id: &str) -> Acl {
        Acl { perms, id: Id { scheme: scheme.into(), id: id.into() } }
    }

    #[test]
    fn those_who_may_delete_are_named_without_their_secrets() {
        let mut findings = Findings::default();
        let list = [
            acl(Permissions::READ, "world", "anyone"),
            acl(Permissions::ALL, "digest", "ops:aGFzaA=="),
            acl(Permissions::DELETE, "ip", "10.0.0.0/8"),
        ];
        assert_eq!(judge(&list, "/a", &mut findings), ["digest:ops", "ip:10.0.0.0/8"]);
        assert_eq!(findings.checks(), [""; 0]);
        judge(&[acl(Permissions::ADMIN, "world", "anyone")], "/a", &mut findings);
        judge(&[acl(Permissions::ALL, "world", "anyone")], "/a", &mut findings);
        assert_eq!(findings.checks(), ["anyone-administers", "anyone-deletes"]);
    }

    #[test]
    fn a_list_for_others_names_only_those_with_credentials() {
        let owner = acl(Permissions::ALL, "digest", "ops:aGFzaA==");
        assert!(is_for_others(&[owner.clone(), acl(Permissions::READ, "world", "anyone")]));
        assert!(is_for_others(&[acl(Permissions::READ, "world", "anyone")]));
        for (scheme, id) in [("world", "anyone"), ("ip", "10.0.0.0/8"), ("other", "x")] {
            assert!(!is_for_others(&[owner.clone(), acl(Permissions::CREATE, scheme, id)]));
        }
        assert!(!is_for_others(&[]), "nothing is known");
    }
}
