//! A schedule as text, for people, diffs and the corpus.
//!
//! Owns the format: a first line with its version, `name value` lines, and one line per step, with
//! its effects as a comment. A comment begins with a `#`.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::str::FromStr;

use super::{Schedule, settings};
use crate::check::observe::ClientId;
use crate::clients::workload::Op;
use crate::engine::clock::{clock, parse_clock};
use crate::engine::decisions::{Act, Step};
use crate::engine::fork;
use crate::faults::catalog::{Fault, FaultPlan, Trigger};
use crate::faults::targets::{Rule, mark_called};

/// Version of the format. If draws change, older schedules still parse, but their runs differ: the
/// marks that they are meant to reach reveal that, and they are recorded anew.
pub const VERSION: u32 = 1;

const HEAD: &str = "zabkeeper schedule";
/// Column of comments, if there is room.
const COMMENT_AT: usize = 44;
/// Names that may occur in several lines.
const SEVERAL: [&str; 4] = ["reaches", "property", "rule", "absent"];
/// Maximum length of a step's comment, bytes.
const EFFECT_MAX: usize = 160;

impl Step {
    /// Kind and choices, without the time.
    fn what(&self) -> String {
        let mut text = match self.act {
            Act::Inject(fault) => fault.name().to_owned(),
            Act::Call(client, op) => format!("c{} {}", client.0, op.name()),
        };
        for choice in &self.choices {
            let _infallible = write!(text, " {choice}");
        }
        text
    }

    /// The step's line, without its comment.
    pub fn line(&self) -> String {
        format!("{} {}", clock(self.at), self.what())
    }

    fn parse(line: &str) -> Result<Step, String> {
        let mut words = line.split_whitespace();
        let (time, who) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let at = parse_clock(time).ok_or(format!("{time:?} is no time: 4.467360s, 12s"))?;
        let client = who.strip_prefix('c').and_then(|number| number.parse().ok());
        let act = match (fault_called(who), client) {
            (Ok(fault), _) if fault.trigger() == Trigger::Always => {
                return Err(format!("{fault} is a property, which has no time"));
            }
            (Ok(fault), _) => Act::Inject(fault),
            (Err(_), Some(client)) => {
                let name = words.next().unwrap_or("");
                let op = Op::ALL.into_iter().find(|op| op.name() == name);
                Act::Call(ClientId(client), op.ok_or(format!("{name:?} is nothing to ask for"))?)
            }
            (Err(why), None) => return Err(why),
        };
        Ok(Step { at, act, choices: choices(words)?, hit: true, effect: String::new() })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("{:<14} {}", clock(self.at), self.what());
        f.write_str(&with_comment(line, &self.effect))
    }
}

