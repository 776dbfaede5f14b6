//! A client that authenticates with Kerberos, and does what its standard input says.
//!
//! The suite `gssapi` runs it in processes of their own, because Kerberos is configured by variables
//! of the environment.
//!
//! ```text
//! principal SERVER [service=NAME] [server=PRINCIPAL] [client=PRINCIPAL] [exact] [cuts=PATH]
//! ```
//!
//! With `cuts`, it cuts connections to the server at each step, prints how often, and ends.
//!
//! Each line of input is a command, whose reply is one line:
//!
//! - `own PATH ID` creates a znode that only this SASL identity may access;
//! - `read PATH` reads a znode, and waits for a connection if there is none;
//! - `failure` prints why the last connection ended;
//! - `session` prints the state and the session.

#![allow(clippy::print_stdout, reason = "the output is what the suite reads")]

#[path = "../tests/support/network.rs"]
mod network;
#[path = "../tests/support/survival.rs"]
mod survival;

use std::env;
use std::io;
use std::time::Duration;

use network::Network;
use survival::survive_cuts;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use zk_session::{Acl, Client, ClientBuilder, CreateMode, CreateOptions, Gssapi, Id, Permissions};

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let server = arguments.next().expect("the first argument is the server");
    let mut options = Gssapi::new();
    let mut cut_at = None;
    for argument in arguments {
        options = match argument.split_once('=') {
            Some(("service", name)) => options.service_name(name),
            Some(("server", principal)) => options.server_principal(principal),
            Some(("client", principal)) => options.client_principal(principal),
            Some(("cuts", path)) => {
                cut_at = Some(path.to_owned());
                options
            }
            None if argument == "exact" => options.exact_host(),
            _ => panic!("unknown argument {argument:?}"),
        };
    }
    if let Some(path) = cut_at {
        let port = server.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.expect("the server has a port");
        let client =
            |network: &Network| builder(&server, options.clone()).transport(network.tcp(port));
        println!("cutting");
        let (new, resumed) = survive_cuts(client, &path).await;
        println!("{new} {resumed}");
        return Ok(());
    }
    let client = builder(&server, options).connect_within(Duration::from_secs(5)).connect().await;
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            println!("cannot connect: {error}");
            return Ok(());
        }
    };
    println!("connected");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        println!("{}", reply(&client, &line).await);
    }
    client.close().await;
    Ok(())
}

fn builder(server: &str, options: Gssapi) -> ClientBuilder {
    Client::builder(server).sasl(options).session_timeout(Duration::from_secs(20))
}

async fn reply(client: &Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["own", path, id] => {
            let id = Id { scheme: "sasl".into(), id: id.into() };
            let acl = vec![Acl { perms: Permissions::ALL, id }];
            let options = CreateOptions::from(CreateMode::Ephemeral).acl(acl);
            match client.create(path, "secret", options).await {
                Ok(_) => "created".to_owned(),
                Err(error) => error.to_string(),
            }
        }
        ["read", path] => match client.get_data(path).await {
            Ok((data, _)) => String::from_utf8_lossy(&data).into_owned(),
            Err(error) => error.to_string(),
        },
        ["failure"] => client.last_failure().map(|failure| failure.to_string()).unwrap_or_default(),
        ["session"] => {
            let session = client.session_id().map(|id| id.to_string()).unwrap_or_default();
            format!("{:?} {session}", client.state())
        }
        _ => format!("unknown command {line:?}"),
    }
}
