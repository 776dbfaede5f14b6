//! Strange requests over HTTP, many clients, and a parent that does not read.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use bytes::{Bytes, BytesMut};
use jute_codec::{ConnectRequest, Record as _, SessionId, Zxid, encode_frame};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use zk_session::Client;

use crate::program::{Failed, Program};

/// How many connections for HTTP the program serves at a time.
const HTTP_CONNECTIONS_MAX: usize = 64;

#[test]
fn requests_that_no_program_should_send_are_refused_with_a_status() {
    let program = Program::start(&[]);
    let headers: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    let long = "a".repeat(70_000);
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 414),
        ("BREW /command/ping HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("get /requests HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("GET http://localhost/command/pong HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /command/ping HTTP/9.9\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /command/ping\r\n\r\n".to_owned(), 400),
        ("GET /command/pïng HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /command/p%C3%AFng HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("POST /command/ping HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".to_owned(), 400),
        ("GET /requests?last=x HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /requests?first=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /faults?last=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /command/ping HTTP/1.0\r\n\r\n".to_owned(), 200),
    ] {
        let (code, body) = program.raw(request.as_bytes());
        assert_eq!(code, status, "{:.60}: {body}", request.escape_debug().to_string());
    }
    // The beginning of HTTP/2: the connection ends without an answer.
    let mut stream = TcpStream::connect(&program.http).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    // A header of a megabyte: the connection ends, maybe before the client has sent all of it.
    let mut stream = TcpStream::connect(&program.http).unwrap();
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nX: ");
    let _ = stream.write_all(&vec![b'a'; 1 << 20]);
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!(program.get("/command/ping").0, 200);
}

#[test]
fn a_connection_has_one_request() {
    let program = Program::start(&[]);
    let request =
        "GET /command/cut/after HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n";
    let (code, body) = program.raw(request.repeat(3).as_bytes());
    assert_eq!((code, body.as_str()), (200, "command/cut/after\n"));
    assert_eq!(program.json("/faults"), json!(["cut after"]), "one command was executed");
}

#[test]
fn pages_of_other_sites_send_no_commands() {
    let program = Program::start(&[]);
    for fields in [
        "Host: evil.example\r\n",
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
        "Host: \u{ff}\r\n",
    ] {
        for url in ["/command/cut/after", "/command/shutdown", "/requests"] {
            let request = format!("GET {url} HTTP/1.1\r\n{fields}\r\n");
            let (code, body) = program.raw(request.as_bytes());
            assert_eq!(code, 403, "{fields}: {body}");
        }
    }
    assert_eq!(program.json("/faults"), json!([]));
}

#[test]
fn programs_that_forget_their_connections_delay_others_until_they_end() {
    let program = Program::start(&[]);
    let mut forgotten: Vec<TcpStream> = (1..HTTP_CONNECTIONS_MAX)
        .map(|_| TcpStream::connect(&program.http).expect("it listens"))
        .collect();
    assert_eq!(program.get("/command/ping").0, 200, "one place is left");
    forgotten.push(TcpStream::connect(&program.http).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| program.get("/command/ping").0);
        drop(forgotten.pop());
        assert_eq!(waiting.join().expect("it does not panic"), 200);
    });
}

#[tokio::test]
async fn it_listens_on_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        let Failed { exit_code, errors } = Program::fail(&["--host", "::1"]);
        assert_eq!(exit_code, Some(1));
        assert!(errors.contains("cannot listen on [::1]:0: "), "{errors}");
        return;
    }
    let program = Program::start(&["--host", "::1", "--members", "2"]);
    assert!(program.connect_string.starts_with("[::1]:"), "{}", program.connect_string);
    assert!(program.http.starts_with("[::1]:"), "{}", program.http);
    let client = Client::connect(&program.connect_string).await.unwrap();
    assert_eq!(client.get_children("/").await.unwrap(), ["zookeeper"]);
    assert_eq!(program.json("/sessions").as_array().map(Vec::len), Some(1));
}

/// The program starts with fewer files than it has clients: it asks for as many as it may have.
#[test]
fn a_thousand_clients_have_sessions_at_a_time() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a soft limit may rise to the hard one");
    let program = Program::start_after("ulimit -S -n 64", &[]);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms: 30_000,
        session_id: SessionId::NONE,
        password: Bytes::from_static(&[0; 16]),
        read_only: Some(false),
    };
    let mut frame = BytesMut::new();
    encode_frame(&mut frame, usize::MAX, |out| request.encode(out)).unwrap();
    let mut clients = Vec::new();
    for _ in 0..1_000 {
        let mut client = TcpStream::connect(&program.connect_string).expect("it listens");
        client.write_all(&frame).unwrap();
        let mut length = [0; 4];
        client.read_exact(&mut length).expect("it answers");
        clients.push(client);
    }
    assert_eq!(program.json("/sessions").as_array().map(Vec::len), Some(1_000));
}

#[test]
fn a_parent_that_reads_no_complaints_loses_only_them() {
    let script = std::env::temp_dir().join(format!("zk-testserver-mute-{}", std::process::id()));
    std::fs::write(&script, "at 1ms expire 0x77\nat 2ms shutdown\n").unwrap();
    let line = ["2>&-", "2>/dev/full"];
    for mute in line {
        let mut program =
            Program::start_after(&format!("exec {mute}"), &["--script", script.to_str().unwrap()]);
        assert_eq!(program.exit_code(), Some(0), "{mute}: the line after it is executed");
    }
    std::fs::remove_file(script).unwrap();
}
