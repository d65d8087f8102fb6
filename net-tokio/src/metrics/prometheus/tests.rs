//! The page is read back by a parser that knows only the specification of the format.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zabkeeper_core::Instant;
use zabkeeper_core::driver::metrics::{Summary, Totals};

use super::*;

/// One line of samples: its labels and its value.
type Line = (BTreeMap<String, String>, f64);

/// Metrics by name, each with its type and its lines by their full name.
type Families = BTreeMap<String, (String, Vec<(String, Line)>)>;

/// Reads a page.
///
/// # Errors
/// What is against the format.
fn parse(page: &str) -> Result<Families, String> {
    if !page.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut families = Families::new();
    let (mut helped, mut current) = (BTreeSet::new(), None);
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').ok_or("a HELP without a text")?;
            if !helped.insert(name.to_owned()) {
                return Err(format!("two HELPs of {name}"));
            }
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').ok_or("a TYPE without a type")?;
            if !["counter", "gauge", "summary"].contains(&kind) {
                return Err(format!("the type {kind}"));
            }
            current = Some(name.to_owned());
            if families.insert(name.to_owned(), (kind.to_owned(), Vec::new())).is_some() {
                return Err(format!("{name} comes twice"));
            }
            continue;
        }
        let (name, labels, value) = sample(line)?;
        let family = current.as_deref().ok_or("a sample without a type")?;
        let (kind, lines) = families.get_mut(family).expect("it was just inserted");
        let suffixes: &[&str] = if kind == "summary" { &["", "_count", "_sum"] } else { &[""] };
        let suffix = name.strip_prefix(family).filter(|suffix| suffixes.contains(suffix));
        let suffix = suffix.ok_or_else(|| format!("{name} is within {family}"))?;
        let quantile = labels.contains_key("quantile");
        if quantile != (kind == "summary" && suffix.is_empty()) {
            return Err(format!("a quantile is missing, or one too many: {line}"));
        }
        if lines.iter().any(|(known, (with, _))| *known == name && *with == labels) {
            return Err(format!("twice: {line}"));
        }
        lines.push((name, (labels, value)));
    }
    Ok(families)
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Result<(String, BTreeMap<String, String>, f64), String> {
    let wrong = || format!("cannot be read: {line:?}");
    let is_name = |name: &str| {
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
        name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
    };
    let end = line.find(['{', ' ']).ok_or_else(wrong)?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name) {
        return Err(wrong());
    }
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        let mut chars = inner.chars();
        loop {
            let label: String = chars.by_ref().take_while(|c| *c != '=').collect();
            if !is_name(&label) || label.contains(':') || chars.next() != Some('"') {
                return Err(wrong());
            }
            let mut value = String::new();
            loop {
                match chars.next().ok_or_else(wrong)? {
                    '"' => break,
                    '\\' => value.push(match chars.next() {
                        Some('n') => '\n',
                        Some(c @ ('"' | '\\')) => c,
                        _ => return Err(wrong()),
                    }),
                    '\n' => return Err(wrong()),
                    c => value.push(c),
                }
            }
            if labels.insert(label, value).is_some() {
                return Err(wrong());
            }
            match chars.next() {
                Some(',') => {}
                Some('}') => break,
                _ => return Err(wrong()),
            }
        }
        rest = chars.as_str();
    }
    let value = rest.strip_prefix(' ').filter(|value| !value.contains(' ')).ok_or_else(wrong)?;
    let value = value.parse().map_err(|_| wrong())?;
    Ok((name.to_owned(), labels, value))
}

