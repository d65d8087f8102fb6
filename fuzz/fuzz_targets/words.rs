//! Any bytes where a four-letter word may stand, and the answers.
#![no_main]

#[path = "../checks/words.rs"]
mod words;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    words::check(data);
});
