//! Which ensemble a server belongs to, and the secret that its servers share.
//!
//! Owns the ensemble's id, the secret behind its session passwords, the nonces of its epochs, and
//! how a leader draws them. Must not decide which identity wins: `zab` does.
//!
//! The leader of an ensemble's first epoch draws the identity. Every server that follows that epoch
//! makes the identity durable together with the epoch, before any of them serves a client. Until a
//! quorum has it, the next leader may draw another one. A server adopts its leader's identity when
//! the leader begins an epoch. A leader has the highest epoch of its quorum, so every leader has an
//! identity that was established.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::ids::{Epoch, SessionId};
use crate::wire::Password;

const BYTES: usize = 32;

/// How many epochs' nonces are kept. The nonces of older epochs were compared when their leaders
/// began.
pub(crate) const EPOCHS: usize = 64;

/// The seed of all random choices of a server, and of the secrets that it draws.
///
/// Made from 32 unpredictable bytes or, for tests and simulations, from a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u8; BYTES]);

/// The key that session passwords are computed with. Never printed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSecret([u8; BYTES]);

/// The identity of an ensemble.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Differs from the id of every other ensemble; never zero.
    pub id: u64,
    /// The key for session passwords.
    pub secret: SessionSecret,
    /// Sessions created in an earlier epoch have ZooKeeper's passwords (HS-08).
    pub since: Epoch,
    /// Whether a quorum is known to have this identity. Until then another one may replace it.
    pub established: bool,
}

/// The nonce of an epoch. If two leaders begin epochs with the same number, the nonces differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EpochNonce {
    /// The epoch.
    pub epoch: Epoch,
    /// Never zero.
    pub nonce: u64,
}

impl Seed {
    /// The seed as a number, for choices that need no secrecy.
    pub(crate) fn number(&self) -> u64 {
        u64::from_le_bytes(*self.0.first_chunk().expect("long enough"))
    }

    /// The identity of an ensemble that begins with this epoch.
    pub fn identity(&self, since: Epoch) -> Identity {
        let secret = SessionSecret(hmac(&self.0, "session secret", since.0.into()));
        Identity { id: number(&self.0, "ensemble", since), secret, since, established: false }
    }

    /// The nonce of an epoch that this server begins.
    pub fn epoch_nonce(&self, epoch: Epoch) -> EpochNonce {
        EpochNonce { epoch, nonce: number(&self.0, "epoch", epoch) }
    }
}

impl From<u64> for Seed {
    fn from(number: u64) -> Seed {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Seed(bytes)
    }
}

impl From<[u8; BYTES]> for Seed {
    fn from(bytes: [u8; BYTES]) -> Seed {
        Seed(bytes)
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed")
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret")
    }
}

impl SessionSecret {
    /// The password of a session: the first half of an HMAC-SHA-256 over its id.
    pub(crate) fn password(&self, session: SessionId) -> Password {
        let whole = hmac(&self.0, "password", session.0.cast_unsigned());
        *whole.first_chunk().expect("long enough")
    }

    /// Whether `claimed` is the session's password. Compares in constant time, because an early
    /// exit would let an attacker find the password byte by byte.
    pub(crate) fn is_password(&self, session: SessionId, claimed: &[u8]) -> bool {
        let mac = mac(&self.0, "password", session.0.cast_unsigned());
        claimed.len() == size_of::<Password>() && mac.verify_truncated_left(claimed).is_ok()
    }
}

impl Identity {
    /// Whether sessions created in this epoch have passwords computed with the secret.
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        epoch >= self.since
    }
}

/// Whether two ids name different ensembles. Zero means unknown and differs from none.
pub(crate) fn differ(ours: u64, theirs: u64) -> bool {
    ours != 0 && theirs != 0 && ours != theirs
}

