//! The program `zabkeeper`: the library, with the arguments of the process.
//!
//! Owns nothing. Must not decide anything: `lib` does.

use std::process::ExitCode;

fn main() -> ExitCode {
    zabkeeper::run(std::env::args_os().skip(1))
}
