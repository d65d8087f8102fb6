//! Any text that operators may write.
#![no_main]

#[path = "../checks/zoo_cfg.rs"]
mod zoo_cfg;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // Accepted or refused: both are answers.
    let _either = zoo_cfg::check(data);
});
