//! The HTML page and the text reports of a run.

use serde_json::Value;
use sim::check::checker::{Class, Failure};
use sim::record::html;
use sim::record::summary;
use sim::record::trace::{TraceSink, View};
use sim::run::job::Report;
use sim::world::options::Profile;
use zabkeeper_core::{Instant, ServerId};

use crate::{job, run};

/// A run of eight seconds with faults.
fn collected(seed: u64) -> Report {
    job(seed, Profile::Default, "", 8).run(TraceSink::Collect, false)
}

fn page_of(report: &Report) -> String {
    let timeline = report.outcome.timeline.as_deref().expect("asked for");
    html::page(report, timeline, ("seed 0x1", "REPRO: the command"))
}

fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("the data");
    let (data, _) = rest.split_once("</script>").expect("their end");
    serde_json::from_str(data).expect("JSON")
}

fn length(data: &Value, name: &str) -> usize {
    data[name]["t"].as_array().map_or(0, Vec::len)
}

#[test]
fn page_is_self_contained_and_complete() {
    let report = collected(1);
    let page = page_of(&report);
    assert!(!page.contains("http"), "it refers to something elsewhere");
    assert!(!page.contains("/*DATA*/") && !page.contains("/*SCRIPT*/"), "a part is missing");
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    let data = data_of(&page);
    assert_eq!(data["servers"], serde_json::json!([1, 2, 3, 4, 5]));
    let [messages, calls] = ["messages", "calls"].map(|name| length(&data, name));
    assert!(messages > 1_000 && calls > 100, "{messages} messages, {calls} calls");
    let taken = data["messages"]["took"].as_array().expect("a column");
    let lost = taken.iter().filter(|took| took.as_i64() == Some(-1)).count();
    assert!(lost * 2 < messages, "{lost} of {messages} were never taken");
    for column in ["took", "from", "to", "kind", "number"] {
        let rows = data["messages"][column].as_array().map(Vec::len);
        assert_eq!(rows, Some(messages), "{column}");
    }
    let injected: u64 = report.outcome.injections.list().len() as u64;
    assert_eq!(data["injections"].as_array().map(|rows| rows.len() as u64), Some(injected));
    assert!(injected > 5, "{injected} faults");
    assert_eq!(data["failure"], Value::Null);
}

/// A run with an artificial failure.
fn failed() -> Report {
    let mut report = collected(1);
    let timeline = report.outcome.timeline.as_deref().expect("asked for");
    let state = timeline.states[&ServerId(1)].last().expect("it was up");
    report.outcome.failure = Some(Failure {
        class: Class::Safety,
        id: "Z1",
        sentence: "this </script> is only a test",
        evidence: vec![format!("server 1 has {}, and s2 has not", state.marks[3])],
        at: report.outcome.ended,
        event: report.outcome.events,
    });
    report
}

#[test]
fn page_shows_the_failure_with_its_text_escaped() {
    let report = failed();
    let data = data_of(&page_of(&report));
    assert_eq!(data["failure"]["id"], "Z1");
    assert_eq!(data["failure"]["sentence"], "this </script> is only a test");
    assert_eq!(data["failure"]["servers"], serde_json::json!([1, 2]));
    assert_eq!(data["failure"]["at"].as_u64(), Some(report.outcome.ended.0 / 1_000));
}

#[test]
fn explanation_has_server_positions_faults_and_last_events() {
    let report = failed();
    let failure = report.outcome.failure.as_ref().expect("made above");
    let timeline = report.outcome.timeline.as_deref().expect("asked for");
    let text = summary::explain(failure, &report, timeline);
    for part in
        ["Z1", "promised", "seen", "when", "how far servers got", "the last events at s1, s2"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(text.lines().count() < 45, "{text}");
    let row = text.lines().find(|line| line.starts_with("  s1")).expect("a row");
    assert!(!row.trim_end().ends_with(" -"), "s1 has applied it: {row}");
}

#[test]
fn report_fits_a_screen_and_lists_leaderships() {
    for seed in [1, 2] {
        let report = run(&job(seed, Profile::Default, "", 60));
        let screen = summary::screen(&report);
        assert!(screen.lines().count() <= 42, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= 120), "{screen}");
        assert!(screen.contains("led       epoch 1 "), "{screen}");
    }
}

#[test]
fn collecting_events_does_not_change_the_run() {
    let view = View { from: Instant(u64::MAX), nodes: 0 };
    for seed in 1..4 {
        let job = job(seed, Profile::Default, "", 8);
        let hashes = [TraceSink::Off, TraceSink::Collect, TraceSink::States(view)]
            .map(|sink| job.run(sink, false).outcome.hash);
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "seed {seed}: {hashes:x?}");
    }
}
