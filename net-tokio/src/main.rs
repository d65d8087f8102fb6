//! The program `zabkeeper`: calls the library with the arguments of the process.
//!
//! Owns the choice of the allocator only. Must not decide anything else: `lib` does.

use std::process::ExitCode;

/// mimalloc returns memory to the system after large replies and watch tables are freed; the
/// default allocator keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    zabkeeper::run(std::env::args_os().skip(1))
}
