//! `edit path`: the data of a node in the user's editor.
//!
//! Owns the file for the editor. Must not overwrite a change that somebody has made meanwhile: the
//! version of the data decides.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;
use zabkeeper_client::ErrorCode;

use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::{Failed, Outcome};
use crate::cli::walk;

/// The editor where the environment names none.
const EDITOR_DEFAULT: &str = "vi";

pub(crate) async fn edit(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let path = &arguments.rest[0];
    let (before, stat) = client.get(path).await?;
    let failed = |what: &str, error| Failed::new(format!("edit {path}: {what}: {error}"));
    let file = create_file(&client.unique_id(), walk::name(path), &before)
        .map_err(|error| failed("cannot write a file for the editor", error))?;
    run_editor(&file).await?;
    let mut after =
        fs::read(&file).map_err(|error| failed("cannot read what the editor has left", error))?;
    // Editors end the last line of a file; the node had no such end.
    if !before.ends_with(b"\n") && after.ends_with(b"\n") {
        after.pop();
    }
    if after == before {
        remove(&file);
        context.output.err(&format!("{path} is unchanged"));
        return Ok(());
    }
    match client.set(path, after, stat.version).await {
        Ok(_) => {
            remove(&file);
            Ok(())
        }
        Err(error) => {
            let why = if error.is(ErrorCode::BadVersion) {
                format!("{path} has changed meanwhile")
            } else {
                Failed::from(error).message
            };
            Err(Failed::new(format!("{why}; your text is in {}", file.display())))
        }
    }
}

/// A file that nobody else reads: the data may be a secret.
fn create_file(id: &str, name: &str, data: &[u8]) -> std::io::Result<PathBuf> {
    // The name at its end lets editors recognize the format.
    let path = std::env::temp_dir().join(format!("zabkeeper-{id}-{name}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(data)?;
    Ok(path)
}

fn remove(file: &Path) {
    // A file that stays in the folder for temporary files harms nobody.
    let _gone = fs::remove_file(file);
}

async fn run_editor(file: &Path) -> Outcome {
    let named = ["VISUAL", "EDITOR"].map(|name| std::env::var(name).unwrap_or_default());
    let editor = named.into_iter().find(|editor| !editor.is_empty());
    let editor = editor.unwrap_or_else(|| EDITOR_DEFAULT.to_owned());
    // The variable may hold arguments, so that a shell takes it apart, as with git.
    let command = format!("{editor} \"$@\"");
    let ended = Command::new("sh").args(["-c", &command, &editor]).arg(file).status().await;
    let kept = || format!("the text is in {}", file.display());
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failed::new(format!("{editor} has ended with {status}; {}", kept()))),
        Err(error) => Err(Failed::new(format!("cannot run {editor}: {error}; {}", kept()))),
    }
}
