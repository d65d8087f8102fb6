//! Panics of the code under test become findings with a message and a place.
//!
//! Owns the panic hook of the process. Must not swallow panics that nobody is there to catch.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `code`; a panic in it comes back as its message and place.
///
/// # Errors
/// What the panic said, and where. What `code` was working on is in an undefined state and must not be used again.
pub fn catch<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(install);
    let outer = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(code));
    GUARDED.set(outer);
    result.map_err(|_| CAUGHT.take().unwrap_or_else(|| "a panic without a message".to_owned()))
}

fn install() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !GUARDED.get() {
            return default(info);
        }
        let payload = info.payload();
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        let place = info.location().map_or_else(String::new, |at| format!(" at {at}"));
        CAUGHT.set(Some(format!("{message}{place}")));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_comes_back_with_its_place() {
        assert_eq!(catch(|| 7), Ok(7));
        let said = catch(|| panic!("number {}", 3)).expect_err("it panics");
        assert!(said.starts_with("number 3 at ") && said.contains("guard.rs"), "{said}");
    }
}
