//! Changes of a selection on the command line: `+name,-name,only=name`.
//!
//! Owns the syntax. Must not know what is selected.

/// A type whose values are selected by name.
pub trait Selectable: Sized {
    /// The noun for one value, in messages.
    const WHAT: &str;
    /// The flag that selects, and with `list` prints all.
    const FLAG: &str;

    /// The values that a name selects.
    fn matching(name: &str) -> Vec<Self>;
}

/// A change of the selection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection<T> {
    /// Selects what matches.
    Add(Vec<T>),
    /// Deselects what matches.
    Remove(Vec<T>),
    /// Selects only what matches.
    Only(Vec<T>),
}

impl<T: Selectable> Selection<T> {
    /// Parses `+x,-y,only=z`.
    ///
    /// # Errors
    /// Names a part that is none of the three, or a name that matches nothing.
    pub fn parse(text: &str) -> Result<Vec<Selection<T>>, String> {
        text.split(',').filter(|part| !part.is_empty()).map(Selection::parse_one).collect()
    }

    fn parse_one(part: &str) -> Result<Selection<T>, String> {
        let found = |name: &str| match T::matching(name) {
            found if found.is_empty() => {
                let (what, flag) = (T::WHAT, T::FLAG);
                Err(format!("no {what} is called {name:?}; `{flag} list` shows all"))
            }
            found => Ok(found),
        };
        if let Some(name) = part.strip_prefix('+') {
            found(name).map(Selection::Add)
        } else if let Some(name) = part.strip_prefix('-') {
            found(name).map(Selection::Remove)
        } else if let Some(name) = part.strip_prefix("only=") {
            found(name).map(Selection::Only)
        } else {
            Err(format!("{part:?} is none of +name, -name, only=name and list"))
        }
    }
}