/// Adds the nonce of an epoch that begins. Removes the nonces of this and later epochs, those that
/// `needed` rejects, and the oldest ones beyond [`EPOCHS`].
pub(crate) fn note_epoch(
    nonces: &mut Vec<EpochNonce>,
    new: EpochNonce,
    needed: impl Fn(Epoch) -> bool,
) {
    nonces.retain(|known| known.epoch < new.epoch && needed(known.epoch));
    nonces.push(new);
    let surplus = nonces.len().saturating_sub(EPOCHS);
    nonces.drain(..surplus);
}

/// The nonce of an epoch, if known.
pub(crate) fn nonce_of(nonces: &[EpochNonce], epoch: Epoch) -> Option<u64> {
    nonces.iter().find(|known| known.epoch == epoch).map(|known| known.nonce)
}

/// Never zero, which means unknown.
fn number(key: &[u8], purpose: &str, epoch: Epoch) -> u64 {
    let whole = hmac(key, purpose, epoch.0.into());
    u64::from_le_bytes(*whole.first_chunk().expect("long enough")).max(1)
}

fn hmac(key: &[u8], purpose: &str, number: u64) -> [u8; BYTES] {
    mac(key, purpose, number).finalize().into_bytes().into()
}

fn mac(key: &[u8], purpose: &str, number: u64) -> Hmac<Sha256> {
    let mac = Hmac::new_from_slice(key).expect("keys of any length are taken");
    let mac = Mac::chain_update(mac, "zabkeeper ").chain_update(purpose).chain_update([0]);
    mac.chain_update(number.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_secrets() {
        let identity = Seed::from([7; BYTES]).identity(Epoch(1));
        let text = format!("{identity:?} {:?}", Seed::from(9));
        assert!(text.contains("secret: SessionSecret,") && text.ends_with(" Seed"), "{text}");
    }

    #[test]
    fn identity_depends_on_each_seed_byte_and_nonce_on_its_label_and_epoch() {
        let of = |at: usize| {
            let mut bytes = [0; BYTES];
            bytes[at] = 1;
            Seed::from(bytes).identity(Epoch(1))
        };
        let one = of(0);
        for at in 1..BYTES {
            assert!(of(at).secret != one.secret && of(at).id != one.id, "{at}");
        }
        let seed = Seed::from(7);
        assert_ne!(seed.epoch_nonce(Epoch(1)).nonce, seed.identity(Epoch(1)).id);
        assert_ne!(seed.epoch_nonce(Epoch(1)).nonce, seed.epoch_nonce(Epoch(2)).nonce);
    }

    /// HS-08.
    #[test]
    fn password_depends_on_secret_and_session() {
        let secrets = [1, 2].map(|number| Seed::from(number).identity(Epoch(1)).secret);
        let session = SessionId(0x0100_0000_0000_0007);
        let [one, other] = secrets.map(|secret| secret.password(session));
        assert_ne!(one, other);
        assert_ne!(one, secrets[0].password(SessionId(session.0 + 1)));
        assert!(secrets[0].is_password(session, &one));
        assert!(!secrets[0].is_password(session, &other));
        assert!(
            !secrets[0].is_password(session, &one[..15]) && !secrets[0].is_password(session, &[])
        );
    }

    #[test]
    fn only_needed_nonces_are_kept() {
        let new = |epoch| EpochNonce { epoch: Epoch(epoch), nonce: u64::from(epoch) + 100 };
        let mut nonces = Vec::new();
        for epoch in 1..=100 {
            note_epoch(&mut nonces, new(epoch), |epoch| epoch.0 % 2 == 0);
        }
        assert_eq!(nonce_of(&nonces, Epoch(100)), Some(200));
        assert_eq!(nonce_of(&nonces, Epoch(97)), None);
        assert_eq!(nonces.len(), 50, "even ones, the last of which is the newest");
        note_epoch(&mut nonces, EpochNonce { epoch: Epoch(90), nonce: 7 }, |_| true);
        assert_eq!(nonce_of(&nonces, Epoch(90)), Some(7), "what came after it is undone");
        assert_eq!(nonce_of(&nonces, Epoch(92)), None);
        for epoch in 101..=300 {
            note_epoch(&mut nonces, new(epoch), |_| true);
        }
        assert_eq!(nonces.len(), EPOCHS);
    }
}
