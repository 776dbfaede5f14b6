//! SASL with DIGEST-MD5.

use bytes::Bytes;
use jute_codec::{
    Acl, AuthPacket, ErrorCode, OpCode, Permissions, Reader, Record as _, ReplyHeader, Request,
    Response, SaslToken, Zxid, xid,
};
use zk_testserver::{ServerConfig, ServerVersion, TestServer};

use crate::client::*;

fn config() -> ServerConfig {
    ServerConfig::default()
        .sasl_user("bob", "hunter2")
        .sasl_user("chief", "pass")
        .sasl_super_user("chief")
}

/// Sends a token, and returns the header and the token of the reply. `None` means that the server
/// closes the connection instead.
async fn round(client: &mut Client, token: &[u8]) -> Option<(ErrorCode, Zxid, Option<Bytes>)> {
    client.send(&Request::Sasl(SaslToken(Some(Bytes::copy_from_slice(token))))).await;
    let mut reader = Reader::new(client.frame().await?);
    let header = ReplyHeader::decode(&mut reader).expect("well-formed");
    let SaslToken(token) = SaslToken::decode(&mut reader).expect("even an error has a record");
    assert_eq!(reader.remaining(), 0);
    Some((header.err, header.zxid, token))
}

/// Requests a challenge, and returns its nonce.
async fn challenge(client: &mut Client) -> String {
    let (err, zxid, token) = round(client, b"").await.expect("a challenge");
    assert_eq!((err, zxid), (ErrorCode::OK, Zxid(0)));
    let text = String::from_utf8(token.expect("a token").to_vec()).expect("ASCII");
    let nonce = text.strip_prefix("realm=\"zk-sasl-md5\",nonce=\"").expect("a realm");
    let nonce = nonce.strip_suffix("\",charset=utf-8,algorithm=md5-sess").expect("parameters");
    assert_eq!(nonce.len(), 40);
    nonce.to_owned()
}

fn hex(text: &[u8]) -> String {
    format!("{:x}", md5::compute(text))
}

/// Returns the response to a challenge, and the token with which the server must reply.
fn response(user: &str, password: &str, nonce: &str) -> (String, String) {
    let mut a1 = md5::compute(format!("{user}:zk-sasl-md5:{password}")).to_vec();
    a1.extend_from_slice(format!(":{nonce}:cafe").as_bytes());
    let proof = |method: &str| {
        let a2 = hex(format!("{method}:zookeeper/zk-sasl-md5").as_bytes());
        hex(format!("{}:{nonce}:00000001:cafe:auth:{a2}", hex(&a1)).as_bytes())
    };
    let token = format!(
        "charset=utf-8,username=\"{user}\",realm=\"zk-sasl-md5\",nonce=\"{nonce}\",nc=00000001,\
         cnonce=\"cafe\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,response={},qop=auth",
        proof("AUTHENTICATE")
    );
    (token, format!("rspauth={}", proof("")))
}

async fn log_in(client: &mut Client, user: &str, password: &str) {
    let nonce = challenge(client).await;
    let (token, expected) = response(user, password, &nonce);
    let (err, zxid, token) = round(client, token.as_bytes()).await.expect("a reply");
    assert_eq!((err, zxid), (ErrorCode::OK, Zxid(0)));
    assert_eq!(token, Some(expected.into()));
}

