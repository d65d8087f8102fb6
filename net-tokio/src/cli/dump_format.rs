//! The text of a dumped subtree.
//!
//! Owns the format, which docs/cli.md describes. Must not do I/O.
//!
//! ```text
//! zabkeeper-dump 1
//! root <TAB> /app
//! /        <TAB> world:anyone:cdrwa <TAB> =data
//! /config  <TAB> digest:u:h=:cdrwa  <TAB> -
//! # comments and notes
//! end <TAB> 2
//! ```
//!
//! Paths are relative to the root. Data is `=` and the bytes, or `-` for none. What is no printable
//! UTF-8, and the backslash, is `\xNN`, so that a line is a node and a dump is a text.

use std::fmt::Write as _;

use zabkeeper_client::Acl;

use super::acl;

const HEAD: &str = "zabkeeper-dump 1";

/// A node of a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DumpedNode {
    /// Relative to the root, which is `/`.
    pub(crate) path: String,
    pub(crate) acl: Vec<Acl>,
    pub(crate) data: Option<Vec<u8>>,
}

/// A dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dump {
    /// The path of the first node where it was dumped.
    pub(crate) root: String,
    /// Each after its parent.
    pub(crate) nodes: Vec<DumpedNode>,
}

/// The lines in front of the nodes.
pub(crate) fn head(root: &str) -> String {
    format!("{HEAD}\nroot\t{}\n", escaped(root.as_bytes(), ""))
}

/// The line of a node.
pub(crate) fn line(node: &DumpedNode) -> String {
    let mut line = escaped(node.path.as_bytes(), "");
    line.push('\t');
    for (at, entry) in node.acl.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let scheme = escaped(entry.scheme.as_bytes(), ",:");
        let id = escaped(entry.id.as_bytes(), ",");
        write!(line, "{comma}{scheme}:{id}:{}", acl::perms(entry.perms)).expect("a text takes all");
    }
    match &node.data {
        Some(data) => line += &format!("\t={}", escaped(data, "")),
        None => line += "\t-",
    }
    line
}

/// A line that says something to the reader.
pub(crate) fn note(text: &str) -> String {
    format!("# {}", escaped(text.as_bytes(), ""))
}

/// The last line.
pub(crate) fn end(nodes: usize) -> String {
    format!("end\t{nodes}")
}

/// Reads a dump.
///
/// # Errors
/// The line that is none, or that the dump is not whole.
pub(crate) fn parse(text: &str) -> Result<Dump, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    if lines.next().is_none_or(|(_, line)| line != HEAD) {
        return Err(format!("no dump: the first line is not {HEAD}"));
    }
    let root = lines.next().and_then(|(_, line)| unescaped(line.strip_prefix("root\t")?));
    let root = root.and_then(|root| String::from_utf8(root).ok());
    let mut dump = Dump { root: root.ok_or("the second line names no root")?, nodes: Vec::new() };
    for (number, line) in lines {
        if let Some(count) = line.strip_prefix("end\t") {
            let read = dump.nodes.len();
            if count != read.to_string() {
                return Err(format!("the dump has {read} nodes, and its last line says {count}"));
            }
            return Ok(dump);
        }
        let node = parse_line(line).ok_or_else(|| format!("line {} is no node", number + 1))?;
        dump.nodes.push(node);
    }
    Err("the last line is missing: the dump is not whole".to_owned())
}

fn parse_line(line: &str) -> Option<DumpedNode> {
    let mut fields = line.splitn(3, '\t');
    let mut next = || fields.next();
    let path = String::from_utf8(unescaped(next()?)?).ok().filter(|path| path.starts_with('/'))?;
    let list = next()?;
    let acl = list.split(',').filter(|entry| !entry.is_empty()).map(parse_acl);
    let acl = acl.collect::<Option<Vec<Acl>>>()?;
    let data = match next()? {
        "-" => None,
        data => Some(unescaped(data.strip_prefix('=')?)?),
    };
    Some(DumpedNode { path, acl, data })
}

fn parse_acl(entry: &str) -> Option<Acl> {
    let (scheme, rest) = entry.split_once(':')?;
    let (id, perms) = rest.rsplit_once(':')?;
    let mut complaints = Vec::new();
    let perms = acl::parse_perms(perms, &mut complaints);
    let text = |field| String::from_utf8(unescaped(field)?).ok();
    complaints.is_empty().then_some(Acl { perms, scheme: text(scheme)?, id: text(id)? })
}

/// The bytes as a text of one line; `also` are further characters to escape.
fn escaped(bytes: &[u8], also: &str) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' || c == '\u{2028}' || c == '\u{2029}' || also.contains(c)
            {
                let mut buffer = [0; 4];
                escape(c.encode_utf8(&mut buffer).as_bytes(), &mut text);
            } else {
                text.push(c);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        write!(text, "\\x{byte:02x}").expect("a text takes all");
    }
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let hex = part.strip_prefix('x')?;
        bytes.push(u8::from_str_radix(hex.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&hex.as_bytes()[2..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use zabkeeper_client::Perms;

    use super::*;

    fn node(path: &str, data: Option<&[u8]>) -> DumpedNode {
        let name = Acl { perms: Perms(5), scheme: "x509".into(), id: "CN=a,O=b:c\t".into() };
        let acl = [Acl::open(), vec![name]].concat();
        DumpedNode { path: path.into(), acl, data: data.map(<[u8]>::to_vec) }
    }

    #[test]
    fn every_node_reads_as_it_was_written() {
        let all: Vec<u8> = (0..=255).collect();
        let nodes = vec![
            node("/", None),
            node("/ä b", Some(b"")),
            node("/a\\b", Some(&all)),
            node("/c", Some(b"-\n= \\x41 # \r\n")),
        ];
        let lines: Vec<String> = nodes.iter().map(line).collect();
        assert!(lines.iter().all(|line| !line.contains(['\n', '\r'])), "{lines:?}");
        let note = note("/e is\nephemeral");
        let text = format!("{}{}\n{note}\n{}\n", head("/app"), lines.join("\n"), end(4));
        assert_eq!(parse(&text), Ok(Dump { root: "/app".into(), nodes }));
        assert_eq!(
            line(&node("/c", Some(b"x\ty"))),
            "/c\tworld:anyone:cdrwa,x509:CN=a\\x2cO=b:c\\x09:cr\t=x\\x09y"
        );
    }

    #[test]
    fn damaged_dumps_are_refused() {
        let head = head("/");
        for (text, named) in [
            (String::new(), "first line"),
            ("zabkeeper-dump 1\n/\n".to_owned(), "root"),
            (head.clone(), "last line"),
            (format!("{head}end\t1\n"), "0 nodes"),
            (format!("{head}/a\t-\nend\t1\n"), "line 3"),
            (format!("{head}/a\tworld:anyone:z\t-\nend\t1\n"), "line 3"),
            (format!("{head}/a\t\t=\\y\nend\t1\n"), "line 3"),
        ] {
            let error = parse(&text).expect_err("refused");
            assert!(error.contains(named), "{error}");
        }
    }
}
