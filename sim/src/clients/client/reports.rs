//! The program of a user's workload, as the client that runs it knows it.
//!
//! Owns the way of its reports to the checker. Must not judge them.

use zabkeeper_client::Engine;

use super::calls::Probe;
use super::*;
use crate::clients::program::{Program, Recipe};
use crate::record::trace::Kind;
use crate::workload::Mailbox;

impl Client {
    /// A program with a new handle: that of the user's workload, or one that uses the run's recipe.
    pub(super) fn new_program(
        &mut self,
        config: zabkeeper_client::Config,
        shared: &Shared,
    ) -> Library {
        let seed = u128::from(self.rng.word()) << 64 | u128::from(self.rng.word());
        let (client, engine) = Engine::new(config, seed);
        let rng = self.rng.fork();
        let program = match &shared.options.custom {
            Some(custom) => {
                let mailbox = Mailbox::default();
                if self.paused {
                    mailbox.pause();
                }
                let program = Program::new(custom.start(client, rng, &mailbox));
                self.mailbox = Some(mailbox);
                program
            }
            None => Program::of(Recipe::at(shared.options.workload.recipe), client, rng),
        };
        Library::Program(Box::new(engine), program)
    }

    /// The program of the user's workload, and those of later sessions, stand still from now on.
    pub fn pause_program(&mut self) {
        self.paused = true;
        if let Some(mailbox) = &self.mailbox {
            mailbox.pause();
        }
    }

    /// Passes on what the program of the user's workload has said.
    pub(super) fn pass_reports(&mut self, shared: &mut Shared) {
        let (Some(mailbox), Some(library)) = (&self.mailbox, &self.library) else { return };
        let session = library.id();
        for said in mailbox.take() {
            let gets_on =
                shared.options.custom.as_ref().is_some_and(|custom| custom.is_progress(&said));
            if gets_on && self.probe == Probe::UnderWay {
                self.probe = Probe::Done;
            }
            let text = said.to_string();
            shared.note(Kind::Call, (self.id.0.into(), 0), text.as_bytes(), || {
                format!("client {} {text}", self.id.0)
            });
            shared.hear(self.id, session, &said);
        }
    }
}
