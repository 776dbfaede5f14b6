//! Flows for captures, including requests that other clients seldom or never send.
//!
//! ```text
//! flows HOST:PORT CONTROL FLOW
//! ```
//!
//! CONTROL is a pipe to the recorder. The line `cut` tells the recorder to end all connections. The
//! flows ignore all replies, because only the capture matters.
#![expect(
    clippy::disallowed_methods,
    reason = "a program that talks to a server lives in real time, and fails as a whole"
)]

mod client;
mod oddities;
mod peer;
mod sessions;
mod trees;
mod watches;

use std::process::ExitCode;

use self::peer::Stage;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, control, name] = &arguments[..] else {
        eprintln!("usage: flows HOST:PORT CONTROL FLOW");
        return ExitCode::from(2);
    };
    let stage = Stage { server: server.clone(), control: control.clone() };
    match FLOWS.iter().find(|(known, _)| known == name) {
        Some((_, flow)) => {
            flow(&stage);
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("flows: {name} is none of {:?}", FLOWS.map(|(name, _)| name));
            ExitCode::FAILURE
        }
    }
}

type Flow = fn(&Stage);

const FLOWS: [(&str, Flow); 15] = [
    ("access", trees::access),
    ("client", client::client),
    ("errors", trees::errors),
    ("expiry", sessions::expiry),
    ("fair-lock", client::fair_lock),
    ("garbage", oddities::garbage),
    ("multi", trees::multi),
    ("multi-failures", trees::multi_failures),
    ("odd-paths", oddities::paths),
    ("persistent-watches", watches::persistent),
    ("quota", oddities::quota),
    ("restored-watches", watches::restored),
    ("sessions", sessions::sessions),
    ("stats", trees::stats),
    ("watches", watches::one_shot),
];
