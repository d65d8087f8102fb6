//! House rules that no compiler checks, for the whole workspace.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("core lies in the workspace").into()
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

/// Code without comments and without its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_module_says_what_it_owns() {
    for folder in
        ["core/src", "client/src", "sim/src", "net-tokio/src", "storage-fs/src", "core/tests"]
    {
        for (path, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{} has no module documentation", path.display());
        }
    }
}

#[test]
fn the_core_and_the_client_reach_for_nothing_outside() {
    for folder in ["core/src", "client/src"] {
        for (path, text) in sources(folder) {
            for banned in [
                "std::fs",
                "std::net",
                "std::thread",
                "std::env",
                "std::io",
                "SystemTime",
                "async ",
            ] {
                assert!(!code(&text).contains(banned), "{} uses {banned}", path.display());
            }
        }
    }
}

#[test]
fn wire_knows_only_ids_and_errors() {
    for (path, text) in sources("core/src/wire") {
        for (number, line) in code(&text).lines().enumerate() {
            let line = line.trim();
            let inside = !line.contains("crate::")
                || line.starts_with("use crate::error::")
                || line.starts_with("use crate::ids::");
            assert!(inside, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

#[test]
fn the_client_uses_only_wire_ids_and_errors_of_the_core() {
    const ALLOWED: [&str; 5] = ["ErrorCode", "Instant", "Malformed", "SessionId", "Zxid"];
    for (path, text) in sources("client/src") {
        for line in code(&text).lines().filter(|line| line.contains("zabkeeper_core::")) {
            let used = line.split_once("zabkeeper_core::").map_or("", |(_, used)| used);
            let mut names = used.trim_matches(['{', '}', ';']).split(", ");
            let allowed = used.starts_with("wire::") || names.all(|name| ALLOWED.contains(&name));
            assert!(allowed, "{}: {line}", path.display());
        }
    }
}

#[test]
fn the_architecture_page_names_every_module_of_the_core() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let source = root().join("core/src");
    for (path, _) in sources("core/src") {
        let relative = path.strip_prefix(&source).unwrap().with_extension("");
        if relative.ends_with("tests") {
            continue;
        }
        let module = relative.to_str().unwrap().trim_end_matches("/mod").to_owned();
        assert!(page.contains(&format!("`{module}`")), "{module} is not on the page");
    }
}
