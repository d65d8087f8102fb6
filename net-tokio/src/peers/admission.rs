//! How often, and beside whom, connections in the name of another server are let in.
//!
//! Owns counting. Must not close anything.
//!
//! Without a secret nobody knows who dials: names are free for all. So what stands is worth more than what comes: a link
//! on which the other end is heard keeps its place, and who comes too often from one address is turned away there,
//! while a server at another address is not. With a proof of the secret none of this is needed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// Attempts that one address has at once; a server that redials pauses by itself.
const BURST: u32 = 20;
/// Time after which it has one more.
const REFILL: Duration = Duration::from_millis(200);
/// Addresses that are remembered for a name; beyond, the one with the most attempts left is forgotten.
const ADDRESSES: usize = 64;
/// Connections in one name that wait until the link that stands is silent or gone.
const WAITING: usize = 4;

/// For one name.
#[derive(Default)]
pub(super) struct Admission {
    buckets: RefCell<BTreeMap<IpAddr, TokenBucket>>,
    waiting: Rc<Cell<usize>>,
}

/// Allows a burst, and then so many in a time.
pub(super) struct TokenBucket {
    tokens: u32,
    burst: u32,
    refill: Duration,
    /// Until when tokens have been added.
    since: Instant,
}

/// A place among those that wait, until it is dropped.
pub(super) struct Waiting(Rc<Cell<usize>>);

impl Admission {
    /// Does it come too often from this address?
    pub(super) fn admits(&self, from: IpAddr, now: Instant) -> bool {
        let mut buckets = self.buckets.borrow_mut();
        if !buckets.contains_key(&from) && buckets.len() >= ADDRESSES {
            buckets.values_mut().for_each(|bucket| bucket.refill(now));
            let idle = buckets.iter().max_by_key(|(_, bucket)| bucket.tokens);
            let idle = idle.map(|(address, _)| *address).expect("there are some");
            buckets.remove(&idle);
        }
        let bucket = buckets.entry(from).or_insert_with(|| TokenBucket::new(BURST, REFILL, now));
        bucket.take(now).is_ok()
    }

    /// A place to wait, if there is one.
    pub(super) fn wait(&self) -> Option<Waiting> {
        let waiting = self.waiting.get();
        (waiting < WAITING).then(|| {
            self.waiting.set(waiting + 1);
            Waiting(Rc::clone(&self.waiting))
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl TokenBucket {
    pub(super) fn new(burst: u32, refill: Duration, now: Instant) -> TokenBucket {
        TokenBucket { tokens: burst, burst, refill, since: now }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.duration_since(self.since).as_nanos() / self.refill.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed >= self.burst - self.tokens {
            (self.tokens, self.since) = (self.burst, now);
        } else {
            self.tokens += passed;
            self.since += self.refill * passed;
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// When the next one comes, if there is none.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        self.refill(now);
        if self.tokens == 0 {
            return Err(self.since + self.refill);
        }
        self.tokens -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_burst_and_then_a_rate() {
        let began = Instant::now();
        let ms = Duration::from_millis;
        let mut bucket = TokenBucket::new(3, ms(100), began);
        assert!((0..3).all(|_| bucket.take(began).is_ok()));
        assert_eq!(bucket.take(began + ms(30)), Err(began + ms(100)));
        assert_eq!(bucket.take(began + ms(130)), Ok(()));
        assert_eq!(bucket.take(began + ms(130)), Err(began + ms(200)), "fractions are kept");
        let later = began + ms(100_000);
        assert!((0..3).all(|_| bucket.take(later).is_ok()));
        assert!(bucket.take(later).is_err());
    }

    #[test]
    fn who_comes_too_often_is_refused_at_its_own_address_only() {
        let (admission, now) = (Admission::default(), Instant::now());
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let admitted = (0..1000).filter(|_| admission.admits(address(1), now)).count();
        assert_eq!(admitted, BURST as usize);
        assert!(admission.admits(address(2), now));
        assert!((0..10_000).all(|n| admission.admits(address(10 + n), now)), "each once");
        assert!(admission.buckets.borrow().len() <= ADDRESSES);
        assert!(!admission.admits(address(1), now), "remembered all the same");
    }

    #[test]
    fn a_few_may_wait() {
        let admission = Admission::default();
        let waiting: Vec<_> = (0..10).filter_map(|_| admission.wait()).collect();
        assert_eq!(waiting.len(), WAITING);
        assert!(admission.wait().is_none());
        drop(waiting);
        assert!(admission.wait().is_some());
    }
}
