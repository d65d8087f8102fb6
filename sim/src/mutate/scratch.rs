//! The scratch copy of the source tree: applies a patch, builds, and restores the copy.
//!
//! Owns a folder with the copy and the build outputs. Must not write anywhere else.
#![expect(
    clippy::disallowed_methods,
    reason = "a tool that handles source files; no world is run here"
)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Lines of compiler output that are shown; a file has all of it.
const SHOWN: usize = 16;
/// Marks the folder as reproducible, in the format that backup programs recognize.
const MADE_ANEW: &str = "CACHEDIR.TAG";
const MADE_ANEW_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";
/// The file that cargo leaves in a build folder; the mark above exists only if cargo created the
/// folder.
const BUILDS: &str = ".rustc_info.json";

/// The scratch copy; see the module.
#[derive(Debug)]
pub(super) struct Scratch {
    source: PathBuf,
    folder: PathBuf,
}

impl Scratch {
    /// Creates `folder` if necessary, for the source tree in `source`.
    pub(super) fn new(source: &Path, folder: &Path) -> io::Result<Scratch> {
        fs::create_dir_all(folder)?;
        // The folder may be inside the source tree, and must not be copied as a part of it.
        fs::write(folder.join(MADE_ANEW), MADE_ANEW_TEXT)?;
        let (source, folder) = (source.canonicalize()?, folder.canonicalize()?);
        Ok(Scratch { source, folder })
    }

    /// A file of this name beside the copy.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the copy equal to the source tree. Equal files are not touched, so that little is
    /// rebuilt.
    pub(super) fn restore(&self) -> io::Result<()> {
        let tree = self.tree();
        fs::create_dir_all(&tree)?;
        for (path, wanted) in self.differences()? {
            let to = tree.join(path);
            let Some(bytes) = wanted else {
                fs::remove_file(to)?;
                continue;
            };
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&to, bytes)?;
        }
        Ok(())
    }

    /// The files that differ, with their content in the source tree.
    fn differences(&self) -> io::Result<Vec<(PathBuf, Option<Vec<u8>>)>> {
        let (mut wanted, mut found) = (BTreeSet::new(), BTreeSet::new());
        list(&self.source, Path::new(""), &FileType::is_file, &mut wanted)?;
        let tree = self.tree();
        list(&tree, Path::new(""), &|kind| !kind.is_dir(), &mut found)?;
        let mut differ: Vec<_> =
            found.difference(&wanted).map(|extra| (extra.clone(), None)).collect();
        for path in wanted {
            let bytes = fs::read(self.source.join(&path))?;
            if fs::read(tree.join(&path)).ok().as_ref() != Some(&bytes) {
                differ.push((path, Some(bytes)));
            }
        }
        Ok(differ)
    }

    /// Applies a patch to the copy: with `git apply`, with or without a leading folder in its
    /// paths, or with `patch`, which tolerates moved lines.
    ///
    /// # Errors
    /// The output of the first command.
    pub(super) fn apply(&self, patch: &Path) -> Result<(), String> {
        let patch = patch.canonicalize().map_err(|error| error.to_string())?;
        let ways: [&[&str]; 3] = [
            &["git", "apply", "-p1"],
            &["git", "apply", "-p0"],
            &["patch", "-p1", "--batch", "--forward", "--no-backup-if-mismatch", "-r", "-", "-i"],
        ];
        let mut complaint = None;
        for way in ways {
            let command = way.iter().map(OsStr::new).chain([patch.as_os_str()]);
            match self.run(command, &[]) {
                Ok(output) if output.status.success() => {
                    let changed = self.differences().map_err(|error| error.to_string())?;
                    let nothing = || "it changes nothing".to_owned();
                    return changed.first().map(|_| ()).ok_or_else(nothing);
                }
                Ok(output) => complaint.get_or_insert(error_text(&output)),
                Err(error) => complaint.get_or_insert(format!("{}: {error}", way[0])),
            };
            // The failed command may have applied a part of the patch.
            self.restore().map_err(|error| error.to_string())?;
        }
        Err(complaint.unwrap_or_default())
    }

    /// Builds the simulator of the copy.
    ///
    /// # Errors
    /// The beginning of the compiler's output, and the file that has all of it.
    pub(super) fn build(&self, quick: bool) -> Result<PathBuf, String> {
        // A patch runs for a few minutes of CPU time at most, so full optimization, as for a
        // release, would cost more than it saves.
        let profile = if quick {
            ["LTO=off", "CODEGEN_UNITS=16", "INCREMENTAL=true", "DEBUG=0"]
        } else {
            ["LTO=false", "CODEGEN_UNITS=16", "INCREMENTAL=false", "DEBUG=0"]
        };
        let command = ["cargo", "build", "--quiet", "--release", "-p", "sim"].map(OsStr::new);
        let output =
            self.run(command.into_iter(), &profile).map_err(|error| format!("cargo: {error}"))?;
        if output.status.success() {
            return Ok(self.folder.join("target/release/sim"));
        }
        let log = self.file("build.log");
        fs::write(&log, &output.stderr).map_err(|error| format!("{}: {error}", log.display()))?;
        let text = error_text(&output);
        let lines: Vec<&str> = text.lines().collect();
        let begin = lines.iter().position(|line| line.starts_with("error")).unwrap_or(0);
        let shown = lines.into_iter().skip(begin).take(SHOWN).collect::<Vec<_>>().join("\n");
        Err(format!("{shown}\n(all of it: {})", log.display()))
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    fn run<'a>(
        &self,
        mut command: impl Iterator<Item = &'a OsStr>,
        profile: &[&str],
    ) -> io::Result<Output> {
        let program = command.next().unwrap_or_default();
        let settings = profile.iter().filter_map(|setting| setting.split_once('='));
        Command::new(program)
            .args(command)
            .current_dir(self.tree())
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            .envs(settings.map(|(key, value)| (format!("CARGO_PROFILE_RELEASE_{key}"), value)))
            // The copy is not a repository, even if it lies inside of one.
            .env("GIT_CEILING_DIRECTORIES", &self.folder)
            .env_remove("GIT_DIR")
            .output()
    }
}

