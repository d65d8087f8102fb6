//! Fuzz target: any bytes on a client port.
#![no_main]

#[path = "../checks/client_frames.rs"]
mod client_frames;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    client_frames::check(data);
});