/// A line with a comment.
fn with_comment(line: String, effect: &str) -> String {
    if effect.is_empty() {
        return line;
    }
    let effect = effect.replace('\n', " ");
    let end = (0..=EFFECT_MAX.min(effect.len())).rev().find(|end| effect.is_char_boundary(*end));
    format!("{line:<COMMENT_AT$} # {}", &effect[..end.unwrap_or(0)])
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD} {VERSION}")?;
        let origin =
            [("violates", &self.violates), ("found", &self.found), ("mended", &self.mended)];
        for (name, value) in origin {
            if let Some(value) = value {
                writeln!(f, "{name} {value}")?;
            }
        }
        for mark in &self.reaches {
            writeln!(f, "reaches {mark:?}")?;
        }
        writeln!(f, "seed {:#x}", self.seed)?;
        writeln!(f, "keys {:#x}", self.keys)?;
        writeln!(f, "in_order {}", u8::from(self.in_order))?;
        if let Some(fault) = self.trips {
            writeln!(f, "trips {fault}")?;
        }
        let base = settings::plain();
        for name in settings::names() {
            let value = settings::value(&self.options, name);
            if let Some(value) = value.filter(|_| value != settings::value(&base, name)) {
                writeln!(f, "{name} {value}")?;
            }
        }
        for fault in self.options.faults.on() {
            writeln!(f, "property {fault}")?;
        }
        if !self.options.forks.is_empty() {
            writeln!(f, "fork {}", fork::path(&self.options.forks))?;
        }
        for rule in &self.options.rules {
            writeln!(f, "{}", rule_line(rule))?;
        }
        for client in &self.absent {
            writeln!(f, "absent {}", client.0)?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let mut lines = text.lines().zip(1..).filter_map(|(line, number)| {
            let line = without_comment(line).trim();
            (!line.is_empty()).then_some((line, number))
        });
        let head = lines.next().and_then(|(line, _)| line.strip_prefix(HEAD));
        let version = head.ok_or(format!("a schedule begins with {HEAD:?} and a version"))?.trim();
        if version != VERSION.to_string() {
            return Err(format!(
                "this program reads schedules of version {VERSION}, not {version}"
            ));
        }
        let mut options = settings::plain();
        options.faults = FaultPlan::none();
        let mut schedule = Schedule::of_run(0, &options, Vec::new());
        let mut seen = BTreeSet::new();
        for (line, number) in lines {
            let name = line.split_whitespace().next().unwrap_or("");
            let again = !is_step(line) && !SEVERAL.contains(&name) && !seen.insert(name);
            let taken = if again { Err(format!("{name} once more")) } else { schedule.take(line) };
            taken.map_err(|why| {
                let shown: String = line.chars().take(EFFECT_MAX).collect();
                format!("line {number}: {why}: {shown:?}")
            })?;
            if let [.., before, last] = &schedule.steps[..]
                && last.at < before.at
            {
                let (at, before) = (clock(last.at), clock(before.at));
                return Err(format!(
                    "line {number}: steps must be in order of time: {at} after {before}"
                ));
            }
        }
        for name in settings::names() {
            let value = settings::value(&schedule.options, name).unwrap_or_default();
            let bounds = settings::bounds(name);
            if !bounds.contains(&value) {
                let (least, most) = bounds.into_inner();
                return Err(format!("{name} {value}: it is from {least} to {most}"));
            }
        }
        schedule.check()?;
        Ok(schedule)
    }
}

impl Schedule {
    fn take(&mut self, line: &str) -> Result<(), String> {
        if is_step(line) {
            self.steps.push(Step::parse(line)?);
            return Ok(());
        }
        let (name, value) = line.split_once(char::is_whitespace).ok_or("a value is missing")?;
        let value = value.trim_start();
        match name {
            "violates" => self.violates = Some(value.to_owned()),
            "found" => self.found = Some(revision(value)?),
            "mended" => self.mended = Some(revision(value)?),
            "reaches" => {
                self.reaches.push(mark_called(value).ok_or("no mark is called that")?);
            }
            "seed" => self.seed = hex(value)?,
            "keys" => self.keys = hex(value)?,
            "in_order" => self.in_order = number::<u8>(value)? == 1,
            "fork" => self.options.forks = fork::parse_path(value)?,
            "rule" => self.options.rules.push(parse_rule(value)?),
            "absent" => {
                self.absent.insert(ClientId(number(value)?));
            }
            "trips" => self.trips = Some(fault_called(value)?),
            "property" => {
                let fault = fault_called(value)?;
                if fault.trigger() != Trigger::Always {
                    return Err(format!("{fault} is no property: it is injected at a time"));
                }
                self.options.faults.switch_on(fault, (1, 1));
            }
            name => {
                let number = number(value)?;
                if settings::holds_servers(name) && number & 1 != 0 {
                    return Err(format!(
                        "there is no server 0: server N is the bit 1 << N of {name}"
                    ));
                }
                let with = settings::with(&self.options, name, number);
                self.options = with.ok_or(format!("no setting is called {name:?}"))?;
            }
        }
        Ok(())
    }
}

/// Steps begin with a time, all other lines with a name.
fn is_step(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit())
}

/// The part before a `#` that begins a word; within a word, `#` numbers the hits of a mark.
fn without_comment(line: &str) -> &str {
    let begins = |at: usize| at == 0 || line[..at].ends_with(char::is_whitespace);
    let end = line.match_indices('#').find(|(at, _)| begins(*at));
    end.map_or(line, |(at, _)| &line[..at])
}

