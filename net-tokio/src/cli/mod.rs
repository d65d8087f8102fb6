//! `zabkeeper cli`: the command line client, for scripts and as a shell (CLI-01 to CLI-28).
//!
//! Owns the start and the end of the client process: its options, its runtime, its exit status.
//! Must not know a command (`table` does), nor anything of the server.
//!
//! What zkCli has, this has with the same names, options and outputs, so that scripts go on
//! working; docs/cli.md lists what differs and what is new.

mod acl;
mod arguments;
mod commands;
mod completions;
mod context;
mod dump_format;
mod failure;
mod format;
mod glob;
mod json;
mod options;
mod output;
mod quota;
mod runtime;
mod shell;
mod table;
mod tokenize;
mod walk;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use self::context::Context;
use self::failure::{BAD_INVOCATION, FAILED, OK};
use self::options::Options;
use self::output::Output;
use self::runtime::Runtime;

/// Runs `zabkeeper cli` with the words behind it; returns the exit status of the process.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let output = Arc::new(Output::standard());
    let status = match options::parse(args) {
        Ok(None) => match output.raw(options::help(&table::list())) {
            Ok(()) => OK,
            Err(_) => FAILED,
        },
        Ok(Some(options)) => run_with(options, &output),
        Err(what) => refuse(&output, BAD_INVOCATION, &what),
    };
    let status = match output.flush() {
        // The reader of the pipe, such as `head`, has exited: it has what it wanted.
        Err(error) if status == OK && error.kind() != std::io::ErrorKind::BrokenPipe => FAILED,
        Err(_) | Ok(()) => status,
    };
    ExitCode::from(status)
}

fn run_with(options: Options, output: &Arc<Output>) -> u8 {
    if let Some(file) = &options.client_configuration {
        match std::fs::read(file) {
            Ok(text) => {
                for line in options::without_effect(&String::from_utf8_lossy(&text)) {
                    output.err(&line);
                }
            }
            Err(error) => {
                let what = format!("-client-configuration {}: {error}", file.display());
                return refuse(output, BAD_INVOCATION, &what);
            }
        }
    }
    let runtime = match Runtime::start() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(output, FAILED, &format!("cannot start a thread: {error}")),
    };
    let command = options.command.clone();
    let mut context = Context::new(options, output.clone(), runtime.handle());
    let status = if command.is_empty() {
        shell::run(&mut context, &runtime)
    } else {
        runtime.block_on(context.run_words(&command))
    };
    // That the session ends now is no news.
    output.set_print_watches(false);
    runtime.block_on(context.close());
    status
}

fn refuse(output: &Output, status: u8, what: &str) -> u8 {
    output.err(&format!("zabkeeper cli: {what}"));
    status
}
