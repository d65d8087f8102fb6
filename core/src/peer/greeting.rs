//! How a connection between servers begins: the dialler's greeting, the listener's answer, and, if
//! both know a secret, proofs of it. For the real network and the simulated one.
//!
//! Owns the bytes of this handshake, and the reasons to refuse a connection, with their texts. Must
//! not know the messages that follow.
//!
//! ```text
//! dialler  -> facts
//! listener -> facts [proof proof]
//! dialler  ->       [proof]
//!
//! facts  magic "zabk-peer" | highest version u8 | lowest version u8 | verdict u8
//!        | length u16 of all facts | channel u8 | features u32 | from u64 | to u64
//!        | ensemble u64 | nonce 16 bytes | what later versions add | crc32c u32
//! ```
//!
//! All integers are little-endian. A listener sends nothing before it has read a whole greeting. A
//! verdict other than 0 is a refusal, after which the connection is closed. A proof has 32 bytes.
//! Proofs are sent if both ends state that they know a secret; all frames that follow are then
//! signed (`frame`). In a greeting of version 2, the highest version is 2.

use std::fmt;

use bytes::{Buf, BufMut, BytesMut};

use super::frame::{BadFrame, Reader, Writer};
use super::secret::{self, FrameKey, PROOF_BYTES, Secrets, Side};
use crate::identity;
use crate::ids::ServerId;

const MAGIC: &[u8; 9] = b"zabk-peer";
/// To be raised if an older server would misread the greeting, a frame or a message, for example a
/// variant that it does not know, or one that has changed or moved.
pub const VERSION: u8 = 6;
/// The oldest version that this server understands.
pub const VERSION_MIN: u8 = 5;
/// Bytes up to the length of the facts, including it.
const HEAD_BYTES: usize = 14;
/// Bytes of the facts since version 3.
const FACTS_BYTES: usize = 63;
/// The longest facts that a later version may send.
const FACTS_BYTES_MAX: usize = 1024;
/// The first version whose greeting has this layout.
const FIRST_ANSWERED: u8 = 3;
/// The first version with reconfigurations, the text of configurations, and TAKEOVER.
pub(crate) const FIRST_RECONFIGURABLE: u8 = 6;

/// Feature flag: this end knows a secret.
const KNOWS_SECRET: u32 = 1;
/// Feature flag: this end accepts only servers that know a secret.
const WANTS_SECRET: u32 = 2;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// Notifications, sent only by the end that has dialled.
    Election,
    /// A link between learner and leader, both ways.
    Quorum,
}

/// What a server states about itself in a greeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Local {
    /// Its id.
    pub id: ServerId,
    /// Its ensemble; 0 if it has no data, or does not know its ensemble yet.
    pub ensemble: u64,
    /// The secrets that it can prove to know.
    pub secrets: Secrets,
    /// Does it accept only servers that know a secret?
    pub demands_secret: bool,
    /// The highest version of the protocol that it speaks.
    pub version: u8,
}

/// A number used once, unpredictable: drawn by the host.
pub type Nonce = [u8; 16];

/// What one end states about itself and about the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    highest: u8,
    lowest: u8,
    verdict: u8,
    channel: u8,
    features: u32,
    from: ServerId,
    to: ServerId,
    ensemble: u64,
    nonce: Nonce,
}

/// A greeting that the listener has read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    facts: Facts,
    /// Its bytes, for the transcript.
    bytes: Vec<u8>,
}

/// The dialler after its greeting: it waits for the answer.
#[derive(Clone, Debug)]
pub struct Dialling {
    local: Local,
    channel: Channel,
    to: ServerId,
    /// The bytes of its greeting.
    transcript: Vec<u8>,
}

/// The listener after its answer: it may wait for a proof.
#[derive(Clone, Debug)]
pub struct Accepting {
    secrets: Secrets,
    peer: ServerId,
    /// The highest version that both ends speak.
    highest: u8,
    /// The bytes of the greeting and of the answer.
    transcript: Vec<u8>,
    wants_proof: bool,
}

/// A connection whose handshake is over.
#[derive(Debug)]
pub struct Established {
    /// The server at the other end: proven if `proven`, otherwise as it claims.
    pub peer: ServerId,
    /// Have both ends proved that they know the secret?
    pub proven: bool,
    /// The version of the protocol that both ends speak.
    pub version: u8,
    /// Reads the frames that arrive.
    pub reader: Reader,
    /// Writes the frames to send.
    pub writer: Writer,
}