/// `rule PLACE FAULT CHOICES`.
fn rule_line(rule: &Rule) -> String {
    let mut line = format!("rule {} {}", rule.place(), rule.fault);
    for choice in rule.choices.iter().flatten() {
        let _infallible = write!(line, " {choice}");
    }
    with_comment(line, &rule.effect)
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let mut words = text.split_whitespace();
    let (place, fault) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let rule = Rule::parse(&format!("{place}={fault}"))?;
    Ok(Rule { choices: Some(choices(words)?), ..rule })
}

fn choices<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<u64>, String> {
    words.map(number).collect()
}

fn number<T: FromStr<Err: fmt::Display>>(word: &str) -> Result<T, String> {
    word.parse().map_err(|error| format!("{word:?}: {error}"))
}

fn fault_called(name: &str) -> Result<Fault, String> {
    let found = Fault::ALL.into_iter().find(|fault| fault.name() == name);
    found.ok_or_else(|| format!("{name:?} is no fault"))
}

/// A git commit hash, full or abbreviated.
fn revision(text: &str) -> Result<String, String> {
    let is_one = (7..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if is_one { Ok(text.to_owned()) } else { Err("a revision has 7 to 40 hex digits".to_owned()) }
}

fn hex(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").ok_or("a number that begins with 0x is missing")?;
    u64::from_str_radix(digits, 16).map_err(|error| format!("{text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::Instant;
    use zabkeeper_core::io::Mark;

    use super::*;
    use crate::engine::seed::Seeds;
    use crate::world::options::{Options, Pinned, Profile};

    #[test]
    fn schedule_text_round_trips() {
        let step = |at, act, choices| Step {
            at: Instant(at),
            act,
            choices,
            hit: true,
            effect: "s3 loses power # for good".into(),
        };
        for seed in 0..40 {
            let options = Options::draw(Seeds::new(seed), Profile::Swarm, &Pinned::default());
            let mut schedule = Schedule::of_run(seed, &options, Vec::new());
            schedule.violates = Some("CLIENT-12".into());
            schedule.found = Some("3c9b35f".into());
            schedule.mended = Some("a1f62b7".into());
            schedule.reaches = vec![Mark::SyncSnap, Mark::QuorumLost];
            schedule.trips = Some(Fault::NetStall);
            schedule.absent.insert(ClientId(4));
            schedule.options.forks = fork::parse_path("SyncSnap#3/7,1.500s/2").expect("valid");
            let rule = Rule::parse("SyncSnap#3@leading=net.split").expect("valid");
            let effect = "s1".to_owned();
            schedule.options.rules = vec![Rule { choices: Some(vec![1, 0, 7]), effect, ..rule }];
            schedule.steps = vec![
                step(0, Act::Call(ClientId(7), Op::SetData), vec![]),
                step(4_467_000_000, Act::Inject(Fault::NodePower), vec![2, 0, u64::MAX]),
                step(61_000_000_001, Act::Call(ClientId(0), Op::Multi), vec![0, 1]),
            ];
            let read: Schedule = schedule.to_string().parse().expect("it was written");
            assert_eq!(read.to_string().lines().count(), schedule.to_string().lines().count());
            for name in settings::names() {
                let of = |s: &Schedule| settings::value(&s.options, name);
                assert_eq!(of(&read), of(&schedule), "{name}");
            }
            assert_eq!(read.options.faults, schedule.options.faults);
            let rules = |s: &Schedule| -> Vec<(String, Option<Vec<u64>>)> {
                s.options.rules.iter().map(|r| (r.to_string(), r.choices.clone())).collect()
            };
            assert_eq!(rules(&read), rules(&schedule));
            assert_eq!(read.options.forks, schedule.options.forks);
            let plain =
                |s: &Schedule| (s.violates.clone(), s.seed, s.keys, s.absent.clone(), s.trips);
            assert_eq!(plain(&read), plain(&schedule));
            let bare = |s: &Step| (s.at, s.act, s.choices.clone());
            assert!(read.steps.iter().map(bare).eq(schedule.steps.iter().map(bare)));
        }
    }

    #[test]
    fn times_are_exact_and_short_and_round_trip() {
        let written = [0, 4_467_000_000, 12_345, 61_000_000_001].map(|ns| clock(Instant(ns)));
        assert_eq!(written, ["0.000s", "4.467s", "0.000012345s", "61.000000001s"]);
        assert!(written.iter().all(|text| clock(parse_clock(text).expect("read")) == *text));
        assert_eq!(parse_clock("1.0000000001s"), None);
    }

    #[test]
    fn schedule_errors_name_line_and_reason() {
        let read = |text: &str| text.parse::<Schedule>().expect_err("refused");
        assert!(read("schedule").contains("begins with"));
        assert!(read("zabkeeper schedule 99\n").contains("version 1, not 99"));
        let odd = |line: &str| read(&format!("zabkeeper schedule 1\n# comment\n{line}\n"));
        for (line, why) in [
            ("1.0s node.nothing", "\"node.nothing\" is no fault"),
            ("300ms node.kill", "\"300ms\" is no time: 4.467360s, 12s"),
            ("1.0s disk.torn", "disk.torn is a property, which has no time"),
            ("property node.kill", "node.kill is no property: it is injected at a time"),
            ("1s c1 setDatum", "\"setDatum\" is nothing to ask for"),
            ("1.0s c1 setData x", "\"x\": invalid digit found in string"),
            ("reaches Nothing", "no mark is called that"),
            ("seed 7", "a number that begins with 0x is missing"),
            ("found abc", "a revision has 7 to 40 hex digits"),
            ("colour 7", "no setting is called \"colour\""),
            ("tick_ms", "a value is missing"),
        ] {
            assert_eq!(odd(line), format!("line 3: {why}: {line:?}"));
        }
        assert!(odd("tick_ms 4\ntick_ms 5").starts_with("line 4: tick_ms once more: "));
        assert!(odd("2.0s node.kill\n1.0s node.kill").contains("line 4: steps must be in order"));
        assert!(odd("servers 9").contains("servers 9: it is from 1 to 7"));
        assert!(odd("tick_ms 0").contains("tick_ms 0: it is from 1 to "));
        assert_eq!(odd("heal.dead 16"), "heal.* names server 4, and the last one of the run is 3");
        assert_eq!(
            odd("heal.dead 6"),
            "heal.* leaves 2 of 3 servers out, and at most 1 leave a quorum"
        );
        assert_eq!(odd("heal.dead 2\nheal.hung 2"), "heal.* names server 1 more than once");
        assert!(
            odd("heal.hung 3")
                .contains("there is no server 0: server N is the bit 1 << N of heal.hung")
        );
        assert!(odd("local.servers 16").contains("local.servers names server 4"));
        let impatient = "servers give each other up after 6ms (tick_ms times the smaller of \
            init_ticks and sync_ticks), \
                         and messages and syncs take some 6.8ms until a leader serves: ";
        assert!(odd("tick_ms 3\nsync_ticks 2").starts_with(impatient));
        assert!(odd("disk.sync_ns 200000000").contains("some 1.2008s until a leader serves"));
        assert!(odd("peers.mean_ns 1000000000").contains("some 4.0068s until a leader serves"));
    }

    /// Servers with the minimum timeouts that a schedule may have elect a leader, also after it was
    /// killed.
    #[test]
    fn minimum_timeouts_suffice_to_elect_a_leader() {
        for (servers, tick_ms, init, sync) in
            [(1, 7, 1, 1), (3, 7, 1, 1), (5, 2, 4, 4), (7, 2, 10, 4)]
        {
            let text = format!(
                "zabkeeper schedule 1\nduration_us 3000000\nservers {servers}\ntick_ms {tick_ms}\n\
                 init_ticks {init}\nsync_ticks {sync}\n1.0s node.kill-leader 0 0 0 0 1 400\n\
                 1.5s c0 create 0 0 0 1\n"
            );
            let schedule: Schedule = text.parse().expect("is patient enough");
            let report =
                crate::run::job::replay(&schedule, crate::record::trace::TraceSink::Off, false);
            assert_eq!(report.outcome.failure, None, "{text}");
        }
    }
}
