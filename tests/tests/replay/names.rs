//! Translation of ids between the recorded server and the test server, which turns a recorded
//! message into the expected one.
//!
//! zxids are not translated: a capture begins on an empty server, and every server counts its
//! transactions from 1. So the comparison detects a transaction too many or too few.

use std::collections::BTreeMap;

use bytes::Bytes;
use jute_codec::{
    ConnectRequest, ConnectResponse, MultiResult, ReadResult, Response, SessionId, Stat, Zxid,
};
use zk_tests::capture::Message;

/// The ids of the recorded server and the corresponding ids of the test server. The replay collects
/// them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    sessions: Pairs<SessionId>,
    passwords: Pairs<Bytes>,
    recorded_times: Times,
    our_times: Times,
}

impl Names {
    /// Returns the request that the client would send to the test server instead of the recorded
    /// one.
    pub(crate) fn request(&self, message: Message) -> Message {
        match message {
            Message::Connect(request) => Message::Connect(ConnectRequest {
                session_id: self.sessions.ours(&request.session_id),
                password: self.passwords.ours(&request.password),
                ..request
            }),
            other => other,
        }
    }

    /// Returns the message that the test server should send instead of the recorded one. Values
    /// that a server may choose are taken from `got`.
    ///
    /// # Errors
    ///
    /// A chosen value contradicts an earlier one.
    pub(crate) fn reply(&mut self, recorded: Message, got: &Message) -> Result<Message, String> {
        let mut expected = recorded;
        match (&mut expected, got) {
            (Message::Connected(expected), Message::Connected(got)) => {
                self.connected(expected, got)?;
            }
            (Message::Reply(_, response), Message::Reply(_, our_response)) => {
                let mut our_response = our_response.clone();
                for (stat, ours) in stats(response).into_iter().zip(stats(&mut our_response)) {
                    self.stat(stat, ours)?;
                }
            }
            _ => {}
        }
        Ok(expected)
    }

    fn connected(
        &mut self,
        expected: &mut ConnectResponse,
        got: &ConnectResponse,
    ) -> Result<(), String> {
        // A refusal contains no session, so all its bytes must be the same.
        if expected.session_id != SessionId::NONE && got.session_id != SessionId::NONE {
            self.sessions.learn(&expected.session_id, &got.session_id)?;
            self.passwords.learn(&expected.password, &got.password)?;
            expected.session_id = got.session_id;
            // All passwords have the same length.
            if expected.password.len() == got.password.len() {
                expected.password = got.password.clone();
            }
        }
        Ok(())
    }

    fn stat(&mut self, expected: &mut Stat, got: &Stat) -> Result<(), String> {
        // On each server, the time of a change is the time of its transaction.
        for (stat, times) in [(&*expected, &mut self.recorded_times), (got, &mut self.our_times)] {
            times.learn(stat.czxid, stat.ctime)?;
            times.learn(stat.mzxid, stat.mtime)?;
        }
        (expected.ctime, expected.mtime) = (got.ctime, got.mtime);
        // On every server, zero means that there is no session.
        if expected.ephemeral_owner != SessionId::NONE {
            expected.ephemeral_owner = self.sessions.ours(&expected.ephemeral_owner);
        }
        Ok(())
    }
}

/// A bijection between recorded ids and ids of the test server.
#[derive(Debug)]
struct Pairs<T> {
    ours: BTreeMap<T, T>,
    recorded: BTreeMap<T, T>,
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self { ours: BTreeMap::new(), recorded: BTreeMap::new() }
    }
}

impl<T: Ord + Clone + std::fmt::Debug> Pairs<T> {
    fn learn(&mut self, recorded: &T, ours: &T) -> Result<(), String> {
        let our_name = self.ours.entry(recorded.clone()).or_insert_with(|| ours.clone());
        let recorded_name = self.recorded.entry(ours.clone()).or_insert_with(|| recorded.clone());
        if our_name == ours && recorded_name == recorded {
            return Ok(());
        }
        Err(format!("{recorded:?} was {our_name:?} before, not {ours:?}"))
    }

    /// Translates an id of the recorded server. An unknown id was invented by the client, and stays
    /// the same.
    fn ours(&self, recorded: &T) -> T {
        self.ours.get(recorded).unwrap_or(recorded).clone()
    }
}

/// Time of each transaction, on one clock.
#[derive(Debug, Default)]
struct Times(BTreeMap<Zxid, i64>);

impl Times {
    fn learn(&mut self, zxid: Zxid, time: i64) -> Result<(), String> {
        let known = *self.0.entry(zxid).or_insert(time);
        if known == time {
            return Ok(());
        }
        Err(format!("transaction {zxid} was at {known}, not at {time}"))
    }
}

fn stats(response: &mut Response) -> Vec<&mut Stat> {
    match response {
        Response::Create2(reply) => vec![&mut reply.stat],
        Response::Exists(stat) | Response::SetAcl(stat) | Response::SetData(stat) => vec![stat],
        Response::GetAcl(reply) => vec![&mut reply.stat],
        Response::GetChildren2(reply) => vec![&mut reply.stat],
        Response::GetData(reply) | Response::Reconfig(reply) => vec![&mut reply.stat],
        Response::Multi(results) => results.iter_mut().filter_map(multi_stat).collect(),
        Response::MultiRead(results) => results.iter_mut().filter_map(read_stat).collect(),
        _ => vec![],
    }
}

fn multi_stat(result: &mut MultiResult) -> Option<&mut Stat> {
    match result {
        MultiResult::Create2 { stat, .. } | MultiResult::SetData(stat) => Some(stat),
        _ => None,
    }
}

fn read_stat(result: &mut ReadResult) -> Option<&mut Stat> {
    match result {
        ReadResult::Data { stat, .. } => Some(stat),
        _ => None,
    }
}

/// Sorts children and ephemerals, which servers return in the order of a hash table.
pub(crate) fn sort(message: &mut Message) {
    let Message::Reply(_, response) = message else { return };
    match response {
        Response::GetChildren(names) => *names = names.sorted(),
        Response::GetChildren2(reply) => reply.children = reply.children.sorted(),
        Response::GetEphemerals(paths) => paths.sort(),
        Response::MultiRead(results) => {
            for result in results {
                if let ReadResult::Children(names) = result {
                    *names = names.sorted();
                }
            }
        }
        _ => {}
    }
}
