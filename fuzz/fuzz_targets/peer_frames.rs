//! Fuzz target: any bytes of other servers to a running core in any role.
#![no_main]

#[path = "../checks/peer_frames.rs"]
#[allow(dead_code, reason = "what else a check can see is for other targets")]
mod peer_frames;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    peer_frames::check(data);
});
