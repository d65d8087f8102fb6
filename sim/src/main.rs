//! The simulator's program; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(sim::program::main())
}
