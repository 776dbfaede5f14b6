//! `zklock hold`: a lock without a command, for units of systemd and for scripts.

use std::io::{self, Write as _};
use std::pin::pin;
use std::time::Duration;

use serde_json::json;
use zk_recipes::kind::Kind;
use zk_recipes::{Client, FencingToken, Lock};

use crate::acquire::{Limit, obtain};
use crate::clock::boot_now;
use crate::connect::{close, connect};
use crate::deadline::{deadline, looks, margin};
use crate::exit::{self, Failure};
use crate::kind::{Task, TokenOf};
use crate::options::Hold;
use crate::report::Reporter;
use crate::run::identity;
use crate::signals::Signals;

/// How long a release may take. Then the end of the session frees the lock.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Runs the verb.
pub(crate) async fn hold(options: &Hold) -> Result<u8, Failure> {
    let reporter =
        Reporter::new(&options.obtain.path, options.obtain.quiet, options.obtain.events)?;
    let mut signals = Signals::catch().map_err(|error| Failure::own(error.to_string()))?;
    let limit = Limit::begin(&options.obtain);
    let client = tokio::select! {
        connected = connect(&options.connection, limit.left()) => connected?,
        signal = signals.next() => {
            let message = format!("signal {signal} arrived before there was a connection");
            return Err(Failure { status: exit::of_signal(signal), message });
        }
    };
    let identity = options.obtain.identity.clone().unwrap_or_else(|| identity("hold"));
    let task = Holding { options, client: &client, limit, reporter, signals };
    let (path, kind) = (&options.obtain.path, options.obtain.kind);
    let result = kind.perform(&client, path, &identity, task).await;
    close(&client).await;
    result
}

struct Holding<'a> {
    options: &'a Hold,
    client: &'a Client,
    limit: Limit,
    reporter: Reporter,
    signals: Signals,
}

impl Task for Holding<'_> {
    async fn perform<K: Kind>(mut self, lock: Lock<K>, token: TokenOf<K>) -> Result<u8, Failure> {
        let obtained = &self.options.obtain;
        let (client, limit) = (self.client, self.limit);
        let (reporter, signals) = (&mut self.reporter, &mut self.signals);
        let guard = obtain(&lock, client, obtained, limit, reporter, signals).await?;
        let token = token(&guard).map(FencingToken::get);
        let session = guard.session().to_string();
        reporter.event("held", json!({ "token": token, "session": session }));
        // A lock that is shared has no token, but a script may wait for the line.
        let line = token.map_or_else(|| "held".to_owned(), |token| token.to_string());
        let mut stdout = io::stdout();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| {
            Failure::own(format!("cannot print the token, so the lock is released: {error}"))
        })?;

        let margin = margin(client);
        let mut looks = looks(client);
        let mut lost = pin!(guard.lost());
        let mut closed = pin!(stdin_closed(!self.options.no_stdin));
        let reason = loop {
            tokio::select! {
                _ = &mut closed => break None,
                _ = signals.next() => break None,
                reason = &mut lost => break Some(reason.to_string()),
                _ = looks.tick() => {
                    let left = deadline(&guard, client).map(|at| at.saturating_sub(boot_now()));
                    if left.is_some_and(|left| left <= margin) {
                        break Some("no server has confirmed it in time".to_owned());
                    }
                }
            }
        };
        if let Some(reason) = reason {
            reporter.event("lost", json!({ "reason": reason }));
            let message = format!("{}: the lock is lost: {reason}", obtained.path);
            return Err(Failure { status: obtained.lost_exit_code, message });
        }
        match guard.release().timeout(RELEASE_MAX).await {
            Ok(_) => reporter.event("released", json!({})),
            Err(error) => reporter.warn(&format!(
                "not released: {error}; the lock is free when its session has ended"
            )),
        }
        Ok(0)
    }
}

/// Waits until standard input is closed, or without end.
async fn stdin_closed(is_read: bool) {
    if is_read {
        // An error ends the input too. What is written there has no meaning.
        let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
    } else {
        std::future::pending().await
    }
}
