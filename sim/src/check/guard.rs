//! Turns panics of the code under test into errors with message and location.
//!
//! Owns the panic hook of the process. Must not suppress panics outside of [`catch`].

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `code` and catches a panic.
///
/// # Errors
/// The panic's message and location. The state that `code` was working on is undefined and must not
/// be used again.
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
    fn caught_panic_has_message_and_location() {
        assert_eq!(catch(|| 7), Ok(7));
        let message = catch(|| panic!("number {}", 3)).expect_err("it panics");
        assert!(message.starts_with("number 3 at ") && message.contains("guard.rs"), "{message}");
    }
}
