//! The speed of encoding and decoding messages, compared with a plain copy of the same bytes.
//!
//! Every client copies the bytes at least once, so a copy is the reference. The ratio of two times
//! is meaningful on any machine, unlike the times themselves. All compared series are measured
//! alternately, round after round, so that noise affects all of them equally. The report contains
//! the median of the rounds.
//!
//! Decoding starts with a complete payload, as taken from the stream, and ends when the message has
//! been dropped. Encoding fills a buffer that is reused, as in a session.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use jute_codec::{
    Acl, CreateMode, CreateRequest, DataReply, Reader, Record, ReplyHeader, Request, RequestHeader,
    Response, SetWatches, Stat, Zxid, encode_frame,
};
use serde_json::{Map, Value};

/// Number of znodes in a list, and of paths to watch.
const NAMES: u64 = 1000;
/// Length of the data in a reply to getData, in bytes.
const DATA: usize = 128;
/// How long one series is repeated before the next one takes its turn.
const TURN: Duration = Duration::from_micros(200);
/// Minimum number of rounds, however small the time budget is.
const ROUNDS_MIN: usize = 5;

/// Measures for about this long.
pub(crate) fn run(budget: Duration) -> Map<String, Value> {
    let mut cases = cases();
    let until = now() + budget;
    let mut rounds = 0;
    while rounds < ROUNDS_MIN || now() < until {
        cases.iter_mut().for_each(Case::round);
        rounds += 1;
    }
    let mut results = Map::new();
    results.insert("rounds".into(), rounds.into());
    for case in &cases {
        case.report(&mut results);
    }
    results
}

/// A message and the times measured for it.
struct Case {
    name: &'static str,
    message: Message,
    payload: Bytes,
    out: BytesMut,
    spare: Vec<u8>,
    encode: Series,
    decode: Series,
    copy: Series,
    /// The same copy as `copy`, but without an allocation.
    copy_into_preallocated: Series,
}

enum Message {
    Request(RequestHeader, Request),
    Reply(jute_codec::OpCode, ReplyHeader, Response),
}

/// The duration of one repetition in seconds, for each round.
struct Series {
    repetitions: u32,
    seconds: Vec<f64>,
}

fn cases() -> Vec<Case> {
    let stat = Stat { czxid: Zxid(0x1_0000_0002), num_children: 7, ..Stat::default() };
    let data = DataReply { data: Some(vec![b'd'; DATA].into()), stat };
    let names = (0..NAMES).map(|number| bytestring::ByteString::from(znode(number)));
    let paths = |from: u64| (from..NAMES).step_by(3).map(|number| path(number).into()).collect();
    let watches = SetWatches {
        relative_zxid: Zxid(0x1_0000_0002),
        data: paths(0),
        exist: paths(1),
        child: paths(2),
    };
    let create = CreateRequest {
        path: path(7).into(),
        data: Some(vec![b'i'; 32].into()),
        acl: Acl::open(),
        mode: CreateMode::EphemeralSequential,
        with_stat: true,
    };
    let created = jute_codec::Create2Reply { path: path(7).into(), stat };
    let read = jute_codec::ReadRequest { path: path(7).into(), watch: true };
    vec![
        Case::reply("get_data", jute_codec::OpCode::GET_DATA, Response::GetData(data)),
        Case::request("get_data_request", Request::GetData(read)),
        Case::request("create2", Request::Create(create)),
        Case::reply("create2_reply", jute_codec::OpCode::CREATE2, Response::Create2(created)),
        Case::reply(
            "get_children",
            jute_codec::OpCode::GET_CHILDREN,
            Response::GetChildren(names.collect()),
        ),
        Case::request("set_watches", Request::SetWatches(watches)),
    ]
}

/// Returns a name like those of a fair lock's contenders.
fn znode(number: u64) -> String {
    let id = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("{id:032x}-lock-{number:010}")
}

fn path(number: u64) -> String {
    format!("/locks/orders/{}", znode(number))
}

impl Case {
    fn request(name: &'static str, request: Request) -> Self {
        let header = RequestHeader { xid: 7, op: request.op() };
        Self::new(name, Message::Request(header, request))
    }

    fn reply(name: &'static str, op: jute_codec::OpCode, response: Response) -> Self {
        let err = jute_codec::ErrorCode::OK;
        let header = ReplyHeader { xid: 7, zxid: Zxid(0x1_0000_0002), err };
        Self::new(name, Message::Reply(op, header, response))
    }

