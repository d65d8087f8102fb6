//! The interactive shell: lines with history and completion, or lines of a pipe.
//!
//! Owns the reading of lines. Must not run commands: the context does.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor, Helper, Highlighter, Validator};
use tokio::runtime::Handle;

use super::context::{Connection, Context, SharedConnection};
use super::failure::{OK, Outcome};
use super::runtime::Runtime;
use super::table::COMMANDS;

/// How long a completion may ask the server.
const COMPLETION_MAX: Duration = Duration::from_secs(2);

/// How long the first prompt waits for a server.
const FIRST_PROMPT: Duration = Duration::from_millis(500);

/// Lines that the history's file keeps.
const HISTORY_MAX: usize = 1000;

/// Runs the shell; returns the status of its last command, as zkCli does.
pub(crate) fn run(context: &mut Context, runtime: &Runtime) -> u8 {
    context.is_shell = true;
    let is_terminal = std::io::stdin().is_terminal();
    match start(context, runtime) {
        Ok(()) => {}
        Err(failed) => {
            context.output.err(&failed.message);
            return failed.status;
        }
    }
    if is_terminal {
        context.survives_interrupts = true;
        // The first prompt should not show the state before the first connection.
        if let Ok(client) = context.client() {
            let connected = async { tokio::time::timeout(FIRST_PROMPT, client.connected()).await };
            // Commands wait for a connection themselves.
            let _late = runtime.block_on(connected);
        }
    }
    if is_terminal && let Ok(status) = edit_lines(context, runtime) {
        return status;
    }
    read_lines(context, runtime)
}

fn start(context: &mut Context, runtime: &Runtime) -> Outcome {
    context.output.line(format!("Connecting to {}", context.host()))?;
    runtime.block_on(context.connect(None))?;
    context.output.line("Welcome to Zabkeeper! The commands are those of zkCli; see help.")?;
    Ok(context.output.flush()?)
}

/// Lines of a pipe or a file.
fn read_lines(context: &mut Context, runtime: &Runtime) -> u8 {
    let mut status = OK;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let ended = runtime.block_on(context.run_line(&line));
        if context.leaves {
            break;
        }
        status = ended;
    }
    status
}

/// Lines of a terminal.
///
/// # Errors
/// The terminal is one that cannot be used so.
fn edit_lines(context: &mut Context, runtime: &Runtime) -> rustyline::Result<u8> {
    let config = Config::builder().max_history_size(HISTORY_MAX)?.build();
    let mut editor: Editor<Completion, DefaultHistory> = Editor::with_config(config)?;
    let connection = context.shared_connection();
    let edited = Edited::default();
    let helper = Completion { connection, runtime: runtime.handle(), edited: edited.clone() };
    editor.set_helper(Some(helper));
    let file = history_file();
    if let Some(file) = &file {
        // The first time there is none.
        let _absent = editor.load_history(file);
    }
    let above = edited.clone();
    context.output.set_above_line(Some(Box::new(move |text| print_above(&above, &text))));
    let mut status = OK;
    while !context.leaves {
        let prompt = context.prompt();
        set(&edited, Some((prompt.clone(), String::new())));
        let line = editor.readline(&prompt);
        set(&edited, None);
        match line {
            Ok(line) => {
                // Passwords stay out of the file.
                if !line.trim_start().starts_with("addauth") {
                    editor.add_history_entry(&line)?;
                }
                let ended = runtime.block_on(context.run_line(&line));
                if !context.leaves {
                    status = ended;
                }
            }
            // As in other shells SIGINT empties the line.
            Err(ReadlineError::Interrupted) => {}
            Err(_) => break,
        }
    }
    context.output.set_above_line(None);
    if let Some(file) = &file {
        // A history that cannot be kept is no reason to fail.
        let _lost = editor.save_history(file);
    }
    Ok(status)
}

fn history_file() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".zabkeeper_history"))
}

/// Completes names of commands, and paths, whose nodes the server is asked for.
#[derive(Helper, Highlighter, Validator)]
struct Completion {
    connection: SharedConnection,
    runtime: Handle,
    edited: Edited,
}

/// The prompt and the line that the user edits; `None` while a command runs.
type Edited = Arc<Mutex<Option<(String, String)>>>;

fn set(edited: &Edited, to: Option<(String, String)>) {
    *edited.lock().unwrap_or_else(PoisonError::into_inner) = to;
}

/// Prints a text above the line that the user edits. Rustyline's own `ExternalPrinter` would leave
/// keys that arrive together in its buffer until the next one.
fn print_above(edited: &Edited, text: &str) {
    let edited = edited.lock().unwrap_or_else(PoisonError::into_inner);
    let text = match &*edited {
        Some((prompt, line)) => {
            format!("\r\u{1b}[K{}\n{prompt}{line}", text.trim_end())
        }
        None => text.to_owned(),
    };
    let mut out = std::io::stdout();
    let _closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// There are no hints; the shell learns the line in this way.
impl Hinter for Completion {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &rustyline::Context<'_>) -> Option<String> {
        let mut edited = self.edited.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, edited)) = &mut *edited {
            line.clone_into(edited);
        }
        None
    }
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let (start, word) = last_word(&line[..position]);
        if word.starts_with('/') {
            let slash = word.rfind('/').unwrap_or_default();
            let parent = if slash == 0 { "/" } else { &word[..slash] };
            let prefix = &word[slash + 1..];
            let mut names = self.children(parent);
            names.retain(|name| name.starts_with(prefix));
            names.sort_unstable();
            return Ok((start + slash + 1, names));
        }
        let is_first = line[..start].trim().is_empty();
        let names = COMMANDS.iter().map(|command| command.name);
        let names = names.filter(|name| is_first && name.starts_with(word));
        Ok((start, names.map(str::to_owned).collect()))
    }
}

impl Completion {
    /// The children of a node; none if no server answers soon.
    fn children(&self, path: &str) -> Vec<String> {
        let connection = match self.connection.lock() {
            Ok(connection) => connection.clone(),
            Err(_) => return Vec::new(),
        };
        let Connection::Open(client) = connection else { return Vec::new() };
        let children = client.children(path);
        let children =
            self.runtime.block_on(async { tokio::time::timeout(COMPLETION_MAX, children).await });
        children.ok().and_then(Result::ok).map(|(names, _)| names).unwrap_or_default()
    }
}

/// The word before the cursor, and where it begins.
fn last_word(line: &str) -> (usize, &str) {
    let start = line.rfind([' ', '\t', '"', '\'']).map_or(0, |space| space + 1);
    (start, &line[start..])
}