/// Entries of these types below `root`/`folder`, relative to the root, without build outputs and
/// the git history.
fn list(
    root: &Path,
    folder: &Path,
    wanted: &dyn Fn(&FileType) -> bool,
    into: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let (path, kind) = (folder.join(entry.file_name()), entry.file_type()?);
        let holds = |name: &str| entry.path().join(name).exists();
        if entry.file_name() == ".git" || kind.is_dir() && (holds(MADE_ANEW) || holds(BUILDS)) {
            continue;
        }
        if wanted(&kind) {
            into.insert(path);
        } else if kind.is_dir() {
            list(root, &path, wanted, into)?;
        }
    }
    Ok(())
}

/// The error output of a command.
fn error_text(output: &Output) -> String {
    let text = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    String::from_utf8_lossy(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("mutate-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("tree-to-be/src")).expect("made");
            fs::write(path.join("tree-to-be/src/a.rs"), "one\ntwo\nthree\n").expect("written");
            Folder(path)
        }

        fn scratch(&self) -> Scratch {
            let scratch = Scratch::new(&self.0.join("tree-to-be"), &self.0.join("scratch"));
            let scratch = scratch.expect("made");
            scratch.restore().expect("copied");
            scratch
        }

        fn patch(&self, text: &str) -> PathBuf {
            let path = self.0.join("x.patch");
            fs::write(&path, text).expect("written");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    const CHANGE: &str = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";

    #[test]
    fn patch_applies_with_and_without_leading_folder_and_is_restored() {
        let folder = Folder::new("apply");
        let scratch = folder.scratch();
        let copy = scratch.tree().join("src/a.rs");
        for (old, new) in [("a/src/a.rs", "b/src/a.rs"), ("src/a.rs", "src/a.rs")] {
            let patch = folder.patch(&format!("# Words.\n--- {old}\n+++ {new}\n{CHANGE}"));
            scratch.apply(&patch).expect("it fits");
            assert_eq!(fs::read_to_string(&copy).expect("there"), "one\n2\nthree\n");
            scratch.restore().expect("copied");
            assert_eq!(fs::read_to_string(&copy).expect("there"), "one\ntwo\nthree\n");
        }
    }

    #[test]
    fn patch_that_does_not_apply_is_refused_with_the_reason() {
        let folder = Folder::new("refuse");
        let scratch = folder.scratch();
        let text = format!("--- a/src/b.rs\n+++ b/src/b.rs\n{CHANGE}");
        let error = scratch.apply(&folder.patch(&text)).expect_err("there is no such file");
        assert!(error.contains("src/b.rs"), "{error}");
        assert!(scratch.apply(Path::new("/nowhere/x.patch")).is_err());
        let error = scratch.apply(&folder.patch("")).expect_err("there is nothing in it");
        assert!(error.contains("changes nothing"), "{error}");
    }

    #[test]
    fn scratch_inside_the_tree_is_not_copied_and_patch_is_removed() {
        let folder = Folder::new("within");
        let source = folder.0.join("tree-to-be");
        fs::create_dir_all(source.join("builds/deep")).expect("made");
        fs::write(source.join("builds").join(BUILDS), "{}").expect("written");
        let scratch = Scratch::new(&source, &source.join("target/mutate")).expect("made");
        scratch.restore().expect("copied");
        let hidden = "--- /dev/null\n+++ b/.cargo/config.toml\n@@ -0,0 +1 @@\n+x\n";
        scratch.apply(&folder.patch(hidden)).expect("it fits");
        std::os::unix::fs::symlink("a.rs", scratch.tree().join("src/link")).expect("made");
        scratch.restore().expect("copied");
        let mut left = BTreeSet::new();
        list(&scratch.tree(), Path::new(""), &|kind| !kind.is_dir(), &mut left).expect("read");
        assert_eq!(left, BTreeSet::from([PathBuf::from("src/a.rs")]));
    }
}
