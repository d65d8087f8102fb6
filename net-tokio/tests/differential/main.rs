//! Sends the same random operations, over raw frames, to Apache ZooKeeper and to Zabkeeper, and
//! reports every difference.
//!
//! Without arguments it tests itself. `.ci/differential` starts both servers and runs
//!
//! ```text
//! differential --real HOST:PORT --ours HOST:PORT [--ops 100000] [--seed S]
//!       [--only GROUP,..] [--without GROUP,..] [--differences 1] [--episode 400] [--trace 1]
//! ```
//!
//! `--record HOST:PORT FILE` records the answers of a newly started ZooKeeper to the plays of
//! `edges`; without arguments, and without Java, our server has to give the same answers.
//!
//! The operations come in episodes: each has its own subtree, sessions and seed. A difference ends
//! its episode, which is then shrunk. Requests and answers are encoded and decoded by this
//! program's own codec, never by the server's.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program of its own, with clocks and a terminal"
)]

mod answer;
mod edges;
mod generate;
mod golden;
mod jute;
mod known;
mod play;
mod request;
mod self_test;
mod side;

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use crate::generate::{GROUPS, Generator, Group, Rng, SUPER};
use crate::play::Players;

struct Asked {
    real: SocketAddr,
    ours: SocketAddr,
    ops: u64,
    seed: u64,
    groups: Vec<Group>,
    /// Stops after this number of different differences.
    differences: usize,
    episode: usize,
    /// Print all steps and answers.
    trace: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [option, real, path] = &*args
        && option == "--record"
    {
        golden::record(real, path);
        return ExitCode::SUCCESS;
    }
    // The test runner passes filters and options of its own, which this program ignores.
    if !args.iter().any(|arg| arg == "--real") {
        self_test::run();
        golden::replay();
        return ExitCode::SUCCESS;
    }
    match parse(&args) {
        Ok(asked) => compare(&asked),
        Err(error) => {
            println!("{error}");
            ExitCode::from(2)
        }
    }
}

fn parse(args: &[String]) -> Result<Asked, String> {
    let mut values = std::collections::BTreeMap::new();
    for pair in args.chunks(2) {
        let [key, value] = pair else { return Err(format!("{} has no value", pair[0])) };
        values.insert(key.as_str(), value.as_str());
    }
    let mut number = |key: &str, default: u64| match values.remove(key) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("{key} {text}: no number")),
    };
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let (ops, seed) = (number("--ops", 100_000)?, number("--seed", now)?);
    let (differences, episode) = (number("--differences", 1)?, number("--episode", 400)?);
    let trace = number("--trace", 0)? != 0;
    let mut server = |key: &str| {
        let text = values.remove(key).ok_or_else(|| format!("{key} HOST:PORT is missing"))?;
        let mut addresses =
            text.to_socket_addrs().map_err(|error| format!("{key} {text}: {error}"))?;
        addresses.next().ok_or_else(|| format!("{key} {text}: no address"))
    };
    let (real, ours) = (server("--real")?, server("--ours")?);
    let mut groups = |key: &str| {
        let Some(text) = values.remove(key) else { return Ok(None) };
        let find = |name: &str| {
            let known = GROUPS.iter().find(|known| known.1 == name).map(|known| known.0);
            let all = || GROUPS.iter().map(|known| known.1).collect::<Vec<_>>().join(" ");
            known
                .ok_or_else(|| format!("{key} {name}: there is no such group; there are {}", all()))
        };
        text.split(',').map(find).collect::<Result<Vec<_>, _>>().map(Some)
    };
    let only = groups("--only")?.unwrap_or_else(|| GROUPS.iter().map(|known| known.0).collect());
    let without = groups("--without")?.unwrap_or_default();
    let groups = only.into_iter().filter(|group| !without.contains(group)).collect();
    if let Some(key) = values.keys().next() {
        return Err(format!("{key}: unknown"));
    }
    let differences = usize::try_from(differences).map_err(|_| "--differences is too large")?;
    let episode = usize::try_from(episode).map_err(|_| "--episode is too large")?;
    Ok(Asked { real, ours, ops, seed, groups, differences, episode, trace })
}

fn compare(asked: &Asked) -> ExitCode {
    println!("seed {}", asked.seed);
    let started = Instant::now();
    let servers = [("real", asked.real), ("ours", asked.ours)];
    let mut players = Players::new(&servers, SUPER.as_bytes());
    players.script = asked.trace.then(String::new);
    players.sizes = !asked.groups.contains(&Group::Quota);
    let mut seeds = Rng::new(asked.seed);
    let mut done = 0;
    let mut found: Vec<(String, u64)> = Vec::new();
    while done < asked.ops && found.len() < asked.differences {
        // The first episode uses the seed itself, so that a single episode can be repeated.
        let seed = if done == 0 { asked.seed } else { seeds.next() };
        let steps = Generator::new(seed, &asked.groups).episode(asked.episode);
        if let Err(error) = players.begin() {
            println!("{error}");
            return ExitCode::from(2);
        }
        let outcome = players.play(&steps);
        if let Some(script) = &mut players.script {
            print!("{}", std::mem::take(script));
        }
        match outcome {
            Ok(requests) => done += requests,
            Err(difference) => {
                done += difference.at as u64 + 1;
                let signature = difference.signature();
                if let Some(known) = found.iter_mut().find(|known| known.0 == signature) {
                    known.1 += 1;
                    continue;
                }
                println!(
                    "\nDIFFERENCE {} in step {} of the episode with seed {seed}",
                    found.len() + 1,
                    difference.at
                );
                for step in &steps[difference.at.saturating_sub(30)..difference.at] {
                    println!("    {step}");
                }
                println!("{}", difference.report(["real", "ours"]));
                let (shorter, difference) = players.shrink(steps, &difference);
                println!("as few steps as were found to show it:");
                for step in &shorter[..difference.at.min(shorter.len())] {
                    println!("    {step}");
                }
                println!("{}", difference.report(["real", "ours"]));
                found.push((signature, 1));
            }
        }
    }
    for (known, times) in known::DIFFERENCES.iter().zip(&players.known) {
        println!("known difference, seen {times} times: {} ({})", known.name, known.why);
    }
    for (signature, times) in &found {
        println!("seen {times} times: {signature}");
    }
    println!(
        "{done} operations compared in {:.0} s, {} differences",
        started.elapsed().as_secs_f64(),
        found.len()
    );
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
