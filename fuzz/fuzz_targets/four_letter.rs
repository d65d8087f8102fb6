//! Fuzz target: any bytes where a four-letter command may be, and the answers.
#![no_main]

#[path = "../checks/four_letter.rs"]
#[allow(dead_code, reason = "what has come of an input is for the test that replays the corpus")]
mod four_letter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    four_letter::check(data);
});
