//! Fuzz target: any text of `zoo.cfg`, Java options and `myid`.
#![no_main]

#[path = "../checks/zoo_cfg.rs"]
mod zoo_cfg;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // Accepted or refused: the checks are inside.
    let _either = zoo_cfg::check(data);
});