/// Why a connection is closed during its handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The bytes are no greeting or answer.
    Malformed(BadFrame),
    /// No common version: the other end's lowest and highest.
    Version(u8, u8),
    /// The connection is for another channel than the port's.
    Channel(u8),
    /// The dialler wanted another server than the one that it reached.
    WrongServer {
        /// The server that it wanted.
        meant: ServerId,
        /// The server that it reached.
        reached: ServerId,
    },
    /// The dialler says that it is the listener.
    Unlisted(ServerId),
    /// The other server says that this server has its id, or, before 0.3, that it does not list it.
    UnlistedThere(ServerId),
    /// The two servers belong to different ensembles.
    OtherEnsemble {
        /// The other server.
        server: ServerId,
        /// The other server's ensemble.
        theirs: u64,
        /// This server's ensemble.
        ours: u64,
    },
    /// The other server demands a secret, and this server has none.
    NoSecretHere(ServerId),
    /// This server demands a secret, and the other server has none.
    NoSecretThere(ServerId),
    /// Both servers have a secret, but not the same one.
    WrongSecret(ServerId),
    /// The dialler has another connection already, or dials too often.
    Busy(ServerId),
    /// A reason of a later version: its verdict.
    Unknown(ServerId, u8),
}

impl Channel {
    fn number(self) -> u8 {
        match self {
            Channel::Election => 0,
            Channel::Quorum => 1,
        }
    }
}

impl Local {
    fn facts(&self, channel: u8, to: ServerId, nonce: Nonce) -> Facts {
        let knows = if self.secrets.is_empty() { 0 } else { KNOWS_SECRET };
        let wants = if self.demands_secret { WANTS_SECRET } else { 0 };
        Facts {
            highest: self.version,
            lowest: VERSION_MIN,
            verdict: 0,
            channel,
            features: knows | wants,
            from: self.id,
            to,
            ensemble: self.ensemble,
            nonce,
        }
    }

    /// The checks that both ends make.
    fn check(&self, theirs: &Facts) -> Result<(), Refusal> {
        let server = theirs.from;
        if identity::differ(self.ensemble, theirs.ensemble) {
            let (theirs, ours) = (theirs.ensemble, self.ensemble);
            return Err(Refusal::OtherEnsemble { server, theirs, ours });
        }
        if self.demands_secret && theirs.features & KNOWS_SECRET == 0 {
            return Err(Refusal::NoSecretThere(server));
        }
        if self.secrets.is_empty() && theirs.features & WANTS_SECRET != 0 {
            return Err(Refusal::NoSecretHere(server));
        }
        Ok(())
    }

    fn proves_to(&self, theirs: &Facts) -> bool {
        !self.secrets.is_empty() && theirs.features & KNOWS_SECRET != 0
    }
}

