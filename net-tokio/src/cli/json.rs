//! The machine-readable form of outputs (`--json`).
//!
//! Owns the names of fields. Must not do I/O.
//!
//! Zxids and session ids are texts such as `0x5`: they may exceed what JavaScript's numbers hold.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zabkeeper_client::{Acl, Id, Stat, WatchEvent};

use super::{acl, format};

/// A node's statistics.
pub(crate) fn stat(stat: &Stat) -> Value {
    json!({
        "czxid": stat.czxid.to_string(),
        "mzxid": stat.mzxid.to_string(),
        "pzxid": stat.pzxid.to_string(),
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeralOwner": stat.ephemeral_owner.to_string(),
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    })
}

/// A node's data: a text, or in base64 where it is none; `null` if the node has none.
pub(crate) fn node(path: &str, data: Option<&[u8]>, node: &Stat) -> Value {
    let (encoding, data) = match data.map(|data| (std::str::from_utf8(data), data)) {
        None => ("utf-8", Value::Null),
        Some((Ok(text), _)) => ("utf-8", text.into()),
        Some((Err(_), data)) => ("base64", STANDARD.encode(data).into()),
    };
    json!({ "path": path, "data": data, "encoding": encoding, "stat": stat(node) })
}

/// An access control list.
pub(crate) fn acls(list: &[Acl]) -> Value {
    let entry = |entry: &Acl| json!({ "scheme": entry.scheme, "id": entry.id, "perms": acl::perms(entry.perms) });
    list.iter().map(entry).collect()
}

/// Identities.
pub(crate) fn ids(list: &[Id]) -> Value {
    list.iter().map(|id| json!({ "scheme": id.scheme, "id": id.id })).collect()
}

/// A watch event.
pub(crate) fn event(event: &WatchEvent) -> Value {
    json!({
        "type": format::event_name(event.event),
        "path": event.path,
        "zxid": event.zxid.map(|zxid| zxid.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_text_or_base64_or_null() {
        let data = |data: Option<&[u8]>| node("/a", data, &Stat::default());
        assert_eq!(data(Some(b"x"))["data"], "x");
        assert_eq!(data(Some(b""))["data"], "");
        assert_eq!(data(None)["data"], Value::Null);
        let binary = data(Some(&[0xff]));
        assert_eq!((&binary["data"], &binary["encoding"]), (&json!("/w=="), &json!("base64")));
    }
}
