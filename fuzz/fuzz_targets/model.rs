//! Fuzz target: requests to a running core, with replies checked by the reference model.
#![no_main]

#[path = "../checks/model.rs"]
#[allow(dead_code, reason = "what else an input can choose is for other targets")]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    model::check(data);
});
