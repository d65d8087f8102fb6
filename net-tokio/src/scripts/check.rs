//! `zabkeeper check`: what the server makes of each line of `zoo.cfg`.
//!
//! Owns the words. Must not judge: the parser and the start of a server do.

use std::io::Write;

use super::{CommandFailure, FAILED, config_file, failed, print};
use crate::args::CheckCommand;
use crate::config::{Checked, Settings, Verdict};
use crate::host::Failure;
use crate::serve;

/// Runs the command.
///
/// # Errors
/// The file cannot be read, or a server would not start with it.
pub(crate) fn check(command: &CheckCommand, out: &mut impl Write) -> Result<(), CommandFailure> {
    let file = config_file(command.config.as_deref());
    let checked = Checked::file(&file).map_err(failed)?;
    for (setting, verdict) in &checked.lines {
        print(out, &format!("{setting}: {}\n", text(verdict)))?;
    }
    if let Some(warning) = &checked.warning {
        print(out, &format!("{warning}\n"))?;
    }
    let refused =
        checked.lines.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Refused(_))).count();
    let mut faults = refused;
    for what in checked.failure.iter().chain(&of_folders(checked.settings.as_ref())) {
        print(out, &format!("REFUSED: {what}\n"))?;
        faults += 1;
    }
    let file = file.display();
    if faults > 0 {
        let what = format!("{file}: a server would not start: {faults} of the above are refused\n");
        print(out, &what)?;
        return Err((FAILED, String::new()));
    }
    let unknown =
        checked.lines.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Unknown(_))).count();
    match unknown {
        0 => print(out, &format!("{file}: a server starts with it\n")),
        _ => {
            let what = format!("{file}: a server starts with it, without the {unknown} unknown\n");
            print(out, &what)
        }
    }
}

fn text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::InForce(value, notes) if notes.is_empty() => format!("in force: {value}"),
        Verdict::InForce(value, notes) => format!("in force: {value} ({})", notes.join("; ")),
        Verdict::NoEffect(what) => format!("no effect: {}", what.trim_start_matches(NO_EFFECT)),
        Verdict::Unknown(what) => format!("UNKNOWN: {what}"),
        Verdict::Refused(what) => format!("REFUSED: {what}"),
        Verdict::NotReached => "not reached, because of what is refused".to_owned(),
    }
}

/// How the parser's warnings begin, which the verdict says already.
const NO_EFFECT: &str = "has no effect here: ";

/// What the folders hold that keeps a server from starting.
fn of_folders(settings: Option<&Settings>) -> Vec<String> {
    let faults = settings.map(serve::check_folders);
    faults.and_then(Result::err).map(|fault: Failure| fault.to_string()).into_iter().collect()
}
