//! JSON as ZooKeeper's admin server prints it, in parts.
//!
//! Owns its form: that of Jackson's default pretty printer. Must not know what is printed.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

/// An object that is written field by field.
pub(super) struct Object {
    text: Vec<u8>,
    is_empty: bool,
}

/// A field whose value is written row by row.
pub(super) enum Rows {
    /// `"name" : [ row, row ]`.
    List,
    /// `"name" : { "key" : [ value, value ] }`, with the key of the last row.
    Groups(Option<String>),
}

impl Object {
    pub(super) fn new() -> Object {
        Object { text: b"{".to_vec(), is_empty: true }
    }

    /// Takes what is written so far.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    /// Adds the fields of a value that is an object.
    pub(super) fn fields(&mut self, value: &impl Serialize) {
        let text = pretty(value, 0);
        let inner = text.strip_prefix(b"{\n").and_then(|text| text.strip_suffix(b"\n}"));
        // An object without fields is `{ }`.
        if let Some(inner) = inner {
            self.next();
            self.text.extend_from_slice(inner);
        }
    }

    /// Adds a field.
    pub(super) fn field(&mut self, name: &str, value: &impl Serialize) {
        self.name(name);
        self.text.extend_from_slice(&pretty(value, 1));
    }

    /// Begins a field whose value comes row by row.
    pub(super) fn begin(&mut self, name: &str, rows: &Rows) {
        self.name(name);
        self.text.extend_from_slice(match rows {
            Rows::List => b"[ ",
            Rows::Groups(_) => b"{",
        });
    }

    /// Adds a row to a list; `first` if it is the first one.
    pub(super) fn item(&mut self, first: bool, value: &impl Serialize) {
        if !first {
            self.text.extend_from_slice(b", ");
        }
        self.text.extend_from_slice(&pretty(value, 1));
    }

    /// Adds a value to the group of this key, which follows the groups of other keys.
    pub(super) fn member(&mut self, groups: &mut Rows, key: &str, value: &impl Serialize) {
        let Rows::Groups(last) = groups else { return };
        if last.as_deref() == Some(key) {
            self.text.extend_from_slice(b", ");
        } else {
            self.text.extend_from_slice(if last.is_some() { b" ]," } else { b"" });
            self.text.extend_from_slice(b"\n    ");
            self.text.extend_from_slice(&pretty(&key, 2));
            self.text.extend_from_slice(b" : [ ");
            *last = Some(key.to_owned());
        }
        self.text.extend_from_slice(&pretty(value, 2));
    }

    /// Ends a field that came row by row; `any` if it had rows.
    pub(super) fn end(&mut self, rows: &Rows, any: bool) {
        self.text.extend_from_slice(match (rows, any) {
            (Rows::List, true) => b" ]",
            (Rows::List, false) => b"]",
            (Rows::Groups(_), true) => b" ]\n  }",
            (Rows::Groups(_), false) => b" }",
        });
    }

    /// Ends the object.
    pub(super) fn finish(&mut self) {
        self.text.extend_from_slice(if self.is_empty { b" }" } else { b"\n}" });
    }

    fn name(&mut self, name: &str) {
        self.next();
        self.text.extend_from_slice(b"  ");
        self.text.extend_from_slice(&pretty(&name, 1));
        self.text.extend_from_slice(b" : ");
    }

    fn next(&mut self) {
        let separator: &[u8] =
            if std::mem::replace(&mut self.is_empty, false) { b"\n" } else { b",\n" };
        self.text.extend_from_slice(separator);
    }
}

/// The text of a value that stands within this many objects.
fn pretty(value: &impl Serialize, depth: usize) -> Vec<u8> {
    let mut text = Vec::new();
    let form = Jackson { depth, is_empty: false };
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, form);
    value.serialize(&mut serializer).expect("answers have keys that are text");
    text
}

/// The form of Jackson's `DefaultPrettyPrinter`: objects on several lines, arrays on one.
struct Jackson {
    depth: usize,
    /// Is the innermost object or array empty so far?
    is_empty: bool,
}

impl Jackson {
    fn line(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        to.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| to.write_all(b"  "))
    }
}

impl Formatter for Jackson {
    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        (self.depth, self.is_empty) = (self.depth + 1, true);
        to.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b"," })?;
        self.line(to)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b" : ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _to: &mut W) -> io::Result<()> {
        self.is_empty = false;
        Ok(())
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.is_empty {
            return to.write_all(b" }");
        }
        self.line(to)?;
        to.write_all(b"}")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.is_empty = true;
        to.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b" " } else { b", " })
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _to: &mut W) -> io::Result<()> {
        self.is_empty = false;
        Ok(())
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b" ]")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn text(object: &mut Object) -> String {
        object.finish();
        String::from_utf8(object.take()).expect("UTF-8")
    }

    #[test]
    fn fields_have_the_form_of_jackson() {
        let mut object = Object::new();
        object.fields(&BTreeMap::<&str, u8>::new());
        object.fields(&BTreeMap::from([("a", 1), ("b", 2)]));
        object.field("list", &[BTreeMap::from([("x", [1, 2])])]);
        object.field("none", &Vec::<u8>::new());
        object.field("empty", &BTreeMap::<&str, u8>::new());
        object.field("error", &None::<&str>);
        insta::assert_snapshot!(text(&mut object), @r#"
        {
          "a" : 1,
          "b" : 2,
          "list" : [ {
            "x" : [ 1, 2 ]
          } ],
          "none" : [ ],
          "empty" : { },
          "error" : null
        }
        "#);
    }

    #[test]
    fn rows_make_lists_and_groups() {
        let mut object = Object::new();
        object.begin("list", &Rows::List);
        object.item(true, &BTreeMap::from([("x", 1)]));
        object.item(false, &BTreeMap::from([("x", 2)]));
        object.end(&Rows::List, true);
        let mut groups = Rows::Groups(None);
        object.begin("groups", &groups);
        for (key, value) in [("1", "/a"), ("1", "/b"), ("\"2", "/c")] {
            object.member(&mut groups, key, &value);
        }
        object.end(&groups, true);
        object.begin("no groups", &Rows::Groups(None));
        object.end(&Rows::Groups(None), false);
        object.begin("no rows", &Rows::List);
        object.end(&Rows::List, false);
        insta::assert_snapshot!(text(&mut object), @r#"
        {
          "list" : [ {
            "x" : 1
          }, {
            "x" : 2
          } ],
          "groups" : {
            "1" : [ "/a", "/b" ],
            "\"2" : [ "/c" ]
          },
          "no groups" : { },
          "no rows" : [ ]
        }
        "#);
    }

    #[test]
    fn object_without_fields_is_one_line() {
        assert_eq!(text(&mut Object::new()), "{ }");
    }
}
