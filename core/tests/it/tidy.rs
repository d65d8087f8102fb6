//! Code rules for the whole workspace that no compiler checks.

use std::collections::BTreeSet;
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

/// Code without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let (text, tests) = text.split_once("#[cfg(test)]\nmod tests {").unwrap_or((text, "}"));
    let outside = tests.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    let outside: Vec<&str> = outside.collect();
    assert_eq!(outside, ["}"], "what stands behind the tests is not checked");
    uncommented(text)
}

fn uncommented(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_module_says_what_it_owns() {
    for folder in
        ["core/src", "client/src", "sim/src", "net-tokio/src", "storage-fs/src", "core/tests"]
    {
        for (path, text) in sources(folder) {
            let head: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
            assert!(!head.is_empty(), "{} has no module documentation", path.display());
            let is_root = ["lib.rs", "main.rs"].iter().any(|root| path.ends_with(root));
            let is_test = path.iter().any(|part| part.to_string_lossy().starts_with("tests"));
            let owns = head.contains("wns ") || is_root || is_test;
            assert!(owns, "{} does not say what it owns", path.display());
        }
    }
}

#[test]
fn core_and_client_use_no_io_threads_or_clocks() {
    let ambient = ["std::fs", "std::net", "std::thread", "std::env", "SystemTime"];
    for folder in ["core/src", "client/src/session"] {
        for (path, text) in sources(folder) {
            for banned in ambient.iter().chain(&["std::io", "async "]) {
                assert!(!code(&text).contains(banned), "{} uses {banned}", path.display());
            }
        }
    }
    // The handle and the recipes are asynchronous, and know no runtime.
    for (path, text) in sources("client/src") {
        let ends = ["client/src/tokio.rs", "client/src/tokio/dns_srv.rs", "client/src/lib.rs"];
        let is_driver = ends.iter().any(|end| path.ends_with(end));
        for banned in ambient {
            // The driver of programs without asynchronous code has a thread of its own.
            let is_used = code(&text).contains(banned) && !(is_driver && banned == "std::thread");
            assert!(!is_used, "{} uses {banned}", path.display());
        }
        assert!(is_driver || !code(&text).contains("tokio"), "{} uses tokio", path.display());
    }
}

/// Storage accesses files only through `Vfs`, and only `vfs/os.rs` accesses real ones.
#[test]
fn storage_uses_files_only_through_vfs() {
    let source = root().join("storage-fs/src");
    for (path, text) in sources("storage-fs/src") {
        let within = path.strip_prefix(&source).unwrap();
        if within == Path::new("vfs/os.rs") || within.starts_with("tests") {
            continue;
        }
        for banned in ["std::fs", "std::net", "std::thread", "std::env", "SystemTime", "async "] {
            assert!(!code(&text).contains(banned), "{} uses {banned}", path.display());
        }
    }
}

/// Addresses and the poll order of `select!` differ between processes, type ids between builds.
#[test]
fn code_does_not_depend_on_addresses_type_ids_or_poll_order() {
    for folder in ["core/src", "client/src", "storage-fs/src", "sim/src"] {
        for (path, text) in sources(folder) {
            for banned in [
                "as *const",
                "as *mut",
                ".as_ptr()",
                "addr_of",
                "ptr::",
                "&raw ",
                ":p}",
                "#p}",
                "TypeId",
                "select!",
            ] {
                assert!(!uncommented(&text).contains(banned), "{} uses {banned}", path.display());
            }
        }
    }
}

/// The simulated world is restricted like the core. Only the program around it may use files,
/// threads and a clock.
#[test]
fn simulated_world_uses_no_io_threads_or_clocks() {
    const AROUND: [&str; 12] = [
        "mutate",
        "record/output.rs",
        "record/summary/dump.rs",
        "replay/shrink/mod.rs",
        "run/batch.rs",
        "run/determinism.rs",
        "run/evidence_log.rs",
        "run/job.rs",
        "run/program.rs",
        "run/report.rs",
        "run/speed.rs",
        "run/track.rs",
    ];
    let source = root().join("sim/src");
    for (path, text) in sources("sim/src") {
        let within = path.strip_prefix(&source).unwrap();
        if AROUND.iter().any(|around| within.starts_with(around)) {
            continue;
        }
        for banned in [
            "std::fs",
            "net::Tcp",
            "net::Udp",
            "std::thread",
            "env::",
            "SystemTime",
            "time::Instant",
            "RandomState",
        ] {
            assert!(!code(&text).contains(banned), "{} uses {banned}", path.display());
        }
    }
}

#[test]
fn wire_depends_only_on_ids_and_errors() {
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
fn client_uses_only_wire_ids_and_errors_of_the_core() {
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
fn architecture_page_lists_every_core_module() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let source = root().join("core/src");
    for (path, _) in sources("core/src") {
        let relative = path.strip_prefix(&source).unwrap().with_extension("");
        if relative.iter().any(|part| part == "tests") {
            continue;
        }
        let module = relative.to_str().unwrap().trim_end_matches("/mod").to_owned();
        assert!(page.contains(&format!("`{module}`")), "{module} is not on the page");
    }
}

/// rustfmt wraps code; comments are wrapped by hand.
#[test]
fn comments_fit_into_100_columns() {
    for folder in ["core", "client", "sim", "net-tokio", "storage-fs", "fuzz/checks"] {
        for (path, text) in sources(folder) {
            for (number, line) in text.lines().enumerate() {
                let is_comment = line.trim_start().starts_with("//");
                let fits = !is_comment || line.chars().count() <= 100;
                assert!(fits, "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
}

/// Everything that follows from a change of role is in one file.
#[test]
fn only_server_rs_assigns_the_role() {
    for (path, text) in sources("core/src") {
        let assigns = code(&text).contains("self.role = ");
        assert!(!assigns || path.ends_with("core/src/server.rs"), "{}", path.display());
    }
}

/// Names that were replaced by the terms of ZooKeeper's source, the ZAB paper, POSIX or tokio.
const BANNED: &[&str] = &[
    "Birth",
    "Cleaning",
    "Dice",
    "Farewell",
    "Hold",
    "Hub",
    "Lapse",
    "News",
    "Porch",
    "Recent",
    "Rogue",
    "Stance",
    "Story",
    "Strike",
    "ballots",
    "bring_in",
    "agenda",
    "chronicle",
    "dice",
    "doomed",
    "doors",
    "is_mended",
    "let_in",
    "list_lapse",
    "owes_since",
    "pump",
    "reached_by_quorum",
    "stand_in_line",
    "take_news",
    "tally",
    "tell_all",
];

#[test]
fn code_uses_no_banned_name() {
    for folder in ["core/src", "client/src", "sim/src", "net-tokio/src", "storage-fs/src"] {
        for (path, text) in sources(folder) {
            let text = uncommented(&text);
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let banned = words.find(|word| BANNED.contains(word));
            assert_eq!(banned, None, "{}", path.display());
        }
    }
}

/// Paths of the workspace that pages name, as `core/src/io.rs` or `sim/corpus/`.
#[test]
fn paths_that_documents_name_exist() {
    let pages = ["docs", "docs/simulator"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let pages = pages.into_iter().flatten().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    for page in pages.chain([root().join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        for quoted in text.split('`').skip(1).step_by(2) {
            let first = quoted.split('/').next().unwrap_or_default();
            let is_path = (quoted.ends_with('/') || quoted.contains('.'))
                && ["core", "client", "sim", "net-tokio", "storage-fs", "fuzz", "docs", ".ci"]
                    .contains(&first)
                && !quoted.contains(|c: char| c.is_whitespace() || "*<{$,".contains(c));
            let exists = !is_path || root().join(quoted).exists();
            assert!(exists, "{} names {quoted}, which does not exist", page.display());
        }
    }
}

/// The numbered edge cases, and those of features to come: the contents of an ensemble's config
/// node, reconfig, the admin server.
const EDGE_CASES: std::ops::RangeInclusive<u32> = 1..=230;
const LATER: [std::ops::RangeInclusive<u32>; 2] = [64..=64, 205..=230];

/// The numbers after the words `edge` and `edges`; `to` stands for all numbers between.
fn edges_named(text: &str) -> Vec<u32> {
    let mut named = Vec::new();
    let mut words =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        if !matches!(word, "edge" | "edges") {
            continue;
        }
        let mut all_up_to = false;
        while let Some(word) = words.peek() {
            match (word.parse(), *word) {
                (Ok(number), _) if all_up_to => {
                    let first = named.last().map_or(number, |last| last + 1);
                    named.extend(first..=number);
                    all_up_to = false;
                }
                (Ok(number), _) => named.push(number),
                (Err(_), "to") => all_up_to = true,
                (Err(_), "and") => {}
                (Err(_), _) => break,
            }
            words.next();
        }
    }
    named
}

/// A test names an edge case in its own name, in the title of a script, or beside the line of a
/// script that shows it.
#[test]
fn every_edge_case_has_a_test_that_names_it() {
    assert_eq!(edges_named("fn c9_edges_1_to_3_and_7_are"), [1, 2, 3, 7]);
    assert_eq!(edges_named("play(\"edges 56, 91 to 93: 4\", edge 8"), [56, 91, 92, 93, 4, 8]);
    let mut named = Vec::new();
    for folder in ["core", "client", "sim", "net-tokio", "storage-fs"] {
        for (path, text) in sources(folder) {
            let is_play = path.components().any(|part| part.as_os_str() == "edges");
            let is_name = |line: &&str| {
                let line = line.trim_start();
                line.starts_with("fn ") || is_play && line.starts_with(['"', 'p'])
            };
            named.extend(text.lines().filter(is_name).flat_map(edges_named));
        }
    }
    for folder in ["core/tests/scenarios", "core/tests/ensembles"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let comments = text.lines().filter_map(|line| line.split_once('#'));
            named.extend(comments.flat_map(|(_, comment)| edges_named(comment)));
        }
    }
    let missing: Vec<u32> = EDGE_CASES
        .filter(|number| !LATER.iter().any(|later| later.contains(number)))
        .filter(|number| !named.contains(number))
        .collect();
    assert!(missing.is_empty(), "no test names the edge cases {missing:?}");
}

/// Ids such as `FLW-03`: capitals, then a number, which `N` marks as negative.
fn row_ids(text: &str) -> impl Iterator<Item = &str> {
    const FAMILIES: [&str; 22] = [
        "ACL", "CLI", "CLIENT", "CONF", "CONS", "DATA", "ERR", "FLE", "FLW", "HS", "METRIC",
        "MULTI", "OP", "QV", "REC", "RO", "SESS", "STAT", "THR", "WATCH", "WIRE", "ZAB",
    ];
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            let digits = number.strip_prefix('N').unwrap_or(number);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            FAMILIES.contains(&family) && is_number
        })
    })
}

#[test]
fn every_row_id_in_the_code_is_in_the_compatibility_page() {
    let found: Vec<_> = row_ids("(ZAB-02 to OP-N11), UTF-8; x-ACL-1, FLW-x").collect();
    assert_eq!(found, ["ZAB-02", "OP-N11"]);
    let page = fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let mut missing = Vec::new();
    for folder in ["core", "client", "sim", "net-tokio", "storage-fs", "fuzz/checks"] {
        for (path, text) in sources(folder) {
            let unknown = row_ids(&text).filter(|id| !rows.contains(id));
            missing.extend(unknown.map(|id| format!("{}: {id}", path.display())));
        }
    }
    assert!(
        missing.is_empty(),
        "no row of docs/compatibility.md says what these are: {missing:#?}"
    );
}

/// METRIC-02, METRIC-04 to METRIC-12.
/// Each name that ZooKeeper 3.9.4 prints is printed here, or the page of differences says why not.
#[test]
fn metrics_of_zookeeper_are_printed_or_explained() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let page = read("docs/compatibility.md");
    let (_, rows) = page.split_once("\n### Metrics that are absent\n").unwrap();
    let rows = rows.split("\n## ").next().unwrap();
    let cells = rows.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    let explained: BTreeSet<&str> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let snapshot = "core/src/driver/four_letter/text/snapshots/\
                    zabkeeper_core__driver__four_letter__text__tests__mntr_of_a_leader.snap";
    let text = read(snapshot);
    let printed: BTreeSet<&str> =
        text.lines().filter_map(|line| Some(line.split_once('\t')?.0)).collect();
    let recorded = read("core/tests/golden/mntr-3.9.4.txt");
    let bases: BTreeSet<&str> = printed.iter().map(|name| base_of_metric(name)).collect();
    for line in recorded.lines() {
        let name = line.split(' ').next().unwrap();
        let base = base_of_metric(name);
        let is_printed = printed.contains(name) || bases.contains(base);
        assert!(is_printed != explained.contains(base), "{name} is printed: {is_printed}");
    }
}

/// The name of a metric without the figure of a summary and the key of a set.
fn base_of_metric(name: &str) -> &str {
    let name = name.strip_prefix("zk_").unwrap();
    let figures = ["avg_", "min_", "max_", "cnt_", "sum_", "p50_", "p95_", "p99_", "p999_"];
    let name = figures.iter().find_map(|figure| name.strip_prefix(figure)).unwrap_or(name);
    let keys = ["zookeeper_", "1_", "2_"];
    keys.iter().find_map(|key| name.strip_prefix(key)).unwrap_or(name)
}
