//! What the core owes to its clients: the answers to the events that it has received.
//!
//! Owns the outstanding requests of each connection. Must not know how messages reach clients.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zabkeeper_core::io::{ClientCommand, ClientEvent};
use zabkeeper_core::wire::{
    FromServer, Reply, ReplyBody, ReplyKind, Request, RequestFrame, ServerFrames, XID_PING,
};
use zabkeeper_core::{ConnId, ErrorCode};

/// Decodes what clients receive, whatever its length.
pub(super) fn client_end() -> ServerFrames {
    ServerFrames::new(u32::MAX >> 1)
}

/// The core's end of a connection, from `Opened` to `Closed`.
#[derive(Debug, Default)]
pub(super) struct Conn {
    /// Is the handshake answered?
    greeted: bool,
    /// Has the core closed it?
    closed: bool,
    /// Requests that the core has received and not answered.
    asked: VecDeque<Asked>,
}

/// An outstanding request.
#[derive(Debug)]
struct Asked {
    xid: i32,
    /// The xid as sent: if the client itself is refused, the reply has it even for a ping.
    sent: i32,
    kind: ReplyKind,
    /// The reply may overtake others, as that of auth does.
    aside: bool,
}

impl Conn {
    /// The core receives this event.
    ///
    /// # Panics
    /// If more requests are unanswered than the `window` allows.
    pub(super) fn receive(&mut self, event: &mut ClientEvent, window: usize) {
        if let ClientEvent::Request(frame) = event {
            self.tell_apart(frame);
            self.asked.push_back(Asked::new(frame));
            assert!(self.asked.len() <= window, "{} unanswered requests", self.asked.len());
        }
    }

    /// Is everything answered that the core has received?
    pub(super) fn is_served(&self) -> bool {
        self.greeted && self.asked.is_empty()
    }

    /// Checks a command of the core; returns the message for the client, if it is one.
    ///
    /// # Panics
    /// If a check fails.
    pub(super) fn check(&mut self, id: ConnId, command: &ClientCommand) -> Option<Bytes> {
        assert!(!self.closed, "{id} is closed, and then: {command}");
        let mut bytes = BytesMut::new();
        match command {
            ClientCommand::Connected(response) => {
                assert!(!self.greeted, "{id}: a second answer to its handshake");
                self.greeted = true;
                response.encode(&mut bytes);
                let read = client_end().first(&mut bytes.clone());
                assert_eq!(read.as_ref(), Ok(&Some(response.clone())));
            }
            ClientCommand::Reply(reply) => {
                assert!(self.greeted, "{id}: {command} before the handshake's answer");
                reply.encode(&mut bytes);
                // A client may use the xid of events for a request, so the xid is replaced for
                // decoding.
                let mut read = BytesMut::new();
                let xid = reply.xid;
                Reply { xid: xid.max(0), ..reply.clone() }.encode(&mut read);
                let Ok(Some(FromServer::Reply { zxid, err, body, .. })) =
                    client_end().next(&mut read)
                else {
                    panic!("{id}: {command} cannot be read");
                };
                let mut right = reply.clone();
                if let Ok(ReplyBody::BrokenMulti(_)) = right.result {
                    // Clients take no body with an error.
                    right.result = Err(ErrorCode::Marshalling);
                }
                let is_for = |asked: &Asked| {
                    let read = FromServer::reply(xid, zxid, err, body.clone(), asked.kind);
                    let refused = reply.result == Err(ErrorCode::SchemeRequired);
                    let same = xid == if refused { asked.sent } else { asked.xid };
                    same && read.is_ok_and(|read| read == right)
                };
                let place = self.answered(is_for);
                assert!(place.is_some(), "{id}: {command} answers none of {:?}", self.asked);
            }
            ClientCommand::Event(event) => {
                event.encode(&mut bytes);
                let read = client_end().next(&mut bytes.clone());
                let right = FromServer::Event(event.as_ref().clone());
                assert_eq!(read, Ok(Some(right)), "{id}");
            }
            ClientCommand::Complaint(_) => return None,
            ClientCommand::Close => {
                self.closed = true;
                return None;
            }
        }
        Some(bytes.freeze())
    }

    /// Changes the xid of a request if a request of the other kind (in order, or answered aside) is
    /// outstanding with the same xid, so that replies can be matched. The server only echoes xids,
    /// except that every reply to a ping has the same.
    fn tell_apart(&self, frame: &mut RequestFrame) {
        let new = Asked::new(frame);
        let other = |asked: &Asked| asked.xid == new.xid && asked.aside != new.aside;
        if self.asked.iter().any(other) || new.aside && new.xid == XID_PING {
            let taken = |xid: &i32| self.asked.iter().any(|asked| asked.xid == *xid);
            frame.xid = (i32::MIN..).find(|xid| !taken(xid)).expect("few are unanswered");
        }
    }

    /// Removes the answered request: the first in order, or one that is answered aside.
    fn answered(&mut self, is_for: impl Fn(&Asked) -> bool) -> Option<Asked> {
        let first = self.asked.iter().position(|asked| !asked.aside);
        let first = first.filter(|first| is_for(&self.asked[*first]));
        let aside = || self.asked.iter().position(|asked| asked.aside && is_for(asked));
        let place = first.or_else(aside)?;
        self.asked.remove(place)
    }
}

impl Asked {
    fn new(frame: &RequestFrame) -> Asked {
        let aside = matches!(frame.request, Request::Auth { .. } | Request::Sasl { .. });
        // WIRE-08: the reply to a ping has xid -2, whatever xid the ping had.
        let xid = if frame.request == Request::Ping { XID_PING } else { frame.xid };
        Asked { xid, sent: frame.xid, kind: frame.request.reply_kind(), aside }
    }
}
