//! Checks the decoding of any bytes on a client port, in any fragmentation. The fuzz target and the
//! test that replays its corpus share these checks.
//!
//! The first byte of an input is the seed of the fragmentation.

use bytes::{Bytes, BytesMut};
use zabkeeper_core::Malformed;
use zabkeeper_core::wire::{
    ClientFrames, ConnectRequest, FirstFrame, MAX_FRAME_DEFAULT, Request, RequestFrame,
};

/// The result of decoding the bytes of a connection.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Understood {
    pub(crate) first: Option<FirstFrame>,
    pub(crate) requests: Vec<RequestFrame>,
    /// The error for which a server closes the connection.
    pub(crate) refused: Option<Malformed>,
    /// Bytes that are not decoded yet.
    pub(crate) rest: BytesMut,
}

/// Checks one input and returns the decoded frames.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(input: &[u8]) -> Understood {
    let (&cut, stream) = input.split_first().unwrap_or((&0, &[]));
    let whole = understand(stream.chunks(stream.len().max(1)));
    assert_eq!(whole, understand(stream.chunks(1)), "byte by byte");
    assert_eq!(whole, understand(pieces(stream, cut)), "cut by {cut}");
    if let Some(FirstFrame::Connect(connect)) = &whole.first {
        let encoded = encoded(|out| connect.encode(out));
        assert_eq!(ConnectRequest::decode(encoded).as_ref(), Ok(connect));
    }
    for frame in &whole.requests {
        // These requests keep only the opcode, so they cannot be encoded again.
        let is_lost = |request: &Request| {
            matches!(
                request,
                Request::Undecodable { .. } | Request::NoPath { .. } | Request::Unknown { .. }
            )
        };
        if let Request::Multi(parts) | Request::MultiRead(parts) = &frame.request
            && parts.iter().any(is_lost)
        {
            continue;
        }
        if is_lost(&frame.request) {
            continue;
        }
        let encoded = encoded(|out| frame.encode(out));
        assert_eq!(RequestFrame::decode(encoded).as_ref(), Ok(frame));
    }
    whole
}

/// Decodes as `core::driver` does: appends each piece, and takes frames until there are no more.
fn understand<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Understood {
    let mut frames = ClientFrames::new(MAX_FRAME_DEFAULT);
    let mut understood = Understood::default();
    for piece in pieces {
        let closed = understood.refused.is_some()
            || matches!(understood.first, Some(FirstFrame::Command(_)));
        understood.rest.extend_from_slice(piece);
        if !closed && let Err(malformed) = read(&mut frames, &mut understood) {
            understood.refused = Some(malformed);
        }
    }
    understood
}

fn read(frames: &mut ClientFrames, understood: &mut Understood) -> Result<(), Malformed> {
    if !frames.is_open() {
        understood.first = frames.first(&mut understood.rest)?;
    }
    while frames.is_open()
        && let Some(request) = frames.next(&mut understood.rest)?
    {
        understood.requests.push(request);
    }
    Ok(())
}

/// Splits the stream into pieces of 1 to 64 bytes.
fn pieces(stream: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let mut state = u32::from(seed);
    let mut rest = stream;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = (1 + (state >> 26) as usize).min(rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Encodes a frame, without its length.
fn encoded(encode: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.freeze().slice(4..)
}
