//! The options of a command, read as zkCli reads them (Apache Commons CLI's `DefaultParser`).
//!
//! Owns the grammar: options anywhere, joined options, values in the same word. Must not know what
//! an option means.

/// An option of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opt {
    /// The name without its hyphen.
    pub(crate) name: &'static str,
    /// Does a value follow?
    pub(crate) takes_value: bool,
    /// What zkCli's help says of it.
    pub(crate) about: &'static str,
}

/// An option without a value.
pub(crate) const fn flag(name: &'static str, about: &'static str) -> Opt {
    Opt { name, takes_value: false, about }
}

/// An option with a value.
pub(crate) const fn value(name: &'static str, about: &'static str) -> Opt {
    Opt { name, takes_value: true, about }
}

/// The arguments of a command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Arguments {
    /// All words that are no options, without the command's name.
    pub(crate) rest: Vec<String>,
    given: Vec<(&'static str, Option<String>)>,
}

impl Arguments {
    /// Is the option given?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The first value of the option.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == name)?.1.as_deref()
    }

    /// The options that are given, each as often as it is given.
    pub(crate) fn options(&self) -> impl Iterator<Item = &'static str> {
        self.given.iter().map(|(name, _)| *name)
    }
}

/// Reads the words behind the name of a command. Everything behind the first
/// `--` is left as it is, including a further `--`.
///
/// # Errors
/// The text that zkCli prints, without the name of the Java exception.
pub(crate) fn parse(words: &[String], options: &[Opt]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut words = words.iter();
    let mut open: Option<&Opt> = None;
    while let Some(word) = words.next() {
        if word == "--" {
            if let Some(open) = open {
                return Err(missing(open));
            }
            parsed.rest.extend(words.cloned());
            return Ok(parsed);
        }
        if let Some(option) = open {
            if is_option(word, options) && !is_negative_number(word) {
                return Err(missing(option));
            }
            let value = unquoted(word).to_owned();
            parsed.given.push((option.name, Some(value)));
            open = None;
        } else if word.starts_with('-') && word != "-" {
            open = read_option(word, options, &mut parsed)?;
        } else {
            parsed.rest.push(word.clone());
        }
    }
    open.map_or(Ok(parsed), |open| Err(missing(open)))
}

/// Reads a word that begins with a hyphen; returns the option whose value is to follow.
fn read_option<'o>(
    word: &str,
    options: &'o [Opt],
    parsed: &mut Arguments,
) -> Result<Option<&'o Opt>, String> {
    let unknown = || format!("Unrecognized option: {word}");
    let name = word.strip_prefix("--").unwrap_or(&word[1..]);
    if let Some(option) = find(name, options) {
        if option.takes_value {
            return Ok(Some(option));
        }
        parsed.given.push((option.name, None));
        return Ok(None);
    }
    if let Some((name, value)) = name.split_once('=') {
        let option = find(name, options).filter(|option| option.takes_value);
        let option = option.ok_or_else(unknown)?;
        parsed.given.push((option.name, Some(value.to_owned())));
        return Ok(None);
    }
    if word.starts_with("--") {
        return Err(unknown());
    }
    // Several options of one letter in one word, the last one with its value behind it.
    for (at, letter) in name.char_indices() {
        let end = at + letter.len_utf8();
        let option = find(&name[at..end], options).ok_or_else(unknown)?;
        if option.takes_value {
            if end == name.len() {
                return Ok(Some(option));
            }
            parsed.given.push((option.name, Some(name[end..].to_owned())));
            return Ok(None);
        }
        parsed.given.push((option.name, None));
    }
    Ok(None)
}

fn find<'o>(name: &str, options: &'o [Opt]) -> Option<&'o Opt> {
    options.iter().find(|option| option.name == name)
}

fn is_option(word: &str, options: &[Opt]) -> bool {
    let Some(name) = word.strip_prefix('-') else { return false };
    let name = name.strip_prefix('-').unwrap_or(name);
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let first = name.chars().next().map(String::from);
    find(name, options).is_some() || first.is_some_and(|first| find(&first, options).is_some())
}

fn is_negative_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

fn missing(option: &Opt) -> String {
    format!("Missing argument for option: {}", option.name)
}

/// The value without a pair of double quotes around it.
fn unquoted(word: &str) -> &str {
    let inner = word.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
    inner.filter(|inner| !inner.contains('"')).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[Opt] = &[flag("s", "stat"), flag("w", "watch"), value("v", "version")];

    /// The options that are given, and the other words; or the error.
    fn check(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match parse(&words, OPTIONS) {
            Ok(Arguments { rest, given }) => {
                let given = given.iter().map(|(name, value)| match value {
                    Some(value) => format!("{name}={value}"),
                    None => (*name).to_owned(),
                });
                format!("{} | {}", given.collect::<Vec<_>>().join(" "), rest.join(" "))
            }
            Err(error) => error,
        }
    }

    #[test]
    fn options_stand_anywhere_and_may_be_joined() {
        for (line, expected) in [
            ("/a", " | /a"),
            ("-s /a", "s | /a"),
            ("/a -s", "s | /a"),
            ("-sw /a", "s w | /a"),
            ("-v 5 /a", "v=5 | /a"),
            ("-v5 /a", "v=5 | /a"),
            ("-v=5 /a", "v=5 | /a"),
            ("-sv 5 /a", "s v=5 | /a"),
            ("-v -1 /a", "v=-1 | /a"),
            ("--s /a", "s | /a"),
            ("/a -- -s -- -z", " | /a -s -- -z"),
            ("/a -", " | /a -"),
            ("/a -5", "Unrecognized option: -5"),
            ("-z /a", "Unrecognized option: -z"),
            ("-sz /a", "Unrecognized option: -sz"),
            ("--stat /a", "Unrecognized option: --stat"),
            ("/a -v", "Missing argument for option: v"),
            ("-v -s /a", "Missing argument for option: v"),
        ] {
            assert_eq!(check(line), expected, "{line}");
        }
    }
}