    fn new(name: &'static str, message: Message) -> Self {
        let mut out = BytesMut::new();
        message.encode(&mut out);
        let payload = out.split_off(4).freeze();
        assert!(message.survives_round_trip(&payload), "{name} does not survive a round trip");
        let spare = Vec::with_capacity(payload.len());
        Self {
            name,
            message,
            payload,
            out: BytesMut::new(),
            spare,
            encode: Series::new(),
            decode: Series::new(),
            copy: Series::new(),
            copy_into_preallocated: Series::new(),
        }
    }

    fn round(&mut self) {
        let Self { out, spare, .. } = self;
        let message = &self.message;
        let payload = &self.payload;
        self.encode.turn(|| {
            out.clear();
            black_box(message).encode(out);
            black_box(&out);
        });
        self.decode.turn(|| message.decode(black_box(payload)));
        self.copy.turn(|| {
            black_box(black_box(payload).to_vec());
        });
        self.copy_into_preallocated.turn(|| {
            spare.clear();
            spare.extend_from_slice(black_box(payload));
            black_box(&spare);
        });
    }

    fn report(&self, results: &mut Map<String, Value>) {
        let bytes = self.payload.len();
        let mut insert = |what: &str, value: Value| {
            results.insert(format!("{}_{what}", self.name), value);
        };
        insert("bytes", bytes.into());
        let series = [("encode", &self.encode), ("decode", &self.decode), ("copy", &self.copy)];
        for (what, series) in series {
            let per_s = (bytes as f64 / series.median()).round();
            insert(&format!("{what}_bytes_per_s"), per_s.into());
        }
        let copies =
            [("copy", &self.copy), ("copy_into_preallocated", &self.copy_into_preallocated)];
        for (what, series) in copies {
            let ratio = (self.decode.median_over(series) * 100.0).round() / 100.0;
            insert(&format!("decode_vs_{what}"), ratio.into());
        }
    }
}

impl Message {
    fn encode(&self, out: &mut BytesMut) {
        let framed = encode_frame(out, usize::MAX, |out| match self {
            Self::Request(header, request) => {
                header.encode(out);
                request.encode(out);
            }
            Self::Reply(_, header, response) => {
                header.encode(out);
                response.encode(out);
            }
        });
        framed.expect("the messages here are short");
    }

    fn decode(&self, payload: &Bytes) {
        let mut reader = Reader::new(payload.clone());
        match self {
            Self::Request(..) => {
                let header = RequestHeader::decode(&mut reader).expect("encoded by this program");
                black_box(Request::decode(header.op, &mut reader))
                    .expect("encoded by this program");
            }
            Self::Reply(op, ..) => {
                black_box(ReplyHeader::decode(&mut reader)).expect("encoded by this program");
                black_box(Response::decode(*op, &mut reader)).expect("encoded by this program");
            }
        }
    }

    /// Checks that the message decodes to itself, so that the benchmark measures correct code.
    fn survives_round_trip(&self, payload: &Bytes) -> bool {
        let mut reader = Reader::new(payload.clone());
        match self {
            Self::Request(header, request) => {
                RequestHeader::decode(&mut reader).as_ref() == Ok(header)
                    && Request::decode(header.op, &mut reader).as_ref() == Ok(request)
            }
            Self::Reply(op, header, response) => {
                ReplyHeader::decode(&mut reader).as_ref() == Ok(header)
                    && Response::decode(*op, &mut reader).as_ref() == Ok(response)
            }
        }
    }
}

impl Series {
    fn new() -> Self {
        Self { repetitions: 1, seconds: Vec::new() }
    }

    /// Repeats a function for about a turn. The first turn also determines the number of
    /// repetitions.
    fn turn(&mut self, mut what: impl FnMut()) {
        let mut elapsed = self.repeat(&mut what);
        if self.seconds.is_empty() {
            while elapsed < TURN {
                self.repetitions *= 2;
                elapsed = self.repeat(&mut what);
            }
        }
        self.seconds.push(elapsed.as_secs_f64() / f64::from(self.repetitions));
    }

    fn repeat(&self, what: &mut impl FnMut()) -> Duration {
        let start = now();
        for _ in 0..self.repetitions {
            what();
        }
        now() - start
    }

    fn median(&self) -> f64 {
        median(self.seconds.clone())
    }

    /// Returns the median of the ratios of each round. The two series are measured right after each
    /// other.
    fn median_over(&self, other: &Self) -> f64 {
        median(self.seconds.iter().zip(&other.seconds).map(|(own, other)| own / other).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().expect("there was at least one round")
}

#[expect(clippy::disallowed_methods, reason = "the benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
