//! What commands work with: the session, the outputs, the history.
//!
//! Owns the connection and the way from words to a command. Must not know single commands, except
//! `redo`, which stands for another line.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use zabkeeper_client::{Client, Error, Failure, OneshotWatch, State, WatchStream};

use super::arguments::{self, Arguments};
use super::failure::{FAILED, Failed, NOT_FOUND, OK, Outcome, UNREACHED};
use super::format;
use super::options::Options;
use super::output::Output;
use super::table::{self, Command};
use super::tokenize;

/// How long the end of the program waits for the end of the session.
const CLOSING: Duration = Duration::from_secs(2);

/// Upper bound of the pause before the next server is tried. Shorter than that of programs that run
/// for long: a person waits.
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(100);

/// The status of a shell's command that SIGINT ends.
const INTERRUPTED: u8 = 130;

/// The session of the client.
#[derive(Clone)]
pub(crate) enum Connection {
    /// No command has needed it yet.
    NotYet,
    Open(Client),
    /// `close` has closed it.
    Closed,
}

/// The connection, which the completion of the shell reads, too.
pub(crate) type SharedConnection = Arc<Mutex<Connection>>;

/// See the module.
pub(crate) struct Context {
    pub(crate) output: Arc<Output>,
    /// Machine-readable output is asked for.
    pub(crate) json: bool,
    /// The shell runs: watches are followed.
    pub(crate) is_shell: bool,
    /// A terminal's SIGINT ends the command, and not the shell.
    pub(crate) survives_interrupts: bool,
    /// The user leaves the shell.
    pub(crate) leaves: bool,
    /// The lines of the shell.
    pub(crate) history: Vec<String>,
    options: Options,
    runtime: Handle,
    connection: SharedConnection,
}

impl Context {
    pub(crate) fn new(options: Options, output: Arc<Output>, runtime: Handle) -> Context {
        Context {
            output,
            json: options.json,
            is_shell: false,
            survives_interrupts: false,
            leaves: false,
            history: Vec::new(),
            options,
            runtime,
            connection: Arc::new(Mutex::new(Connection::NotYet)),
        }
    }

    /// Runs a line of the shell; returns the status of its command.
    pub(crate) async fn run_line(&mut self, line: &str) -> u8 {
        let mut words = tokenize::words(line);
        if words.is_empty() {
            return OK;
        }
        let mut line = line.to_owned();
        if let ("redo", Some(number)) = (words[0].as_str(), words.get(1)) {
            match self.line_to_redo(number) {
                Ok(earlier) => {
                    words = tokenize::words(&earlier);
                    line = earlier;
                }
                Err(failed) => {
                    self.history.push(line);
                    return self.report(Err(failed));
                }
            }
        }
        self.history.push(line);
        self.run_words(&words).await
    }

    /// CLI-17.
    fn line_to_redo(&self, number: &str) -> Result<String, Failed> {
        let number: i64 =
            number.parse().map_err(|_| Failed::new(format!("For input string: \"{number}\"")))?;
        let earlier = usize::try_from(number).ok().and_then(|number| self.history.get(number));
        let earlier = earlier.ok_or_else(|| Failed::new("Command index out of range"))?;
        if tokenize::words(earlier).first().is_some_and(|word| word == "redo") {
            return Err(Failed::new("No redoing redos"));
        }
        Ok(earlier.clone())
    }

    /// Runs a command; returns its status.
    pub(crate) async fn run_words(&mut self, words: &[String]) -> u8 {
        let outcome = self.try_words(words).await;
        self.report(outcome)
    }

    async fn try_words(&mut self, words: &[String]) -> Outcome {
        let Some((name, rest)) = words.split_first() else { return Ok(()) };
        let Some(command) = table::find(name) else {
            let list = table::list();
            let what = format!("{list}Command not found: {name}");
            return Err(Failed::with_status(NOT_FOUND, what));
        };
        let arguments = arguments::parse(rest, command.options)
            .map_err(|what| Failed::with_status(command.usage_status(), what))?;
        let count = arguments.rest.len();
        if count < command.words.0 || count > command.words.1 {
            return Err(command.usage_failure());
        }
        self.json = self.options.json || arguments.has("json");
        if command.needs_session && !self.is_alive(command).await? {
            self.output.line("Not connected")?;
            return Ok(self.output.flush()?);
        }
        self.run_interruptible(command, &arguments).await?;
        Ok(self.output.flush()?)
    }