#[tokio::test(start_paused = true)]
async fn a_user_who_has_authenticated_has_the_scheme_sasl() {
    let server = TestServer::start(config());
    let mut bob = Client::new(&server).await;
    log_in(&mut bob, "bob", "hunter2").await;
    let Response::WhoAmI(infos) = bob.ok(&Request::WhoAmI).await else { panic!("ids") };
    let named = infos.iter().any(|info| &*info.auth_scheme == "sasl" && &*info.user == "bob");
    assert!(named, "{infos:?}");
    bob.ok(&create_with_acl("/own", vec![Acl::new(Permissions::ALL, "sasl", "bob")])).await;
    bob.ok(&create_with_acl("/auth", vec![Acl::new(Permissions::ALL, "auth", "")])).await;
    let Response::GetAcl(reply) = bob.ok(&Request::GetAcl("/auth".into())).await else {
        panic!("a list")
    };
    assert_eq!(reply.acl, [Acl::new(Permissions::ALL, "sasl", "bob")]);

    let mut stranger = Client::new(&server).await;
    assert_eq!(stranger.code(&get_data("/own", false)).await, ErrorCode::NO_AUTH);
    log_in(&mut stranger, "chief", "pass").await;
    stranger.ok(&get_data("/own", false)).await;
    let auth = AuthPacket { scheme: "sasl".into(), auth: Some(Bytes::new()) };
    stranger.send_as(xid::AUTH, &Request::Auth(auth)).await;
    let Got::Reply(header, None) = stranger.next(OpCode::AUTH).await else { panic!("a refusal") };
    assert_eq!(header.err, ErrorCode::AUTH_FAILED, "SASL has its own request");
    stranger.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn wrong_credentials_end_the_connection_but_not_the_session() {
    for (version, is_required, expected) in [
        (ServerVersion::V3_8, false, Some(ErrorCode::AUTH_FAILED)),
        (ServerVersion::V3_8, true, Some(ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH)),
        (ServerVersion::V3_4, false, None),
    ] {
        let config = config().version(version).sasl_required(is_required);
        let server = TestServer::start(config);
        for (user, password) in [("bob", "wrong"), ("nobody", "hunter2"), ("bob", "")] {
            let mut client = Client::new(&server).await;
            let nonce = challenge(&mut client).await;
            let (token, _) = response(user, password, &nonce);
            let refused = round(&mut client, token.as_bytes()).await;
            assert_eq!(refused, expected.map(|error| (error, Zxid(0), None)), "{user}");
            client.assert_eof().await;
            let mut again = Client::resume(&server, &client).await;
            log_in(&mut again, "bob", "hunter2").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_valid_for_one_challenge_and_one_connection() {
    let server = TestServer::start(config());
    let mut first = Client::new(&server).await;
    let mut second = Client::new(&server).await;
    let (nonce, other) = (challenge(&mut first).await, challenge(&mut second).await);
    assert_ne!(nonce, other);
    let (token, _) = response("bob", "hunter2", &nonce);
    let replayed = round(&mut second, token.as_bytes()).await.expect("a reply");
    assert_eq!(replayed.0, ErrorCode::AUTH_FAILED);
    assert_eq!(round(&mut first, token.as_bytes()).await.expect("a reply").0, ErrorCode::OK);
    let again = round(&mut first, token.as_bytes()).await.expect("a reply");
    assert_eq!(again.0, ErrorCode::AUTH_FAILED, "the exchange is over");
    for change in [
        ("zookeeper/zk-sasl-md5", "http/zk"),
        ("qop=auth", "qop=auth-int"),
        ("nc=00000001", "nc=2"),
    ] {
        let mut client = Client::new(&server).await;
        let nonce = challenge(&mut client).await;
        let (token, _) = response("bob", "hunter2", &nonce);
        let refused = round(&mut client, token.replace(change.0, change.1).as_bytes()).await;
        assert_eq!(refused.expect("a reply").0, ErrorCode::AUTH_FAILED, "{change:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_null_token_ends_the_connection() {
    let server = TestServer::start(config());
    let mut client = Client::new(&server).await;
    client.send(&Request::Sasl(SaslToken(None))).await;
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_users_has_no_sasl() {
    let server = start();
    let mut client = Client::new(&server).await;
    assert_eq!(round(&mut client, b"").await, Some((ErrorCode::OK, Zxid(0), None)));
    let acl = vec![Acl::new(Permissions::ALL, "sasl", "bob")];
    assert_eq!(client.code(&create_with_acl("/a", acl)).await, ErrorCode::INVALID_ACL);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_demands_sasl_refuses_everything_before_it() {
    let server = TestServer::start(config().sasl_required(true));
    for request in
        [get_data("/", false), create("/a", jute_codec::CreateMode::Persistent), Request::Ping]
    {
        let mut client = Client::new(&server).await;
        let auth = AuthPacket { scheme: "digest".into(), auth: Some("a:b".into()) };
        client.send_as(xid::AUTH, &Request::Auth(auth)).await;
        let Got::Reply(header, _) = client.next(OpCode::AUTH).await else { panic!("a reply") };
        assert_eq!(header.err, ErrorCode::OK, "auth packets are accepted, but do not suffice");
        client.send_as(7, &request).await;
        let Got::Reply(header, None) = client.next(request.op()).await else { panic!("a refusal") };
        let err = ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH;
        assert_eq!(header, ReplyHeader { xid: 7, zxid: Zxid(0), err }, "{request:?}");
        client.assert_eof().await;
        let mut again = Client::resume(&server, &client).await;
        log_in(&mut again, "bob", "hunter2").await;
        again.ok(&get_data("/", false)).await;
    }
    assert_eq!(server.children("/").map(|names| names.len()), Some(1));
}

#[tokio::test(start_paused = true)]
async fn passwords_are_not_printed() {
    let config = config().super_digest("super:hunter2");
    let server = TestServer::start(config.clone());
    let mut client = Client::new(&server).await;
    log_in(&mut client, "bob", "hunter2").await;
    for text in [format!("{config:?}"), format!("{server:?}"), format!("{:?}", server.requests())] {
        assert!(!text.contains("hunter2") && !text.contains("\"pass\""), "{text}");
    }
}
