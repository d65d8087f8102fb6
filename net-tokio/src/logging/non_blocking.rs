//! A bounded queue of lines in front of an output that may stand still, and the thread that writes them.
//!
//! Owns the queue, the thread and the count of lines that were lost. Must not know what a line says, except its own
//! about lost ones.
//!
//! Invariants: whoever pushes a line waits for no output; the queue holds at most [`QUEUE_BYTES`]; what does not fit or
//! cannot be written is counted, and the count is logged once the output takes lines again.
//!
//! `tracing-appender` has a writer of this kind. It prints to standard output and error where it ends, so a closed or full
//! one would end or stop the server there; it counts no line that could not be written; and its bound is on lines, which
//! may be long.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that wait to be written: some seconds of the worst that the server logs.
const QUEUE_BYTES: usize = 1 << 20;

/// Capacity that an empty buffer may keep.
const IDLE_BYTES: usize = 64 << 10;

/// Pause before an output is tried again that is set not to block, and has no room.
const RETRY: Duration = Duration::from_millis(50);

/// The end of the queue for those who log. Clones share the queue.
#[derive(Clone)]
pub(super) struct NonBlocking(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whole lines that wait.
    lines: Vec<u8>,
    /// Is the thread at work on what it has taken?
    writing: bool,
    /// Lines lost since it was said last.
    dropped: u64,
    /// Why the latest of them was.
    why: String,
}

impl NonBlocking {
    /// Starts the thread, which ends with the process.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(super) fn start(output: impl io::Write + Send + 'static) -> io::Result<NonBlocking> {
        let queue = Arc::new(Queue::default());
        let of_thread = Arc::clone(&queue);
        let run = move || of_thread.write_for_ever(output);
        thread::Builder::new().name("log output".to_owned()).spawn(run)?;
        Ok(NonBlocking(queue))
    }

    /// Queues one line, its line feed included, or drops it.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.lines.len() + line.len() > QUEUE_BYTES {
            state.dropped += 1;
            state.why = format!("{} KiB of lines waited to be written", QUEUE_BYTES >> 10);
            return;
        }
        state.lines.extend_from_slice(line);
        drop(state);
        self.0.changed.notify_all();
    }

    /// While this is held, nobody can log.
    #[cfg(test)]
    pub(super) fn held(&self) -> impl Drop + '_ {
        self.0.lock()
    }

    /// Waits until all lines have left, at most for this time.
    pub(super) fn flush(&self, time: Duration) {
        let latest = Instant::now() + time;
        let mut state = self.0.lock();
        while state.writing || !state.lines.is_empty() {
            let left = latest.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.0.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl io::Write for &NonBlocking {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for NonBlocking {
    type Writer = &'a NonBlocking;

    fn make_writer(&'a self) -> &'a NonBlocking {
        self
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that has panicked with it still has something to report.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_for_ever(&self, mut output: impl io::Write) {
        let mut batch = Vec::new();
        // Has the output ended within a line?
        let mut is_cut = false;
        loop {
            batch.clear();
            if is_cut {
                batch.push(b'\n');
            }
            let first = batch.len();
            self.take(&mut batch);
            match write(&mut output, &batch) {
                Ok(()) => {
                    is_cut = false;
                    self.say_what_was_dropped();
                }
                Err((written, error)) => {
                    is_cut = written.checked_sub(1).map_or(is_cut, |last| batch[last] != b'\n');
                    self.drop_lines(&batch[written.max(first)..], &error);
                }
            }
            if batch.capacity() > IDLE_BYTES {
                batch = Vec::new();
            }
        }
    }

    /// Adds all lines to `batch`, waiting until there are some.
    fn take(&self, batch: &mut Vec<u8>) {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        while state.lines.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.writing = true;
        batch.append(&mut state.lines);
        if state.lines.capacity() > IDLE_BYTES {
            state.lines = Vec::new();
        }
    }

    fn drop_lines(&self, lines: &[u8], error: &io::Error) {
        let mut state = self.lock();
        state.dropped += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        state.why = error.to_string();
    }

    fn say_what_was_dropped(&self) {
        let mut state = self.lock();
        let (dropped, why) = (std::mem::take(&mut state.dropped), std::mem::take(&mut state.why));
        drop(state);
        if dropped > 0 {
            tracing::warn!("lost {dropped} lines of this log: {why}");
        }
    }
}

/// Writes all bytes.
///
/// # Errors
/// Of the output, and how many bytes it has taken before.
fn write(output: &mut impl io::Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(some) => written += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(RETRY),
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output of so many bytes, which takes nothing while somebody else holds it.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, room) = &mut *self.0.lock().unwrap();
            let some = bytes.len().min(*room);
            if some == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= some;
            written.extend_from_slice(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Disk {
        fn with_room(room: usize) -> Disk {
            Disk(Arc::new(Mutex::new((Vec::new(), room))))
        }

        fn make_room(&self) {
            self.0.lock().unwrap().1 = usize::MAX;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn lines_leave_in_order() {
        let disk = Disk::with_room(usize::MAX);
        let log = NonBlocking::start(disk.clone()).unwrap();
        (0..1000).for_each(|i| log.push(format!("{i}\n").as_bytes()));
        log.flush(LONG);
        let expected: String = (0..1000).map(|i| format!("{i}\n")).collect();
        assert_eq!(disk.text(), expected);
    }

    #[test]
    fn an_output_that_stands_still_holds_nobody_up_and_what_does_not_fit_is_counted() {
        let disk = Disk::with_room(usize::MAX);
        let log = NonBlocking::start(disk.clone()).unwrap();
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        let standing_still = disk.0.lock().unwrap();
        log.push(&line);
        while !log.0.lock().writing {
            thread::yield_now();
        }
        (0..1024 + 7).for_each(|_| log.push(&line));
        log.flush(Duration::from_millis(1));
        let state = log.0.lock();
        assert_eq!((state.lines.len(), state.dropped), (QUEUE_BYTES, 7));
        drop((state, standing_still));
        log.flush(LONG);
        assert_eq!(disk.text().lines().count(), 1 + 1024);
        assert_eq!(log.0.lock().dropped, 0, "has been said");
    }

    #[test]
    fn a_full_disk_takes_whole_lines_again_once_it_has_room() {
        let disk = Disk::with_room(6);
        let log = NonBlocking::start(disk.clone()).unwrap();
        for line in ["one\n", "two\n", "three\n"] {
            log.push(line.as_bytes());
            log.flush(LONG);
        }
        assert_eq!((log.0.lock().dropped, disk.text().as_str()), (2, "one\ntw"));
        disk.make_room();
        log.push(b"four\n");
        log.flush(LONG);
        assert_eq!((log.0.lock().dropped, disk.text().as_str()), (0, "one\ntw\nfour\n"));
    }
}
