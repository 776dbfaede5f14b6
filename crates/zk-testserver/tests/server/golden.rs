//! Replays a conversation recorded on real servers 3.8.0 and 3.9.3.
//!
//! The recording contains some of the requests and some of the replies. Missing requests are
//! reconstructed from the replies. The test compares all recorded replies and events, except times,
//! owners, and the order of children.

use bytes::Bytes;
use jute_codec::{
    Acl, AddWatchMode, AddWatchRequest, CheckRequest, CreateMode, CreateRequest, DeleteRequest,
    MultiOp, OpCode, Reader, Record as _, ReplyHeader, Request, RequestHeader, Response,
    SetDataRequest, Stat, Version, WatcherEvent, WatcherType, WatchesRequest, Zxid,
};
use serde_json::Value;
use zk_testserver::{Order, ServerConfig, ServerVersion, TestServer};

use crate::client::*;

struct Recording(Vec<Value>);

impl Recording {
    fn load() -> Self {
        let text = include_str!("../../../jute-codec/tests/golden_frames.json");
        Self(serde_json::from_str(text).expect("the recording is JSON"))
    }

    /// Returns a frame without its length prefix.
    fn payload(&self, name: &str) -> Option<Bytes> {
        let entry = self.0.iter().find(|entry| entry["name"] == name)?;
        let hex = entry["hex"].as_str().expect("frames are hex");
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        Some((8..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>().into())
    }
}

/// Formats the parts of a reply that are compared.
fn shown(payload: Bytes, op: OpCode) -> String {
    let mut reader = Reader::new(payload);
    let header = ReplyHeader::decode(&mut reader).expect("a reply has a header");
    let mut response = match header.err.is_ok() {
        true => Some(Response::decode(op, &mut reader).expect("a record")),
        false => None,
    };
    match &mut response {
        Some(Response::GetChildren(names)) => *names = names.sorted(),
        Some(Response::GetChildren2(reply)) => reply.children = reply.children.sorted(),
        _ => {}
    }
    let mut text = format!("{header:?} {response:?}");
    for field in ["ctime: ", "mtime: ", "ephemeral_owner: "] {
        let masked = text.split(field).enumerate().map(|(index, part)| match index {
            0 => part.to_owned(),
            _ => part.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == 'x').to_owned(),
        });
        text = masked.collect::<Vec<_>>().join(field);
    }
    text
}

fn create_g(path: &str, data: &'static str, acl: Vec<Acl>, mode: CreateMode) -> CreateRequest {
    CreateRequest { path: path.into(), data: Some(data.into()), acl, mode, with_stat: false }
}

/// Returns the steps: the name of each in the recording, and the request to send if the recording
/// does not contain it.
fn script() -> Vec<(&'static str, Option<Request>)> {
    let check = CheckRequest { path: "/g".into(), version: Version::ANY };
    let set_data =
        SetDataRequest { path: "/g/m".into(), data: Some("mm".into()), version: Version::ANY };
    let m2 = create_g("/g/m2", "", Acl::open(), CreateMode::Persistent);
    let multi = vec![
        MultiOp::Check(check),
        MultiOp::Create(create_g("/g/m", "", Acl::open(), CreateMode::Persistent)),
        MultiOp::Create(CreateRequest { with_stat: true, ..m2 }),
        MultiOp::SetData(set_data),
        MultiOp::Delete(DeleteRequest { path: "/g/m2".into(), version: Version::ANY }),
    ];
    let recursive = AddWatchMode::PERSISTENT_RECURSIVE;
    let remove = WatchesRequest { path: "/g".into(), kind: WatcherType::ANY };
    let no_acl = create_g("/g/y", "", Vec::new(), CreateMode::Persistent);
    let made_up = |name, request| (name, Some(request));
    let read = |name| (name, None);
    vec![
        read("ping"),
        made_up(
            "create_persistent",
            Request::Create(create_g("/g", "hello", Acl::open(), CreateMode::Persistent)),
        ),
        read("create_nodeexists"),
        read("create2_ephemeral_sequential"),
        made_up(
            "create_container",
            Request::Create(create_g("/g/c", "", Acl::open(), CreateMode::Container)),
        ),
        read("create_ttl"),
        read("create_nochildrenforephemerals"),
        made_up("create_invalidacl", Request::Create(no_acl)),
        read("exists"),
        read("exists_nonode_watch"),
        made_up("getdata_watch", get_data("/g", true)),
        read("getdata_null_data"),
        read("setdata"),
        read("setdata_badversion"),
        made_up("getacl", Request::GetAcl("/g".into())),
        read("setacl"),
        read("getchildren_watch"),
        made_up(
            "getchildren2",
            Request::GetChildren2(jute_codec::ReadRequest { path: "/g".into(), watch: false }),
        ),
        read("delete"),
        read("delete_notempty"),
        read("sync"),
        made_up("multi_ok", Request::Multi(multi)),
        read("multi_failed"),
        read("multiread"),
        made_up(
            "addwatch_persistent_recursive",
            Request::AddWatch(AddWatchRequest { path: "/g".into(), mode: recursive }),
        ),
        read("create_under_recursive_watch"),
        read("delete_under_recursive_watch"),
        read("checkwatches_any"),
        read("removewatches_any"),
        made_up("removewatches_none", Request::RemoveWatches(remove)),
        read("setwatches"),
        read("setwatches2"),
        made_up("getephemerals", Request::GetEphemerals(Some("/g".into()))),
        read("getallchildrennumber"),
        read("auth_digest"),
        made_up("whoami", Request::WhoAmI),
        read("reconfig_disabled"),
        read("getdata_truncated_body"),
        made_up("closesession", Request::CloseSession),
    ]
}

