//! The client library of one incarnation: a bare session, or one with a handle that a program uses.
//!
//! Owns both, and what they have in common. Must not know connections.

use zabkeeper_client::{Disconnect, Engine, Input, Outbox, Session, State};
use zabkeeper_core::wire::Password;
use zabkeeper_core::{Instant, SessionId, Zxid};

use crate::clients::program::Program;

/// See the module.
pub(super) enum Library {
    /// The workload submits its calls.
    Session(Box<Session>),
    /// The program makes its calls with the handle of the engine.
    Program(Box<Engine>, Program),
}

impl Library {
    fn session(&self) -> &Session {
        match self {
            Library::Session(session) => session,
            Library::Program(engine, _) => engine.session(),
        }
    }

    /// The program, if there is one.
    pub(super) fn program(&self) -> Option<&Program> {
        match self {
            Library::Session(_) => None,
            Library::Program(_, program) => Some(program),
        }
    }

    pub(super) fn state(&self) -> State {
        self.session().state()
    }

    pub(super) fn id(&self) -> SessionId {
        self.session().id()
    }

    pub(super) fn password(&self) -> Password {
        self.session().password()
    }

    pub(super) fn last_zxid(&self) -> Zxid {
        self.session().last_zxid()
    }

    pub(super) fn last_loss(&self) -> Option<&Disconnect> {
        self.session().last_loss()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Library::Session(session) => session.next_deadline(),
            Library::Program(engine, _) => engine.next_deadline(),
        }
    }

    pub(super) fn step(&mut self, now: Instant, input: Input, out: &mut Outbox) {
        match self {
            Library::Session(session) => session.step(now, input, out),
            Library::Program(engine, program) => {
                engine.step(now, input, out);
                program.run(engine, now, out);
            }
        }
    }
}
