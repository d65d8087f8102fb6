//! Replays the fuzzing corpora: initial inputs and inputs that once failed.
//!
//! Owns the minimum number of inputs that parse. Must not check single inputs: the checks shared
//! with the fuzz targets do.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::Path;

#[path = "../../../fuzz/checks/four_letter.rs"]
mod four_letter;
#[path = "../../../fuzz/checks/zoo_cfg.rs"]
mod zoo_cfg;

/// All inputs of a corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(folder).expect("lies in the sources");
    let read = |entry: std::io::Result<DirEntry>| std::fs::read(entry?.path());
    entries.map(|entry| read(entry).expect("can be read")).collect()
}

#[test]
fn zoo_cfg_corpus_passes_its_checks() {
    let parsed: Vec<_> = corpus("zoo_cfg").iter().map(|input| zoo_cfg::check(input)).collect();
    let accepted = parsed.iter().flatten().count();
    let warned = parsed.iter().flatten().filter(|(_, warnings)| !warnings.is_empty()).count();
    let refused = parsed.iter().filter(|parsed| parsed.is_err()).count();
    // Guards against a corpus of which no input parses any more.
    assert!(accepted > 3 && warned > 0 && refused > 5, "{accepted} {warned} {refused}");
}

#[test]
fn four_letter_corpus_passes_its_checks() {
    let (mut commands, mut allowed, mut lines) = (BTreeSet::new(), 0, 0);
    for input in corpus("four_letter") {
        let answered = four_letter::check(&input);
        allowed += usize::from(answered.allowed);
        commands.extend(answered.command);
        lines += answered.texts.iter().map(|text| text.lines().count()).sum::<usize>();
    }
    assert!(commands.len() > 5 && allowed > 3 && lines > 500, "{commands:?} {allowed} {lines}");
}
