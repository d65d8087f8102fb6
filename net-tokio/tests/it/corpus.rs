//! The inputs that fuzzing began with or tripped over, replayed without a fuzzer.
//!
//! Owns how many of them must be understood. Must not judge one: the checks that the fuzz targets have in common do.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::Path;

#[path = "../../../fuzz/checks/words.rs"]
mod words;
#[path = "../../../fuzz/checks/zoo_cfg.rs"]
mod zoo_cfg;

/// Every input of a corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(folder).expect("lies in the sources");
    let read = |entry: std::io::Result<DirEntry>| std::fs::read(entry?.path());
    entries.map(|entry| read(entry).expect("can be read")).collect()
}

#[test]
fn zoo_cfg_corpus() {
    let parsed: Vec<_> = corpus("zoo_cfg").iter().map(|input| zoo_cfg::check(input)).collect();
    let accepted = parsed.iter().flatten().count();
    let warned = parsed.iter().flatten().filter(|(_, warnings)| !warnings.is_empty()).count();
    let refused = parsed.iter().filter(|parsed| parsed.is_err()).count();
    // A corpus of which nothing can be read would replay nothing.
    assert!(accepted > 3 && warned > 0 && refused > 5, "{accepted} {warned} {refused}");
}

#[test]
fn words_corpus() {
    let (mut words, mut allowed, mut lines) = (BTreeSet::new(), 0, 0);
    for input in corpus("words") {
        let answered = words::check(&input);
        allowed += usize::from(answered.allowed);
        words.extend(answered.word);
        lines += answered.texts.iter().map(|text| text.lines().count()).sum::<usize>();
    }
    assert!(words.len() > 5 && allowed > 3 && lines > 500, "{words:?} {allowed} {lines}");
}
