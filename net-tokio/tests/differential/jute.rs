//! Decoding of ZooKeeper's Jute records, written for this test program only.
//!
//! Must not use the server's codec: an error shared by both ends would be invisible.

/// Reads values from the front of a record; `None` if it is too short or a length is invalid.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A boolean as its byte; ZooKeeper writes only 0 and 1.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// A buffer; null if the length is -1.
    pub(crate) fn buffer(&mut self) -> Option<Option<&'a [u8]>> {
        match self.int()? {
            -1 => Some(None),
            length => Some(Some(self.take(usize::try_from(length).ok()?)?)),
        }
    }

    /// A vector; null if the count is -1.
    pub(crate) fn vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Reader<'a>) -> Option<T>,
    ) -> Option<Option<Vec<T>>> {
        match self.int()? {
            -1 => Some(None),
            count => (0..usize::try_from(count).ok()?)
                .map(|_| item(self))
                .collect::<Option<_>>()
                .map(Some),
        }
    }
}

/// Converts surrogate pairs to UTF-8: ZooKeeper encodes a character beyond U+FFFF as two surrogates
/// of three bytes each, our server as UTF-8 (WIRE-01).
fn without_surrogates(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, ..] = rest {
        if let [0xED, a @ 0xA0..=0xAF, b, 0xED, c @ 0xB0..=0xBF, d, after @ ..] = rest {
            let half = |high: u8, low: u8| u32::from(high & 0x0F) << 6 | u32::from(low & 0x3F);
            let point = 0x1_0000 + (half(*a, *b) << 10) + half(c & 0x0F, *d);
            let character = char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
            text.extend(character.encode_utf8(&mut [0; 4]).bytes());
            rest = after;
        } else {
            text.push(*first);
            rest = &rest[1..];
        }
    }
    text
}

/// Bytes as readable text, shortened if they are long.
pub(crate) fn show(bytes: Option<&[u8]>) -> String {
    const LONGEST: usize = 80;
    let Some(bytes) = bytes else { return "null".to_owned() };
    let bytes = &without_surrogates(bytes)[..];
    let head: String =
        bytes[..bytes.len().min(LONGEST)].iter().map(|&b| b.escape_ascii().to_string()).collect();
    if bytes.len() <= LONGEST {
        return format!("\"{head}\"");
    }
    let sum = bytes.iter().fold(0_u32, |sum, &b| sum.wrapping_mul(31).wrapping_add(u32::from(b)));
    format!("\"{head}..\" ({} bytes, sum {sum:08x})", bytes.len())
}