impl Facts {
    fn encode(&self) -> [u8; FACTS_BYTES] {
        let mut bytes = [0; FACTS_BYTES];
        let mut rest = &mut bytes[..];
        rest.put_slice(MAGIC);
        rest.put_u8(self.highest);
        rest.put_u8(self.lowest);
        rest.put_u8(self.verdict);
        rest.put_u16_le(u16::try_from(FACTS_BYTES).expect("short"));
        rest.put_u8(self.channel);
        rest.put_u32_le(self.features);
        rest.put_u64_le(self.from.0);
        rest.put_u64_le(self.to.0);
        rest.put_u64_le(self.ensemble);
        rest.put_slice(&self.nonce);
        let sum = crc32c::crc32c(&bytes[..FACTS_BYTES - 4]);
        bytes[FACTS_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Takes facts off `buffer`, with their bytes; `None` if they are incomplete. Bytes that cannot
    /// become facts are refused as early as possible.
    fn take(buffer: &mut BytesMut) -> Result<Option<(Facts, Vec<u8>)>, Refusal> {
        let known = buffer.len().min(MAGIC.len());
        if buffer[..known] != MAGIC[..known] {
            return Err(Refusal::Malformed(BadFrame::UnknownGreeting));
        }
        if let Some(&highest) = buffer.get(MAGIC.len())
            && highest < FIRST_ANSWERED
        {
            return Err(Refusal::Version(highest, highest));
        }
        let Some(head) = buffer.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = usize::from((&head[HEAD_BYTES - 2..]).get_u16_le());
        if !(FACTS_BYTES..=FACTS_BYTES_MAX).contains(&length) {
            return Err(Refusal::Malformed(BadFrame::UnknownGreeting));
        }
        if buffer.len() < length {
            return Ok(None);
        }
        let bytes = buffer.split_to(length).to_vec();
        let (content, mut sum) = bytes.split_at(length - 4);
        if crc32c::crc32c(content) != sum.get_u32_le() {
            return Err(Refusal::Malformed(BadFrame::Checksum));
        }
        let mut rest = &content[MAGIC.len()..];
        let [highest, lowest, verdict] = [(); 3].map(|()| rest.get_u8());
        rest.advance(2);
        let (channel, features) = (rest.get_u8(), rest.get_u32_le());
        let [from, to, ensemble] = [(); 3].map(|()| rest.get_u64_le());
        let nonce = *rest.first_chunk().expect("the length was checked");
        let (from, to) = (ServerId(from), ServerId(to));
        let facts =
            Facts { highest, lowest, verdict, channel, features, from, to, ensemble, nonce };
        Ok(Some((facts, bytes)))
    }
}

impl Greeting {
    /// Takes a greeting off `buffer`; `None` if it is incomplete.
    ///
    /// # Errors
    /// If the bytes are no greeting.
    pub fn take(buffer: &mut BytesMut) -> Result<Option<Greeting>, Refusal> {
        Ok(Facts::take(buffer)?.map(|(facts, bytes)| Greeting { facts, bytes }))
    }

    /// The server that the dialler claims to be.
    pub fn from(&self) -> ServerId {
        self.facts.from
    }

    /// Must the dialler prove that it knows a secret?
    pub fn proves_to(&self, local: &Local) -> bool {
        local.proves_to(&self.facts)
    }

    /// Accepts or refuses the connection at `local`'s port for `channel`. A server need not be a
    /// member (RECONF-13).
    ///
    /// # Errors
    /// The reason to refuse it.
    pub fn check(&self, local: &Local, channel: Channel) -> Result<(), Refusal> {
        let Facts { highest, lowest, channel: meant, from, to, .. } = self.facts;
        if highest < VERSION_MIN || lowest > local.version {
            Err(Refusal::Version(lowest, highest))
        } else if meant != channel.number() {
            Err(Refusal::Channel(meant))
        } else if to != local.id {
            Err(Refusal::WrongServer { meant: to, reached: local.id })
        } else if from == local.id {
            Err(Refusal::Unlisted(from))
        } else {
            local.check(&self.facts)
        }
    }

    /// The answer that refuses the connection.
    pub fn refuse(&self, local: &Local, why: &Refusal, nonce: Nonce) -> Vec<u8> {
        let mut facts = local.facts(self.facts.channel, self.facts.from, nonce);
        facts.verdict = why.verdict();
        facts.encode().to_vec()
    }

    /// Accepts the connection: the state that waits for the proof, and the answer to send.
    pub fn welcome(self, local: &Local, nonce: Nonce) -> (Accepting, Vec<u8>) {
        let answer = local.facts(self.facts.channel, self.facts.from, nonce).encode();
        let wants_proof = local.proves_to(&self.facts);
        let mut transcript = self.bytes;
        transcript.extend_from_slice(&answer);
        let mut bytes = answer.to_vec();
        if wants_proof {
            local.secrets.prove_all(&transcript, &mut bytes);
        }
        let (secrets, peer) = (local.secrets.clone(), self.facts.from);
        let highest = self.facts.highest.min(local.version);
        (Accepting { secrets, peer, highest, transcript, wants_proof }, bytes)
    }
}

impl Accepting {
    /// Takes the dialler's proof off `buffer`, if one is required; `None` if it is incomplete.
    ///
    /// # Errors
    /// If the proof is wrong.
    pub fn establish(&self, buffer: &mut BytesMut) -> Result<Option<Established>, Refusal> {
        if !self.wants_proof {
            return Ok(Some(Established::unproven(self.peer).with(self.highest)));
        }
        if buffer.len() < PROOF_BYTES {
            return Ok(None);
        }
        let proof = buffer.split_to(PROOF_BYTES);
        let secret = self.secrets.find(Side::Dialler, &self.transcript, &proof);
        let secret = secret.ok_or(Refusal::WrongSecret(self.peer))?;
        let proven = Established::proven(self.peer, secret, Side::Listener, &self.transcript);
        Ok(Some(proven.with(self.highest)))
    }

    /// The server that has dialled.
    pub fn peer(&self) -> ServerId {
        self.peer
    }
}

impl Dialling {
    /// Begins the handshake with `to`: the state that waits for the answer, and the greeting to
    /// send.
    pub fn begin(
        local: Local,
        channel: Channel,
        to: ServerId,
        nonce: Nonce,
    ) -> (Dialling, Vec<u8>) {
        let bytes = local.facts(channel.number(), to, nonce).encode().to_vec();
        (Dialling { local, channel, to, transcript: bytes.clone() }, bytes)
    }

    /// Takes the answer off `buffer`: the connection, and the bytes to send first on it (the proof,
    /// if both know a secret); `None` if the answer is incomplete.
    ///
    /// # Errors
    /// If one of the servers refuses the other.
    pub fn establish(
        &self,
        buffer: &mut BytesMut,
    ) -> Result<Option<(Established, Vec<u8>)>, Refusal> {
        // Facts and proofs are taken together, so that the answer may arrive in several pieces.
        let mut ahead = buffer.clone();
        let Some((answer, bytes)) = Facts::take(&mut ahead)? else {
            return Ok(None);
        };
        self.check(&answer)?;
        let both = answer.highest.min(self.local.version);
        if !self.local.proves_to(&answer) {
            *buffer = ahead;
            return Ok(Some((Established::unproven(self.to).with(both), Vec::new())));
        }
        if ahead.len() < 2 * PROOF_BYTES {
            return Ok(None);
        }
        let proofs = ahead.split_to(2 * PROOF_BYTES);
        *buffer = ahead;
        let transcript = [&self.transcript[..], &bytes].concat();
        let secret = self.local.secrets.find(Side::Listener, &transcript, &proofs);
        let secret = secret.ok_or(Refusal::WrongSecret(self.to))?;
        let proof = secret::prove(secret, Side::Dialler, &transcript).to_vec();
        let proven = Established::proven(self.to, secret, Side::Dialler, &transcript);
        Ok(Some((proven.with(both), proof)))
    }

    fn check(&self, answer: &Facts) -> Result<(), Refusal> {
        let &Facts { highest, lowest, verdict, channel, from, ensemble, .. } = answer;
        let refused = match verdict {
            0 => None,
            VERSION_REFUSED => Some(Refusal::Version(lowest, highest)),
            CHANNEL_REFUSED => Some(Refusal::Channel(self.channel.number())),
            UNLISTED => Some(Refusal::UnlistedThere(from)),
            OTHER_ENSEMBLE => {
                let (theirs, ours) = (ensemble, self.local.ensemble);
                Some(Refusal::OtherEnsemble { server: from, theirs, ours })
            }
            // Verdicts are from the listener's point of view, results from the dialler's.
            NO_SECRET_WITH_DIALLER => Some(Refusal::NoSecretHere(from)),
            NO_SECRET_WITH_LISTENER => Some(Refusal::NoSecretThere(from)),
            BUSY => Some(Refusal::Busy(from)),
            WRONG_SERVER => None,
            other => Some(Refusal::Unknown(from, other)),
        };
        if let Some(refused) = refused {
            return Err(refused);
        }
        if highest < VERSION_MIN || lowest > self.local.version {
            return Err(Refusal::Version(lowest, highest));
        }
        if from != self.to || verdict == WRONG_SERVER {
            return Err(Refusal::WrongServer { meant: self.to, reached: from });
        }
        if channel != self.channel.number() {
            return Err(Refusal::Channel(channel));
        }
        self.local.check(answer)
    }
}

impl Established {
    fn unproven(peer: ServerId) -> Established {
        let (reader, writer) = (Reader::default(), Writer::default());
        Established { peer, proven: false, version: VERSION, reader, writer }
    }

    fn proven(peer: ServerId, secret: &[u8], own: Side, transcript: &[u8]) -> Established {
        let other = match own {
            Side::Dialler => Side::Listener,
            Side::Listener => Side::Dialler,
        };
        let reader = Reader::signed(FrameKey::new(secret, other, transcript));
        let writer = Writer::signed(FrameKey::new(secret, own, transcript));
        Established { peer, proven: true, version: VERSION, reader, writer }
    }

    /// The same; the highest version that both ends speak is this one.
    fn with(self, version: u8) -> Established {
        let (reader, writer) = (self.reader.for_version(version), self.writer.for_version(version));
        Established { version, reader, writer, ..self }
    }
}

const VERSION_REFUSED: u8 = 1;
const CHANNEL_REFUSED: u8 = 2;
const WRONG_SERVER: u8 = 3;
const UNLISTED: u8 = 4;
const OTHER_ENSEMBLE: u8 = 5;
const NO_SECRET_WITH_DIALLER: u8 = 6;
const NO_SECRET_WITH_LISTENER: u8 = 7;
const BUSY: u8 = 8;
const MALFORMED: u8 = 9;
const WRONG_SECRET: u8 = 10;

impl Refusal {
    /// The number of this refusal in a listener's answer.
    fn verdict(&self) -> u8 {
        match self {
            Refusal::Malformed(_) => MALFORMED,
            Refusal::Version(..) => VERSION_REFUSED,
            Refusal::Channel(_) => CHANNEL_REFUSED,
            Refusal::WrongServer { .. } => WRONG_SERVER,
            Refusal::Unlisted(_) | Refusal::UnlistedThere(_) => UNLISTED,
            Refusal::OtherEnsemble { .. } => OTHER_ENSEMBLE,
            Refusal::NoSecretThere(_) => NO_SECRET_WITH_DIALLER,
            Refusal::NoSecretHere(_) => NO_SECRET_WITH_LISTENER,
            Refusal::WrongSecret(_) => WRONG_SECRET,
            Refusal::Busy(_) => BUSY,
            Refusal::Unknown(_, verdict) => *verdict,
        }
    }

    /// A short name: logs limit each kind of refusal on its own.
    pub fn kind(&self) -> &'static str {
        match self {
            Refusal::Malformed(_) => "malformed",
            Refusal::Version(..) => "version",
            Refusal::Channel(_) => "channel",
            Refusal::WrongServer { .. } => "wrong server",
            Refusal::Unlisted(_) | Refusal::UnlistedThere(_) => "unlisted",
            Refusal::OtherEnsemble { .. } => "other ensemble",
            Refusal::NoSecretThere(_) | Refusal::NoSecretHere(_) => "no secret",
            Refusal::WrongSecret(_) => "wrong secret",
            Refusal::Busy(_) => "busy",
            Refusal::Unknown(..) => "unknown",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed(bad) => write!(f, "{bad}"),
            Refusal::Version(lowest, highest) => write!(
                f,
                "it speaks the peer protocol's versions {lowest} to {highest}, this server \
                 {VERSION_MIN} to {VERSION}: \
                 run the same release on all servers"
            ),
            Refusal::Channel(0) => write!(
                f,
                "it is an election connection on a quorum port: compare the ports of both server \
                 lines"
            ),
            Refusal::Channel(1) => write!(
                f,
                "it is a quorum connection on an election port: compare the ports of both server \
                 lines"
            ),
            Refusal::Channel(number) => write!(f, "channel {number} does not exist"),
            Refusal::WrongServer { meant, reached } => write!(
                f,
                "it was meant for server {meant} and reached server {reached}: compare the lines \
                 server.{meant} \
                 and server.{reached} on both servers"
            ),
            Refusal::Unlisted(id) => {
                write!(f, "it says it is server {id}, which is this one: compare the myid files")
            }
            Refusal::UnlistedThere(id) => write!(
                f,
                "server {id} takes this server for itself, or does not list it, as versions before \
                 0.3 demand: compare its server lines and the myid files"
            ),
            Refusal::OtherEnsemble { server, theirs, ours } => write!(
                f,
                "server {server} belongs to another ensemble: id {theirs:016x}, this one is \
                 {ours:016x}: \
                 one of both has a foreign data directory, or was empty and has begun an ensemble \
                 of its own; move the \
                 directory away on that server and start it again"
            ),
            Refusal::NoSecretHere(id) => write!(
                f,
                "server {id} talks only to servers that know the ensemble's secret, and this one \
                 has none: set \
                 quorum.secretFile to a file with the same secret here"
            ),
            Refusal::NoSecretThere(id) => write!(
                f,
                "server {id} has no secret, and quorum.secretRequired=true here: set \
                 quorum.secretFile on it, or \
                 quorum.secretRequired=false here until all servers have one"
            ),
            Refusal::WrongSecret(id) => write!(
                f,
                "server {id} has another secret: compare the files that quorum.secretFile names on \
                 both servers"
            ),
            Refusal::Busy(id) => {
                write!(f, "server {id} has another connection already, or it comes too often")
            }
            Refusal::Unknown(id, verdict) => write!(
                f,
                "server {id} refuses it for a reason that this release does not know (number \
                 {verdict}); its log says \
                 why"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests;