fn samples() -> Vec<Sample> {
    let now = Instant(1_000_000_000);
    let (mut latency, mut totals) = (Summary::default(), Totals::default());
    for micros in [400, 500, 600, 1_500] {
        latency.add_time(Duration::from_micros(micros), now);
    }
    totals.add(70);
    totals.add(80);
    let prefix = |key: &str| SampleKey::Prefix(key.to_owned());
    let suffix = |key: &str| SampleKey::Suffix(key.to_owned());
    vec![
        Sample::text("version", "3.9.4"),
        Sample::gauge("znode_count", 5),
        Sample::float("avg_latency", 0.25),
        Sample::counter("proposal_count", 7),
        Sample::times("readlatency", Detail::Advanced, &latency, now),
        Sample::times("fsynctime", Detail::Basic, &Summary::default(), now),
        Sample::totals("read_per_namespace", &totals).with_key(prefix("a\"b\\c\nd")),
        Sample::totals("read_per_namespace", &totals).with_key(prefix("ä")),
        Sample::gauge("learner_lag_txns", 1).with_key(suffix("2")),
        Sample::gauge("learner_lag_ms", -1).with_key(suffix("2")),
        Sample::gauge("learner_lag_txns", 2).with_key(suffix("3")),
        Sample::gauge("learner_lag_ms", 30).with_key(suffix("3")),
    ]
}

/// METRIC-02, METRIC-03.
#[test]
fn page_has_the_format_of_prometheus() {
    let page = text(&samples());
    let families = parse(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
    let keyed = |key: &str| BTreeMap::from([("key".to_owned(), key.to_owned())]);
    assert!(!families.contains_key("version"));
    let (kind, lines) = &families["read_per_namespace"];
    assert_eq!(kind, "summary");
    let name = |end: &str| format!("read_per_namespace{end}");
    let expected = ["a\"b\\c\nd", "ä"]
        .into_iter()
        .flat_map(|key| [(name("_count"), (keyed(key), 2.0)), (name("_sum"), (keyed(key), 150.0))]);
    assert_eq!(*lines, expected.collect::<Vec<_>>());
    insta::assert_snapshot!(page, @r##"
    # HELP znode_count znode_count
    # TYPE znode_count gauge
    znode_count 5
    # HELP avg_latency avg_latency
    # TYPE avg_latency gauge
    avg_latency 0.25
    # HELP proposal_count proposal_count
    # TYPE proposal_count counter
    proposal_count 7
    # HELP readlatency readlatency
    # TYPE readlatency summary
    readlatency{quantile="0.5"} 0.503
    readlatency{quantile="0.9"} 1.5
    readlatency{quantile="0.95"} 1.5
    readlatency{quantile="0.99"} 1.5
    readlatency{quantile="0.999"} 1.5
    readlatency_count 4
    readlatency_sum 3
    # HELP fsynctime fsynctime
    # TYPE fsynctime summary
    fsynctime{quantile="0.5"} NaN
    fsynctime_count 0
    fsynctime_sum 0
    # HELP read_per_namespace read_per_namespace
    # TYPE read_per_namespace summary
    read_per_namespace_count{key="a\"b\\c\nd"} 2
    read_per_namespace_sum{key="a\"b\\c\nd"} 150
    read_per_namespace_count{key="ä"} 2
    read_per_namespace_sum{key="ä"} 150
    # HELP learner_lag_txns learner_lag_txns
    # TYPE learner_lag_txns gauge
    learner_lag_txns{key="2"} 1
    learner_lag_txns{key="3"} 2
    # HELP learner_lag_ms learner_lag_ms
    # TYPE learner_lag_ms gauge
    learner_lag_ms{key="2"} -1
    learner_lag_ms{key="3"} 30
    "##);
}

#[test]
fn parser_refuses_what_is_against_the_format() {
    for page in [
        "# HELP a a\n# TYPE a gauge\na 1",
        "a 1\n",
        "# TYPE a gauge\nb 1\n",
        "# TYPE a gauge\na 1\na 1\n",
        "# TYPE a gauge\na 1\n# TYPE a gauge\na{key=\"1\"} 1\n",
        "# TYPE a gauge\na{key=\"1} 1\n",
        "# TYPE a gauge\na{key=\"\\x\"} 1\n",
        "# TYPE a gauge\na one\n",
        "# TYPE a gauge\na{quantile=\"0.5\"} 1\n",
        "# TYPE a summary\na 1\n",
        "# TYPE a histogram\na 1\n",
    ] {
        assert!(parse(page).is_err(), "{page}");
    }
}
