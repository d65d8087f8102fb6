//! Commands on the shell itself and on its session: close, connect, help, history, quit.
//!
//! Owns their outputs. Must not know how lines are read.

use crate::cli::arguments::Arguments;
use crate::cli::completions;
use crate::cli::context::Context;
use crate::cli::failure::{Failed, NOT_FOUND, Outcome};
use crate::cli::table;

/// zkCli's `history` shows so many lines before its own.
const HISTORY_SHOWN: usize = 10;

/// CLI-04.
pub(crate) async fn close(context: &mut Context, _: &Arguments) -> Outcome {
    context.close().await;
    Ok(())
}

/// CLI-06.
pub(crate) async fn connect(context: &mut Context, arguments: &Arguments) -> Outcome {
    context.connect(arguments.rest.first().map(String::as_str)).await
}

/// CLI-16.
pub(crate) async fn help(context: &mut Context, arguments: &Arguments) -> Outcome {
    let Some(name) = arguments.rest.first() else {
        return Ok(context.output.raw(table::list())?);
    };
    let command = table::find(name)
        .ok_or_else(|| Failed::with_status(NOT_FOUND, format!("Command not found: {name}")))?;
    context.output.line(format!("{} {}", command.name, command.usage))?;
    Ok(context.output.raw(table::options_text(command.options))?)
}

/// CLI-17.
pub(crate) async fn history(context: &mut Context, _: &Arguments) -> Outcome {
    if context.history.is_empty() {
        // What zkCli prints for a script.
        context.output.line("0 - null")?;
    }
    let first = context.history.len().saturating_sub(HISTORY_SHOWN + 1);
    for (number, line) in context.history.iter().enumerate().skip(first) {
        context.output.line(format!("{number} - {line}"))?;
    }
    Ok(())
}

/// CLI-17: `redo` alone does nothing; with a number the shell runs the other line instead.
pub(crate) async fn redo(_: &mut Context, arguments: &Arguments) -> Outcome {
    match arguments.rest.first() {
        None => Ok(()),
        Some(_) => Err(Failed::new("Command index out of range")),
    }
}

/// CLI-11.
pub(crate) async fn quit(context: &mut Context, _: &Arguments) -> Outcome {
    context.leaves = true;
    Ok(())
}

/// Prints the completions for a shell.
pub(crate) async fn completions(context: &mut Context, arguments: &Arguments) -> Outcome {
    let shell = &arguments.rest[0];
    let script = completions::script(shell)
        .ok_or_else(|| Failed::bad_invocation(format!("{shell} is none of bash, zsh and fish")))?;
    Ok(context.output.raw(script)?)
}
