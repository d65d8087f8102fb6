//! Frames recorded from Apache ZooKeeper. They reveal errors that our encoder and decoder share.
//!
//! Each `.hex` file of `tests/golden` is a recorded dialogue, with the format at its head. Its
//! snapshot is the decoded dialogue. Each frame is encoded again and must yield the same bytes.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::Path;

use bytes::BytesMut;
use zabkeeper_core::wire::{
    ClientFrames, FirstFrame, FromServer, MAX_FRAME_DEFAULT, ReplyKind, Request, ServerFrames,
};

#[test]
fn recorded_frames_are_decoded_and_encoded_identically() {
    insta::glob!("..", "golden/*.hex", |path| {
        insta::assert_snapshot!(understand(path));
    });
}

/// The state of one connection.
struct Dialogue {
    client: ClientFrames,
    server: ServerFrames,
    answered: bool,
    /// Requests without a reply yet: the xid, and the kind of the reply's body.
    awaited: VecDeque<(i32, ReplyKind)>,
}

impl Dialogue {
    fn new() -> Dialogue {
        Dialogue {
            client: ClientFrames::new(MAX_FRAME_DEFAULT),
            server: ServerFrames::new(MAX_FRAME_DEFAULT),
            answered: false,
            awaited: VecDeque::new(),
        }
    }

    /// Decodes a client's frame; returns it as text, and encoded again. The latter is `None` for
    /// requests that are not decoded by design.
    fn client_frame(&mut self, mut frame: BytesMut) -> (String, Option<BytesMut>) {
        let mut again = BytesMut::new();
        if !self.client.is_open() {
            let first = self.client.first(&mut frame).unwrap().expect("whole");
            let FirstFrame::Connect(connect) = first else { panic!("{first:?}") };
            connect.encode(&mut again);
            return (format!("{connect:?}"), Some(again));
        }
        let request = self.client.next(&mut frame).unwrap().expect("whole");
        self.awaited.push_back((request.xid, request.request.reply_kind()));
        request.encode(&mut again);
        let by_design = matches!(request.request, Request::Undecodable { .. });
        let text = format!("#{} {:?}", request.xid, request.request);
        (text, (!by_design).then_some(again))
    }

    fn server_frame(&mut self, mut frame: BytesMut) -> (String, BytesMut) {
        let mut again = BytesMut::new();
        if !self.answered {
            self.answered = true;
            let response = self.server.first(&mut frame).unwrap().expect("whole");
            response.encode(&mut again);
            return (format!("{response:?}"), again);
        }
        let text = match self.server.next(&mut frame).unwrap().expect("whole") {
            FromServer::Event(event) => {
                event.encode(&mut again);
                format!("{event:?}")
            }
            FromServer::Reply { xid, zxid, err, body } => {
                let (expected, kind) = self.awaited.pop_front().expect("something was asked");
                assert_eq!(xid, expected);
                let reply = FromServer::reply(xid, zxid, err, body, kind).unwrap();
                reply.encode(&mut again);
                format!("#{xid} {zxid:#x} {:?}", reply.result)
            }
        };
        (text, again)
    }
}

fn understand(path: &Path) -> String {
    let recorded = std::fs::read_to_string(path).unwrap();
    let mut dialogue = Dialogue::new();
    let mut trace = String::new();
    for line in recorded.lines() {
        let (mark, rest) = line.split_at_checked(2).unwrap_or((line, ""));
        let text = match mark {
            "> " => {
                let frame = from_hex(rest);
                let (text, again) = dialogue.client_frame(frame.clone());
                assert!(again.is_none_or(|again| again == frame), "{line}\n{text}");
                text
            }
            // Not compared, because it has several encodings: null or empty lists, any nonzero byte
            // for true.
            "~ " => dialogue.client_frame(from_hex(rest)).0,
            "< " => {
                let frame = from_hex(rest);
                let (text, again) = dialogue.server_frame(frame.clone());
                assert_eq!(again, frame, "{line}\n{text}");
                text
            }
            "" => {
                dialogue = Dialogue::new();
                String::new()
            }
            "# " => rest.to_owned(),
            "=" => String::new(),
            other => panic!("{}: what is {other:?}?", path.display()),
        };
        writeln!(trace, "{}", format!("{mark}{text}").trim_end()).unwrap();
    }
    trace
}

fn from_hex(hex: &str) -> BytesMut {
    let digits = hex.as_bytes().as_chunks::<2>().0.iter();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}
