//! `lock` and `elect`: run a program while a lock is held, or while this session leads.
//!
//! Owns the program: it is started once the lock is held, and stopped when the lock may be lost.
//! Must not decide who holds the lock, nor whether it may be lost: the recipes do.

use std::future::pending;
use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use futures::future::{Either, select};
use futures::{Stream, StreamExt};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use zabkeeper_client::recipes::{Election, Leadership, Lock, LockGuard};
use zabkeeper_client::{Error, Zxid};

use super::nodes::count;
use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::{FAILED, Failed, LOST, Outcome};

/// Time between SIGTERM and SIGKILL unless `--grace` says another one.
const GRACE: Duration = Duration::from_secs(10);

/// The variable with the fencing token.
const TOKEN: &str = "ZABKEEPER_TOKEN";

/// The status of a program that a signal has ended is this and the signal's number, as in shells.
const SIGNALLED: i32 = 128;

/// A lock or a leadership.
enum Guard {
    Lock(LockGuard),
    Leadership(Leadership),
}

impl Guard {
    fn token(&self) -> Zxid {
        match self {
            Guard::Lock(guard) => guard.token(),
            Guard::Leadership(leadership) => leadership.epoch(),
        }
    }

    async fn lost(&self) {
        match self {
            Guard::Lock(guard) => guard.lost().await,
            Guard::Leadership(leadership) => leadership.lost().await,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Guard::Lock(guard) => guard.release().await,
            Guard::Leadership(leadership) => leadership.resign().await,
        }
    }
}

/// `lock path -- program args`.
pub(crate) async fn lock(context: &mut Context, arguments: &Arguments) -> Outcome {
    let lock = Lock::new(&context.client()?, &arguments.rest[0]).with_data(holder());
    let acquired = async { lock.acquire().await.map(Guard::Lock) };
    run(context, arguments, acquired, "the lock").await
}

/// `elect path -- program args`.
pub(crate) async fn elect(context: &mut Context, arguments: &Arguments) -> Outcome {
    let election = Election::new(&context.client()?, &arguments.rest[0], holder());
    let elected = async { election.lead().await.map(Guard::Leadership) };
    run(context, arguments, elected, "the leadership").await
}

/// What operators find in the node of a holder.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} pid {}", host.trim(), std::process::id())
}

async fn run(
    context: &Context,
    arguments: &Arguments,
    acquired: impl Future<Output = Result<Guard, Error>>,
    what: &str,
) -> Outcome {
    let path = &arguments.rest[0];
    let wait = count(arguments, "wait")?.map(Duration::from_millis);
    let grace = count(arguments, "grace")?.map_or(GRACE, Duration::from_millis);
    let mut signals = Box::pin(signals()?);
    let expired = async {
        match wait {
            Some(wait) => sleep(wait).await,
            None => pending().await,
        }
    };
    let waiting = select(Box::pin(acquired), signals.next());
    let guard = match select(waiting, Box::pin(expired)).await {
        Either::Left((Either::Left((guard, _)), _)) => guard?,
        // Dropping the future gives the place in the queue up.
        Either::Left((Either::Right((signal, _)), _)) => {
            let status = signal.map_or(FAILED, |signal| status_of(SIGNALLED + signal.as_raw()));
            return Err(Failed::with_status(status, ""));
        }
        Either::Right(_) => {
            return Err(Failed::new(format!("{what} {path} is held by another session")));
        }
    };
    let program = &arguments.rest[1];
    context.output.flush()?;
    let started = Command::new(program)
        .args(&arguments.rest[2..])
        .env(TOKEN, guard.token().0.to_string())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            guard.release().await?;
            return Err(Failed::new(format!("cannot run {program}: {error}")));
        }
    };
    let ended = wait_for(&mut child, Box::pin(guard.lost()), &mut signals).await;
    match ended {
        Some(status) => {
            // Without an answer the lock goes with the session, which is closed next.
            let _late = timeout(grace, guard.release()).await;
            let status = match status.code() {
                Some(code) => code,
                None => SIGNALLED + status.signal().unwrap_or_default(),
            };
            if status == 0 { Ok(()) } else { Err(Failed::with_status(status_of(status), "")) }
        }
        None => {
            context.output.err(&format!("{what} {path} is lost: {program} is stopped"));
            stop(&mut child, grace).await;
            Err(Failed::with_status(LOST, ""))
        }
    }
}

fn status_of(status: i32) -> u8 {
    u8::try_from(status).unwrap_or(FAILED)
}

/// Waits for the program and passes signals on; `None` when the lock is lost first.
async fn wait_for(
    child: &mut Child,
    mut lost: impl Future + Unpin,
    signals: &mut (impl Stream<Item = Signal> + Unpin),
) -> Option<ExitStatus> {
    loop {
        let event = {
            let ended = Box::pin(child.wait());
            match select(ended, select(signals.next(), &mut lost)).await {
                Either::Left((status, _)) => return status.ok(),
                Either::Right((event, _)) => event,
            }
        };
        match event {
            // A terminal has sent SIGINT to the program, too.
            Either::Left((Some(Signal::INT), _)) if std::io::stdin().is_terminal() => {}
            Either::Left((signal, _)) => send(child, signal.unwrap_or(Signal::TERM)),
            Either::Right(_) => return None,
        }
    }
}

/// Ends the program: SIGTERM, and SIGKILL if it still runs after the grace.
async fn stop(child: &mut Child, grace: Duration) {
    send(child, Signal::TERM);
    if timeout(grace, child.wait()).await.is_err() {
        // It may have ended at this moment.
        let _ended = child.kill().await;
    }
}

/// Sends a signal unless the program has ended.
fn send(child: &Child, signal: Signal) {
    // `id` is `None` once the program was waited for, so that no other process gets the signal.
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ended = kill_process(pid, signal);
    }
}

/// The signals that end programs.
fn signals() -> Result<impl Stream<Item = Signal>, Failed> {
    let listen = |kind, named: Signal| {
        let listener = signal(kind)
            .map_err(|error| Failed::new(format!("cannot listen for signals: {error}")))?;
        Ok::<_, Failed>(Box::pin(futures::stream::unfold(
            listener,
            move |mut listener| async move {
                listener.recv().await?;
                Some((named, listener))
            },
        )))
    };
    let terminate = listen(SignalKind::terminate(), Signal::TERM)?;
    let interrupt = listen(SignalKind::interrupt(), Signal::INT)?;
    let hang_up = listen(SignalKind::hangup(), Signal::HUP)?;
    Ok(futures::stream::select(terminate, futures::stream::select(interrupt, hang_up)))
}
