//! Notes when the server was built, which `srvr`, `stat`, `envi` and `mntr` print as in ZooKeeper.
//!
//! `SOURCE_DATE_EPOCH` takes the place of the clock, so that builds can be repeated byte for byte.

#![expect(clippy::disallowed_methods, reason = "the clock is what this is about")]

use std::time::SystemTime;

fn main() {
    for folder in ["src", "../core/src", "../storage-fs/src"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let seconds: u64 = given.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    });
    println!("cargo::rustc-env=ZABKEEPER_BUILT_AT={seconds}");
}
