//! `zklock hold`: a lock without a command, for units of systemd and for scripts.

use std::io::{self, Write as _};
use std::pin::pin;

use serde_json::json;
use zk_recipes::Lock;
use zk_recipes::kind::Kind;

use crate::acquire::{Begun, Obtained, perform};
use crate::clock::boot_now;
use crate::deadline::{deadline, looks, margin};
use crate::exit::Failure;
use crate::kind::{Task, TokenOf};
use crate::options::Hold;

/// Runs the verb.
pub(crate) async fn hold(options: &Hold) -> Result<u8, Failure> {
    let begun = Begun::begin(&options.obtain, &options.connection).await?;
    let client = begun.client.clone();
    perform(client, &options.obtain, "hold", Holding { options, begun }).await
}

struct Holding<'a> {
    options: &'a Hold,
    begun: Begun,
}

impl Task for Holding<'_> {
    async fn perform<K: Kind>(mut self, lock: Lock<K>, token: TokenOf<K>) -> Result<u8, Failure> {
        let options = &self.options.obtain;
        let Obtained { guard, token, .. } = self.begun.obtain(&lock, options, token).await?;
        // A lock that is shared has no token, but a script may wait for the line.
        let line = token.map_or_else(|| "held".to_owned(), |token| token.to_string());
        let mut stdout = io::stdout();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| {
            Failure::own(format!("cannot print the token, so the lock is released: {error}"))
        })?;

        let client = &self.begun.client;
        let (margin, mut looks) = (margin(client.status().timeout), looks(client));
        let mut lost = pin!(guard.lost());
        let mut closed = pin!(stdin_closed(!self.options.no_stdin));
        let reason = loop {
            tokio::select! {
                _ = &mut closed => break None,
                _ = self.begun.signals.next() => break None,
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
            self.begun.reporter.event("lost", json!({ "reason": reason }));
            let message = format!("{}: the lock is lost: {reason}", options.path);
            return Err(Failure { status: options.lost_exit_code, message });
        }
        self.begun.release(guard).await;
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