#[tokio::test(start_paused = true)]
async fn conversation_with_3_8_matches_the_recording() {
    let compared = converse(ServerVersion::V3_8, "zk-3.8.0").await;
    assert_eq!(compared, (25, 4), "replies and events");
}

#[tokio::test(start_paused = true)]
async fn conversation_with_3_9_matches_the_recording() {
    let compared = converse(ServerVersion::V3_9, "zk-3.9.3").await;
    assert_eq!(compared, (26, 3), "replies and events");
}

/// Acts as the client. Returns how many recorded replies and events were compared.
async fn converse(version: ServerVersion, recorded_on: &str) -> (usize, usize) {
    let recording = Recording::load();
    // The recorded lists are short and happen to be sorted.
    let config = ServerConfig::default().version(version).extended_types(true).order(Order::Sorted);
    let server = TestServer::start(config);
    Client::new(&server).await;
    let mut client = Client::new(&server).await;
    let mut replies = 0;
    let mut events = 0;
    for (index, (name, made_up)) in script().into_iter().enumerate() {
        // Ordinary requests have consecutive xids. Other requests have reserved xids in the
        // recording.
        let payload = recording.payload(&format!("{name}_request"));
        let op = match (&payload, made_up) {
            (Some(payload), _) => {
                let bytes = [&(payload.len() as u32).to_be_bytes()[..], payload].concat();
                client.write(&bytes).await;
                RequestHeader::decode(&mut Reader::new(payload.clone()))
                    .expect("a reply has a header")
                    .op
            }
            (None, Some(request)) => {
                client.send_as(xid_of(&recording, name, index), &request).await;
                request.op()
            }
            (None, None) => panic!("{name} is not in the recording"),
        };
        let reply = loop {
            let payload = client.frame().await.expect("a reply");
            let mut reader = Reader::new(payload.clone());
            if ReplyHeader::decode(&mut reader).expect("a reply has a header").xid != -1 {
                break payload;
            }
            events += compare_event(&recording, recorded_on, &payload, &mut reader);
        };
        let recorded = match name {
            "getdata_truncated_body" => "marshalling_error",
            name => name,
        };
        let recorded = recording
            .payload(&format!("{recorded}_reply@{recorded_on}"))
            .or_else(|| recording.payload(&format!("{recorded}_reply")));
        if let Some(recorded) = recorded {
            assert_eq!(shown(reply, op), shown(recorded, op), "{name}");
            replies += 1;
        }
    }
    client.assert_eof().await;
    (replies, events)
}

/// Returns the xid of the recorded reply, or an unused one if there is no recorded reply.
fn xid_of(recording: &Recording, name: &str, index: usize) -> i32 {
    let replies = ["zk-3.8.0", "zk-3.9.3"].map(|server| format!("{name}_reply@{server}"));
    match replies.iter().find_map(|reply| recording.payload(reply)) {
        Some(reply) => {
            ReplyHeader::decode(&mut Reader::new(reply)).expect("a reply has a header").xid
        }
        None => 1000 + index as i32,
    }
}

/// Compares an event byte by byte. Returns 1 if the recording contains an event of this kind.
fn compare_event(
    recording: &Recording,
    recorded_on: &str,
    payload: &Bytes,
    reader: &mut Reader,
) -> usize {
    let event = WatcherEvent::decode(reader).expect("an event");
    let name = match event.kind.name() {
        Some("NODE_CREATED") => "event_node_created",
        Some("NODE_DELETED") => "event_node_deleted",
        Some("NODE_DATA_CHANGED") => "event_node_data_changed",
        Some("NODE_CHILDREN_CHANGED") => "event_node_children_changed",
        _ => return 0,
    };
    match recording.payload(&format!("{name}@{recorded_on}")) {
        Some(recorded) => {
            assert_eq!(recorded, *payload, "{event:?}");
            1
        }
        None => 0,
    }
}

#[test]
fn masks_hide_only_times_and_owners() {
    let stat = Stat { ctime: 12, mtime: 13, version: Version(14), ..Stat::default() };
    let mut out = bytes::BytesMut::new();
    ReplyHeader { xid: 1, zxid: Zxid(2), err: jute_codec::ErrorCode::OK }.encode(&mut out);
    Response::SetData(stat).encode(&mut out);
    let text = shown(out.freeze(), OpCode::SET_DATA);
    assert!(text.contains("ctime: , mtime: , version: Version(14)"), "{text}");
}
