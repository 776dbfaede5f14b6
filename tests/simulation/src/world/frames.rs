//! The frames in what travels over a link.

use jute_codec::{OpCode, xid};

use super::link::Direction;

/// Finds the requests in what a client sends, and the writes among them; or the replies and events in
/// what it receives, and the events among them.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of the next frame: length, xid, and the opcode of a request.
    header: Vec<u8>,
    /// The bytes of the current frame that are still to come.
    left: usize,
}

/// A part of what a client sends or receives.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// The header of a write or an event ends in it.
    pub(super) is_marked: bool,
    /// The header of a request that changes something ends in it.
    pub(super) is_change: bool,
    /// The numbers of the frames whose headers end in it.
    pub(super) xids: Vec<i32>,
}

impl Frames {
    /// Splits these bytes after each frame that ends in them, or leaves them together.
    pub(super) fn split(
        &mut self,
        mut bytes: &[u8],
        direction: Direction,
        is_together: bool,
    ) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut is_new = true;
        while !bytes.is_empty() {
            if self.left == 0 && self.header.len() < HEADER {
                let missing = HEADER - self.header.len();
                let (header, rest) = bytes.split_at(missing.min(bytes.len()));
                self.header.extend_from_slice(header);
                let (mut xid, mut is_marked, mut is_change) = (None, false, false);
                if self.header.len() == HEADER {
                    xid = Some(self.number(4));
                    is_marked = match direction {
                        Direction::Up => {
                            let op = OpCode(self.number(8));
                            is_change = is_write(op) && op != OpCode::SYNC || op == OpCode::SET_ACL;
                            is_write(op)
                        }
                        Direction::Down => xid == Some(xid::NOTIFICATION),
                    };
                    let length = usize::try_from(self.number(0)).unwrap_or(0);
                    self.left = length.saturating_sub(HEADER - 4);
                }
                add(&mut pieces, is_new, header);
                if let Some(piece) = pieces.last_mut() {
                    piece.xids.extend(xid);
                    piece.is_marked |= is_marked;
                    piece.is_change |= is_change;
                }
                bytes = rest;
            } else {
                let (body, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= body.len();
                add(&mut pieces, is_new, body);
                bytes = rest;
            }
            is_new = false;
            if self.left == 0 && self.header.len() == HEADER {
                self.header.clear();
                is_new = !is_together;
            }
        }
        pieces
    }

    fn number(&self, at: usize) -> i32 {
        let bytes = self.header.get(at..at + 4).and_then(|four| four.try_into().ok());
        i32::from_be_bytes(bytes.unwrap_or_default())
    }
}

fn add(pieces: &mut Vec<Piece>, is_new: bool, bytes: &[u8]) {
    match pieces.last_mut() {
        Some(piece) if !is_new => piece.bytes.extend_from_slice(bytes),
        _ => pieces.push(Piece { bytes: bytes.to_vec(), ..Piece::default() }),
    }
}

/// Length of the beginning of a frame, including its opcode.
const HEADER: usize = 12;

fn is_write(op: OpCode) -> bool {
    [
        OpCode::CREATE,
        OpCode::CREATE2,
        OpCode::CREATE_CONTAINER,
        OpCode::DELETE,
        OpCode::SET_DATA,
        OpCode::MULTI,
        OpCode::SYNC,
    ]
    .contains(&op)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(op: OpCode, body: usize) -> Vec<u8> {
        let length = i32::try_from(8 + body).unwrap();
        let header = [length.to_be_bytes(), 7_i32.to_be_bytes(), op.0.to_be_bytes()].concat();
        [header, vec![0xff; body]].concat()
    }

    #[test]
    fn writes_are_found_wherever_the_packets_end() {
        let ops = [OpCode::GET_DATA, OpCode::SET_DATA, OpCode::EXISTS, OpCode::DELETE];
        let sent: Vec<u8> = ops.iter().flat_map(|op| frame(*op, 5)).collect();
        for length in 1..=sent.len() {
            let mut frames = Frames::default();
            let pieces =
                sent.chunks(length).flat_map(|packet| frames.split(packet, Direction::Up, true));
            let found = pieces.filter(|piece| piece.is_marked).count();
            // The headers of the two writes end with these bytes.
            let [first, second] = [28 / length, 62 / length];
            assert_eq!(found, if first == second { 1 } else { 2 }, "{length}");
        }
    }

    #[test]
    fn events_are_found_among_replies() {
        let reply = |xid: i32| [&20_i32.to_be_bytes()[..], &xid.to_be_bytes(), &[0; 16]].concat();
        let received = [reply(0), reply(xid::NOTIFICATION), reply(1)].concat();
        let mut frames = Frames::default();
        let pieces = received.chunks(10).flat_map(|it| frames.split(it, Direction::Down, true));
        let found: Vec<(bool, Vec<i32>)> = pieces.map(|it| (it.is_marked, it.xids)).collect();
        let no = || (false, Vec::new());
        let xid = |xid| (xid == xid::NOTIFICATION, vec![xid]);
        // The headers end with the bytes 12, 36 and 60.
        assert_eq!(found, [no(), xid(0), no(), xid(-1), no(), xid(1), no(), no()]);
    }

    #[test]
    fn requests_are_told_apart_wherever_the_packets_end() {
        let ops = [OpCode::GET_DATA, OpCode::SET_DATA, OpCode::EXISTS, OpCode::DELETE];
        let requests: Vec<Vec<u8>> = (0..).zip(ops).map(|(body, op)| frame(op, body)).collect();
        let sent = requests.concat();
        let ends: Vec<usize> =
            (1..=requests.len()).map(|it| requests[..it].concat().len()).collect();
        for length in 1..=sent.len() {
            let mut frames = Frames::default();
            let pieces =
                sent.chunks(length).flat_map(|packet| frames.split(packet, Direction::Up, false));
            let pieces: Vec<Piece> = pieces.collect();
            let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.clone()).collect();
            assert_eq!(bytes, sent, "{length}");
            assert_eq!(pieces.iter().filter(|piece| piece.is_marked).count(), 2, "{length}");
            // They end where a request or a packet does.
            let mut at = 0;
            for piece in &pieces {
                at += piece.bytes.len();
                assert!(ends.contains(&at) || at % length == 0, "{length}: {at}");
            }
            assert!(length == 1 || pieces.len() >= ops.len(), "{length}");
        }
    }
}
