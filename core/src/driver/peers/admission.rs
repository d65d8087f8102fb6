//! Rate limit for connections that claim the id of a server without a proof.
//!
//! Owns token buckets. Must not close a connection.
//!
//! Without a secret, any host can claim the id of any server. So a link that receives messages
//! stays, and an address that opens too many connections is refused in the name of that server,
//! while a server at another address is accepted. Connections with a proof of the secret are not
//! limited.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::Instant;

/// Connections that one address may open at once. A correct server dials once in each election that
/// it loses, and pauses after a refusal.
const BURST: u32 = 50;
/// Time after which the address may open one more: elections may follow each other this fast when
/// an epoch has few transactions, as in the simulator.
const REFILL: Duration = Duration::from_millis(20);
/// Addresses with a bucket, for each server; beyond this number, the fullest bucket is dropped.
const ADDRESSES: usize = 64;

/// The buckets of one claimed server id.
#[derive(Debug, Default)]
pub(super) struct Admission {
    buckets: BTreeMap<IpAddr, TokenBucket>,
}

/// Admits a burst, and then one in each refill time.
#[derive(Debug)]
pub(super) struct TokenBucket {
    tokens: u32,
    burst: u32,
    refill: Duration,
    /// The time up to which tokens have been added.
    since: Instant,
}

impl Admission {
    /// Takes a token of this address. Returns whether there was one.
    pub(super) fn admits(&mut self, from: IpAddr, now: Instant) -> bool {
        if !self.buckets.contains_key(&from) && self.buckets.len() >= ADDRESSES {
            self.buckets.values_mut().for_each(|bucket| bucket.refill(now));
            let fullest = self.buckets.iter().max_by_key(|(_, bucket)| bucket.tokens);
            let fullest = fullest.map(|(address, _)| *address).expect("there are some");
            self.buckets.remove(&fullest);
        }
        let new = || TokenBucket::new(BURST, REFILL, now);
        self.buckets.entry(from).or_insert_with(new).take(now).is_ok()
    }
}

impl TokenBucket {
    pub(super) fn new(burst: u32, refill: Duration, now: Instant) -> TokenBucket {
        TokenBucket { tokens: burst, burst, refill, since: now }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.since(self.since).as_nanos() / self.refill.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed >= self.burst - self.tokens {
            (self.tokens, self.since) = (self.burst, now);
        } else {
            self.tokens += passed;
            self.since = self.since.after(self.refill * passed);
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// There is none; contains the time at which the next one is added.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        self.refill(now);
        if self.tokens == 0 {
            return Err(self.since.after(self.refill));
        }
        self.tokens -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn bucket_admits_a_burst_and_then_a_rate() {
        let mut bucket = TokenBucket::new(3, Duration::from_millis(100), at(0));
        assert!((0..3).all(|_| bucket.take(at(0)).is_ok()));
        assert_eq!(bucket.take(at(30)), Err(at(100)));
        assert_eq!(bucket.take(at(130)), Ok(()));
        assert_eq!(bucket.take(at(130)), Err(at(200)), "fractions are kept");
        assert!((0..3).all(|_| bucket.take(at(100_000)).is_ok()));
        assert!(bucket.take(at(100_000)).is_err());
    }

    #[test]
    fn address_that_connects_too_often_is_refused_and_others_are_not() {
        let mut admission = Admission::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let admitted = (0..1000).filter(|_| admission.admits(address(1), at(0))).count();
        assert_eq!(admitted, BURST as usize);
        assert!(admission.admits(address(2), at(0)));
        assert!((0..10_000).all(|n| admission.admits(address(10 + n), at(0))), "each once");
        assert!(admission.buckets.len() <= ADDRESSES);
        assert!(!admission.admits(address(1), at(0)), "an empty bucket is kept");
    }
}