    /// In the shell of a terminal SIGINT ends the command, not the shell.
    async fn run_interruptible(&mut self, command: &Command, arguments: &Arguments) -> Outcome {
        if !self.survives_interrupts || command.handles_interrupts {
            return (command.run)(self, arguments).await;
        }
        let running = (command.run)(self, arguments);
        match select(running, Box::pin(tokio::signal::ctrl_c())).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(Failed::with_status(INTERRUPTED, "interrupted")),
        }
    }

    /// Writes what has failed; returns the status.
    fn report(&self, outcome: Outcome) -> u8 {
        match outcome {
            Ok(()) => OK,
            Err(failed) if failed.output_closed => OK,
            Err(failed) => {
                if !failed.message.is_empty() {
                    self.output.err(&failed.message);
                }
                failed.status
            }
        }
    }

    /// Is there a session that a command can use? The first command of a script connects.
    async fn is_alive(&mut self, command: &Command) -> Result<bool, Failed> {
        let connection = self.connection().clone();
        match connection {
            Connection::Closed => Ok(false),
            Connection::Open(client) => Ok(!client.state().is_final() || command.name == "close"),
            Connection::NotYet => {
                self.connect(None).await?;
                Ok(true)
            }
        }
    }

    /// The session.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn client(&self) -> Result<Client, Failed> {
        match &*self.connection() {
            Connection::Open(client) => Ok(client.clone()),
            Connection::NotYet | Connection::Closed => Err(Failed::new("Not connected")),
        }
    }

    /// Connects, to other servers if they are given, and closes the session that there was.
    pub(crate) async fn connect(&mut self, servers: Option<&str>) -> Outcome {
        self.close().await;
        if let Some(servers) = servers {
            self.options.server = servers.to_owned();
        }
        let servers = self.options.servers().map_err(Failed::new)?;
        let count = servers.servers().len();
        let timeout = Duration::from_millis(self.options.timeout_ms.into());
        let read_only = self.options.read_only;
        let builder = Client::builder(servers).session_timeout(timeout).config(|config| {
            config.read_only = read_only;
            config.reconnect_delay_max = RECONNECT_DELAY_MAX;
        });
        let client = {
            let _inside = self.runtime.enter();
            builder.spawn()
        };
        *self.connection() = Connection::Open(client.clone());
        if self.is_shell {
            self.follow_states(client.states());
        }
        if !self.is_shell || self.options.wait_for_connection {
            self.reach(&client, count, timeout).await?;
        }
        Ok(())
    }

    /// Waits for a server: until each has been tried once, or with `-waitforconnection` for the
    /// session timeout.
    async fn reach(&self, client: &Client, servers: usize, timeout: Duration) -> Outcome {
        let attempts = async {
            let mut failed = 0;
            loop {
                // It fails when an attempt to connect fails.
                match client.exists("/").await {
                    Err(error) if error.is_recoverable() => failed += 1,
                    Err(error) if error.is_fatal() => return Err(Failed::from(error)),
                    Ok(_) | Err(_) => return Ok(true),
                }
                if failed >= servers && !self.options.wait_for_connection {
                    return Ok(false);
                }
            }
        };
        if let Ok(reached) = tokio::time::timeout(timeout, attempts).await
            && reached?
        {
            return Ok(());
        }
        let what = format!("zabkeeper cli: no server of {} answers", self.options.server);
        Err(Failed::with_status(UNREACHED, what))
    }

    /// Closes the session and waits for that, but not for long.
    pub(crate) async fn close(&self) {
        let connection = std::mem::replace(&mut *self.connection(), Connection::Closed);
        if let Connection::Open(client) = connection {
            // Without an answer the session expires on the servers.
            let _late = tokio::time::timeout(CLOSING, client.close()).await;
        }
    }

    /// The servers as the user has given them.
    pub(crate) fn host(&self) -> &str {
        &self.options.server
    }

    /// The prompt of the shell.
    pub(crate) fn prompt(&self) -> String {
        let state = match &*self.connection() {
            Connection::Open(client) => client.state(),
            Connection::NotYet => State::Connecting,
            Connection::Closed => State::Closed,
        };
        let state = format::state_name(state);
        format!("[zk: {}({state}) {}] ", self.host(), self.history.len())
    }

    pub(crate) fn shared_connection(&self) -> SharedConnection {
        self.connection.clone()
    }

    /// Prints the event of a watch when it fires, or `removal` when it is removed. A script does
    /// not stay for that.
    pub(crate) fn follow(&self, watch: OneshotWatch, removal: &'static str) {
        if self.is_shell {
            let output = self.output.clone();
            self.runtime.spawn(async move {
                match watch.await {
                    Ok(event) => output.event(&event),
                    Err(error) => report_removal(&output, &error, removal),
                }
            });
        }
    }

    /// Prints the events of a watch until it is removed.
    pub(crate) fn follow_all(&self, mut events: WatchStream) {
        if self.is_shell {
            let output = self.output.clone();
            self.runtime.spawn(async move {
                while let Some(event) = events.next().await {
                    match event {
                        Ok(event) => output.event(&event),
                        Err(error) => report_removal(&output, &error, "PersistentWatchRemoved"),
                    }
                }
            });
        }
    }

    fn follow_states(&self, mut states: impl Stream<Item = State> + Send + Unpin + 'static) {
        let output = self.output.clone();
        self.runtime.spawn(async move {
            while let Some(state) = states.next().await {
                output.state(state);
            }
        });
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // Nothing panics while it holds the lock, and a connection is whole at any time.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints that a watch was removed, unless it has ended for another reason.
fn report_removal(output: &Output, error: &Error, kind: &str) {
    if error.failure() == Failure::WatchRemoved {
        output.removal(&format::removal(kind, error.path()));
    }
}

impl Command {
    /// The status for wrong usage: that of zkCli where zkCli has the command.
    fn usage_status(&self) -> u8 {
        if self.is_ours { super::BAD_INVOCATION } else { FAILED }
    }

    /// The command is used in a wrong way.
    pub(crate) fn usage_failure(&self) -> Failed {
        Failed::with_status(self.usage_status(), self.usage_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::runtime::Runtime;

    /// A writer that the test reads.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
        }
    }

    /// CLI-17, without a server.
    #[test]
    fn lines_are_numbered_and_run_again() {
        let runtime = Runtime::start().unwrap();
        let (out, err) = (Written::default(), Written::default());
        let output = Output::new(Box::new(out.clone()), Box::new(err.clone()), false);
        let mut context = Context::new(Options::default(), Arc::new(output), runtime.handle());
        let mut check = |line: &str, status: u8, expected: &str| {
            assert_eq!(runtime.block_on(context.run_line(line)), status, "{line}");
            assert_eq!((out.take() + &err.take()).as_str(), expected, "{line}");
        };
        check("printwatches", 0, "printwatches is on\n");
        check("printwatches off", 0, "");
        check("redo 0", 0, "printwatches is off\n");
        check("redo 7", 1, "Command index out of range\n");
        check("redo", 0, "");
        check("redo 4", 1, "No redoing redos\n");
        check("  ", 0, "");
        let history = "0 - printwatches\n1 - printwatches off\n2 - printwatches\n3 - redo 7\n\
                       4 - redo\n5 - redo 4\n6 - history\n";
        check("history", 0, history);
        check("completions tcsh", 2, "tcsh is none of bash, zsh and fish\n");
        check("help stat", 0, "stat [-w] path\n -w   watch\n");
    }
}
