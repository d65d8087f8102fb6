//! The program `zabkeeper`: the library, with the arguments of the process.
//!
//! Owns nothing. Must not decide anything: `lib` does.

use std::process::ExitCode;

/// It gives memory back to the system when answers and watches that took much of it are gone; the usual one keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    zabkeeper::run(std::env::args_os().skip(1))
}
