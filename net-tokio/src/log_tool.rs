//! `zabkeeper log`: inspects, truncates or compares a log while no server runs on it.
//!
//! Owns the printed output, and the copy made before a truncation. Must not decide which files are
//! damaged (the store does), nor which transactions can be applied (the core does).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use storage_fs::{Inspected, Options, OsDir, StoreError};
use zabkeeper_core::store::{DiskCommand, Entry};
use zabkeeper_core::txn::Txn;
use zabkeeper_core::{Compared, Halted, WriteId, Zxid, compare, replay};

use crate::args::LogCommand;
use crate::config::OUR_FOLDER;
use crate::host::Failure;

/// Runs the command and prints its result to `out`.
pub(crate) fn run(command: &LogCommand, out: &mut impl Write) -> Result<(), Failure> {
    let place = Place::of(command)?;
    let found = place.inspect()?;
    let printed = match (&command.compare_with, command.cut_after) {
        (Some(other), _) => {
            let other = LogCommand { data: other.clone(), ..command.clone() };
            let theirs = Place::of(&other)?.inspect()?;
            let compared = compare(found.recovered, theirs.recovered)
                .map_err(|corrupt| Failure::Data(corrupt.to_string()))?;
            print_compared(&compared, out)
        }
        (None, None) => print(&place, &found, out),
        (None, Some(last)) => return cut(&place, &found, last, out),
    };
    match printed {
        // The reader of the pipe, such as `head`, has exited.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Other(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// The directories of a store.
struct Place {
    log: PathBuf,
    snapshots: PathBuf,
}

impl Place {
    fn of(command: &LogCommand) -> Result<Place, Failure> {
        let folder = |named: &Path| {
            let inner = named.join(OUR_FOLDER);
            let folder = if inner.is_dir() { inner } else { named.to_owned() };
            // Checked here because `OsDir::new` would create a missing directory.
            if folder.is_dir() {
                Ok(folder)
            } else {
                Err(Failure::Data(format!("{} is no directory", named.display())))
            }
        };
        let snapshots = folder(&command.data)?;
        let log = match &command.log {
            None => snapshots.clone(),
            Some(log) => folder(log)?,
        };
        Ok(Place { log, snapshots })
    }

    fn directories(&self) -> Result<(OsDir, OsDir), Failure> {
        let open =
            |path: &Path| OsDir::new(path).map_err(|error| Failure::of_folder("DIR", path, &error));
        Ok((open(&self.log)?, open(&self.snapshots)?))
    }

    fn inspect(&self) -> Result<Inspected, Failure> {
        let (log, snapshots) = self.directories()?;
        storage_fs::inspect(log, snapshots).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &StoreError) -> Failure {
        Failure::of_store(&self.log, error)
    }

    /// Copies each directory to a new one beside it, and returns the paths of the copies.
    fn copy(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut folders = vec![&self.snapshots];
        if self.log != self.snapshots {
            folders.push(&self.log);
        }
        folders.into_iter().map(|folder| copy_beside(folder)).collect()
    }
}

fn copy_beside(folder: &Path) -> Result<PathBuf, Failure> {
    let named = |number: u32| {
        let mut name = folder.as_os_str().to_owned();
        name.push(format!(".before-cut-{number}"));
        PathBuf::from(name)
    };
    let copy = (1..).map(named).find(|path| !path.exists()).expect("a number is free");
    let copied = fs::create_dir(&copy).and_then(|()| {
        for file in fs::read_dir(folder)? {
            let file = file?;
            if file.file_type()?.is_file() {
                let to = copy.join(file.file_name());
                fs::copy(file.path(), &to)?;
                fs::File::open(to)?.sync_all()?;
            }
        }
        fs::File::open(&copy)?.sync_all()
    });
    copied.map_err(|error| {
        let (from, to) = (folder.display(), copy.display());
        Failure::Other(format!("cannot copy {from} to {to}: {error}; nothing was cut"))
    })?;
    Ok(copy)
}

fn print(place: &Place, found: &Inspected, out: &mut impl Write) -> io::Result<()> {
    let recovered = &found.recovered;
    let (state, history) = (&recovered.state, &recovered.history);
    writeln!(out, "snapshots in  {}", place.snapshots.display())?;
    writeln!(out, "log in        {}", place.log.display())?;
    let (promised, current) = (state.accepted_epoch, state.current_epoch);
    writeln!(out, "epochs        {promised} promised, {current} entered")?;
    if state.damaged {
        writeln!(out, "damaged       this server has no vote until a leader has filled it")?;
    }
    let snapshots: Vec<String> = recovered.snapshots.iter().map(Zxid::to_string).collect();
    writeln!(
        out,
        "snapshots     {}",
        if snapshots.is_empty() { "none".into() } else { snapshots.join(" ") }
    )?;
    writeln!(out, "log           after {} up to {}", history.start(), history.end())?;
    if found.torn_bytes > 0 {
        writeln!(
            out,
            "torn          {} bytes of a batch behind it, which a start cuts off",
            found.torn_bytes
        )?;
    }
    if let Some(end) = found.replaced {
        writeln!(out, "replaced      the snapshot takes the place of a log that ends at {end}")?;
    }
    writeln!(out, "transactions behind the newest snapshot:")?;
    for entry in &recovered.entries {
        writeln!(out, "{}", line(entry))?;
    }
    match replay(recovered.clone()) {
        Err(corrupt) => writeln!(out, "{corrupt}"),
        Ok(replayed) => match replayed.halted {
            None => writeln!(out, "all of them can be applied"),
            Some(halted) => {
                writeln!(out, "{halted}")?;
                writeln!(out, "{}", remedy(&place.snapshots, replayed.applied))
            }
        },
    }
}

fn print_compared(compared: &Compared, out: &mut impl Write) -> io::Result<()> {
    match compared.txn {
        Some(zxid) => {
            writeln!(out, "transactions  {zxid} is the first that is another one in each")?
        }
        None => writeln!(out, "transactions  alike, as far as both have them")?,
    }
    match (compared.at, &compared.path) {
        (None, _) => writeln!(
            out,
            "trees         cannot be compared: the snapshot of one lies behind the log of the other"
        ),
        (Some(zxid), None) => writeln!(out, "trees         alike at {zxid}"),
        (Some(zxid), Some(path)) => {
            writeln!(out, "trees         {path} is the first node that differs at {zxid}")
        }
    }
}

fn line(entry: &Entry) -> String {
    match Txn::decode(entry) {
        Err(corrupt) => format!("{} {corrupt}", entry.zxid),
        Ok(Txn { zxid, session, time, op, .. }) => {
            format!("{zxid} time={}ms session={session} {op}", time.0)
        }
    }
}

/// Advice for the operator about a transaction that cannot be applied.
pub(crate) fn remedy(data: &Path, applied: Zxid) -> String {
    let dir = data.display();
    format!(
        "`zabkeeper log inspect {dir}` shows the log; `zabkeeper log cut {dir} --after {applied}` \
         removes that transaction and \
         all behind it. In an ensemble do so on all servers before one is started"
    )
}

fn cut(place: &Place, found: &Inspected, last: Zxid, out: &mut impl Write) -> Result<(), Failure> {
    let recovered = &found.recovered;
    let base = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |snapshot| snapshot.zxid);
    let end = recovered.history.end();
    let known = last == base || recovered.entries.iter().any(|entry| entry.zxid == last);
    if last < base {
        return Err(Failure::Data(format!(
            "--after {last}: the snapshot at {base} holds what comes after it, so nothing before \
             {base} can be cut"
        )));
    }
    if !known || last == end {
        return Err(Failure::Data(format!(
            "--after {last}: name a transaction from {base} up to the one before {end}, which is \
             the last"
        )));
    }
    let copies = place.copy()?;
    let (log, snapshots) = place.directories()?;
    let mut opened =
        storage_fs::open(log, snapshots, Options::new(0)).map_err(|error| place.failure(&error))?;
    let truncate = DiskCommand::Truncate { id: WriteId(1), to: last };
    opened.log.run(&[truncate]).map_err(|error| place.failure(&error))?;
    let mut report = || {
        for copy in &copies {
            writeln!(out, "kept a copy in {}", copy.display())?;
        }
        writeln!(out, "cut, and lost from here:")?;
        for entry in recovered.entries.iter().filter(|entry| entry.zxid > last) {
            writeln!(out, "{}", line(entry))?;
        }
        writeln!(
            out,
            "the log ends at {last} now; in an ensemble cut the logs of all servers before one is \
             started"
        )
    };
    report().map_err(|error| {
        Failure::Other(format!("the log is cut after {last}, but this cannot be printed: {error}"))
    })
}

impl Failure {
    /// The failure of a server that stopped on a transaction that cannot be applied.
    pub(crate) fn inapplicable(why: &Halted, applied: Zxid, data: &Path) -> Failure {
        Failure::Data(format!("{}: {why}; {}", data.display(), remedy(data, applied)))
    }
}
