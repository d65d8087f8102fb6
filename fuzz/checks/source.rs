//! An input as a source of choices; after its end all bytes are zero.

/// The unread rest of an input.
pub(crate) struct Source<'a>(pub(crate) &'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        self.split(1).first().copied().unwrap_or(0)
    }

    /// The next byte modulo `bound`.
    pub(crate) fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    pub(crate) fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.array())
    }

    pub(crate) fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }

    /// A length byte, and that many bytes.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let count = self.byte();
        self.split(usize::from(count))
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.split(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    fn split(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
