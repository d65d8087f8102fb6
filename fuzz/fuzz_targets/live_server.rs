//! Fuzz target: any bytes on several connections with a running core.
#![no_main]

#[path = "../checks/live_server.rs"]
#[allow(dead_code, reason = "what else a check can see is for other targets")]
mod live_server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    live_server::check(data);
});
