//! Patterns for names: `*`, `?` and `[a-z]`, as shells have them.
//!
//! Owns the matching. Must not know paths: a name has no slash.

/// Does the whole name match?
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut read) = (0, 0);
    // The star that was met last, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, read));
                at += 1;
                continue;
            }
            None if read == name.len() => return true,
            None => None,
            Some(_) => name.get(read).and_then(|c| one(&pattern[at..], *c)),
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                read += 1;
            }
            (None, Some((after, taken))) if taken < name.len() => {
                star = Some((after, taken + 1));
                at = after;
                read = taken + 1;
            }
            (None, _) => return false,
        }
    }
}

/// The length of the pattern's first part if it matches the character.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == c).then_some(2),
        ['[', rest @ ..] => {
            let negated = matches!(rest.first(), Some('!' | '^'));
            let from = usize::from(negated);
            // A bracket that stands first belongs to the set.
            let close = rest.iter().skip(from + 1).position(|c| *c == ']');
            let Some(close) = close.map(|close| close + from + 1) else {
                return (c == '[').then_some(1);
            };
            let mut set = &rest[from..close];
            let mut within = false;
            while let Some(first) = set.first() {
                if let [first, '-', last, ..] = set {
                    within |= (*first..=*last).contains(&c);
                    set = &set[3..];
                } else {
                    within |= *first == c;
                    set = &set[1..];
                }
            }
            (within != negated).then_some(close + 2)
        }
        [first, ..] => (*first == c).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "abc"),
            ("a*c", "abbc"),
            ("a*b*c", "axbxbxc"),
            ("?b?", "äbc"),
            ("lock-[0-9]*", "lock-0000000001"),
            ("[!a]", "b"),
            ("[]]", "]"),
            ("[", "["),
            ("a\\*", "a*"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("a", ""),
            ("a*c", "ab"),
            ("?", ""),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("a\\*", "ab"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
