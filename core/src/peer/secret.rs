//! The secret of an ensemble (`quorum.secretFile`): a server that knows it belongs to the ensemble.
//!
//! Owns proofs of the secret, and the keys that sign frames. Must not know what is signed.
//!
//! Proofs and keys are HMAC-SHA-256 over a label and the transcript of the greeting, which has both
//! nonces, both ids, both ensemble ids, the channel and the versions. Each end and each purpose has
//! its own label, so the bytes of one end are never valid as bytes of the other.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;
/// Bytes of a frame's signature: the first half of the HMAC-SHA-256.
pub(super) const SIGNATURE_BYTES: usize = 16;
/// A shorter secret could be guessed from a recorded proof.
const SECRET_BYTES_MIN: usize = 16;
/// A longer line suggests that the file holds no secrets.
const SECRET_BYTES_MAX: usize = 1024;

/// The secrets that a server knows: none, one, or two while the secret is being changed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secrets(Vec<Vec<u8>>);

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Dialler,
    Listener,
}

/// Signs or checks the frames of one direction of one connection, in their order.
#[derive(Clone)]
pub(super) struct FrameKey {
    mac: Hmac<Sha256>,
    /// Frames so far. A frame that is omitted, repeated or moved has a wrong signature.
    counter: u64,
}

impl Secrets {
    /// Parses the text of a secret file: one secret a line, one or two of them; empty lines are
    /// skipped.
    ///
    /// # Errors
    /// A message for the operator: what is wrong and what to do, without any secret.
    pub fn parse(text: &str) -> Result<Secrets, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let secrets: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).collect();
        let make = "write one with `head -c 32 /dev/urandom | base64`";
        if secrets.is_empty() {
            return Err(format!("holds no secret; {make}"));
        }
        if secrets.len() > 2 {
            let lines = secrets.len();
            return Err(format!(
                "holds {lines} secrets, at most 2 are used: the new and the old one"
            ));
        }
        match secrets
            .iter()
            .map(Vec::len)
            .find(|n| !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(n))
        {
            Some(bytes) => Err(format!(
                "holds a secret of {bytes} bytes; {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are \
                 needed: {make}"
            )),
            None => Ok(Secrets(secrets)),
        }
    }

    /// Is there no secret?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The listener's two proofs: one for each secret, or two equal ones for a single secret.
    pub(super) fn prove_all(&self, transcript: &[u8], out: &mut Vec<u8>) {
        for at in 0..2 {
            let secret = self.0.get(at).or(self.0.first()).expect("asked only where there is one");
            out.extend_from_slice(&prove(secret, Side::Listener, transcript));
        }
    }

    /// The own secret with which one of these proofs was computed.
    pub(super) fn find(&self, side: Side, transcript: &[u8], proofs: &[u8]) -> Option<&[u8]> {
        let mut proofs = proofs.chunks_exact(PROOF_BYTES);
        proofs.find_map(|proof| {
            let knows = |secret: &&Vec<u8>| {
                // In constant time: otherwise, a valid proof could be found byte by byte.
                proof_mac(secret, side, transcript).verify_slice(proof).is_ok()
            };
            self.0.iter().find(knows).map(Vec::as_slice)
        })
    }
}

/// The proof of `side` that it knows the secret.
pub(super) fn prove(secret: &[u8], side: Side, transcript: &[u8]) -> [u8; PROOF_BYTES] {
    proof_mac(secret, side, transcript).finalize().into_bytes().into()
}

fn proof_mac(secret: &[u8], side: Side, transcript: &[u8]) -> Hmac<Sha256> {
    let label: &[u8] = match side {
        Side::Dialler => b"zabkeeper 3 proof of the dialler\0",
        Side::Listener => b"zabkeeper 3 proof of the listener\0",
    };
    mac(secret).chain_update(label).chain_update(transcript)
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("keys of any length are taken")
}

impl FrameKey {
    /// The key for the frames that `side` sends on this connection.
    pub(super) fn new(secret: &[u8], side: Side, transcript: &[u8]) -> FrameKey {
        let label: &[u8] = match side {
            Side::Dialler => b"zabkeeper 3 frames of the dialler\0",
            Side::Listener => b"zabkeeper 3 frames of the listener\0",
        };
        let key = mac(secret).chain_update(label).chain_update(transcript).finalize().into_bytes();
        FrameKey { mac: mac(&key), counter: 0 }
    }

    /// The signature of the next frame.
    pub(super) fn sign(&mut self, content: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let whole = self.next(content).finalize().into_bytes();
        *whole.first_chunk().expect("it is longer")
    }

    /// Is this the signature of the next frame?
    pub(super) fn verify(&mut self, content: &[u8], signature: &[u8]) -> bool {
        self.next(content).verify_truncated_left(signature).is_ok()
    }

    fn next(&mut self, content: &[u8]) -> Hmac<Sha256> {
        let number = self.counter;
        self.counter += 1;
        // The MAC's input ends with the content, so the length of the content needs no signature.
        self.mac.clone().chain_update(number.to_le_bytes()).chain_update(content)
    }
}

/// Omits the secrets, so that no log and no dump contains them.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl fmt::Debug for FrameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameKey(frame {})", self.counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_file_holds_one_or_two_secrets() {
        let (one, two) = ("a".repeat(16), "b".repeat(40));
        assert_eq!(Secrets::parse(&format!("{one}\n")).unwrap().0.len(), 1);
        assert_eq!(Secrets::parse(&format!("\n{one}\r\n{two}\n\n")).unwrap().0.len(), 2);
        for (text, what) in [
            (String::new(), "holds no secret"),
            ("short".to_owned(), "a secret of 5 bytes"),
            ("x".repeat(1025), "a secret of 1025 bytes"),
            (format!("{one}\n{two}\n{one}"), "holds 3 secrets"),
        ] {
            let error = Secrets::parse(&text).unwrap_err();
            assert!(error.contains(what), "{error}");
            assert!(!error.contains(&one) && !error.contains("short"), "{error}");
        }
        assert_eq!(format!("{:?}", Secrets::parse(&one).unwrap()), "Secrets(1)");
    }

    #[test]
    fn proof_is_valid_for_one_side_transcript_and_secret() {
        let [ours, other] = ["a", "b"].map(|text| Secrets::parse(&text.repeat(20)).unwrap());
        let proof = prove(&ours.0[0], Side::Dialler, b"transcript");
        assert_eq!(ours.find(Side::Dialler, b"transcript", &proof), Some(&ours.0[0][..]));
        assert_eq!(ours.find(Side::Listener, b"transcript", &proof), None);
        assert_eq!(ours.find(Side::Dialler, b"another", &proof), None);
        assert_eq!(other.find(Side::Dialler, b"transcript", &proof), None);
        assert_eq!(ours.find(Side::Dialler, b"transcript", &proof[1..]), None);
    }

    #[test]
    fn frame_signatures_depend_on_order_and_direction() {
        let key = |side| FrameKey::new(b"a secret of some length", side, b"transcript");
        let (mut sender, mut reader) = (key(Side::Dialler), key(Side::Dialler));
        let (first, second) = (sender.sign(b"same"), sender.sign(b"same"));
        assert_ne!(first, second);
        assert!(reader.clone().verify(b"same", &first));
        assert!(!reader.clone().verify(b"same", &second), "one was left out");
        assert!(!reader.clone().verify(b"sane", &first));
        assert!(!key(Side::Listener).verify(b"same", &first), "sent back");
        assert!(reader.verify(b"same", &first) && !reader.verify(b"same", &first), "repeated");
    }
}
