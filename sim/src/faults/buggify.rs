//! Buggify: sites where a choice that is legal in production is forced to an unlikely value.
//!
//! Owns their names, and which of them are active in a run. Most are settings that
//! are drawn anyway; the others are active in a quarter of the runs, and some of those take effect
//! only now and then. Must not create conditions that a deployed server could not meet: each site
//! is a setting, or legal behaviour of host or network.

/// A site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "`sentence` is the documentation")]
pub enum Site {
    BatchInputs,
    BatchCommands,
    RequestsFew,
    UndurableSmall,
    SnapshotOften,
    SnapshotSlices,
    EpochShort,
    RecentSmall,
    BulkSmall,
    WindowSmall,
    SegmentSmall,
    SegmentTiny,
    SyncSnap,
    TimerSlack,
    WordsLate,
    ClientHops,
    LogSlow,
    SnapshotSlow,
    StepSmall,
    TurnSmall,
}

/// The sites that a user selects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// As drawn.
    #[default]
    Drawn,
    /// Only these sites.
    Only(Vec<Site>),
}

/// An active site with many opportunities in a run takes one in this many.
pub const FIRES_ONE_IN: u64 = 4;

impl Site {
    /// All sites, in order.
    pub const ALL: [Site; 20] = [
        Site::BatchInputs,
        Site::BatchCommands,
        Site::RequestsFew,
        Site::UndurableSmall,
        Site::SnapshotOften,
        Site::SnapshotSlices,
        Site::EpochShort,
        Site::RecentSmall,
        Site::BulkSmall,
        Site::WindowSmall,
        Site::SegmentSmall,
        Site::SegmentTiny,
        Site::SyncSnap,
        Site::TimerSlack,
        Site::WordsLate,
        Site::ClientHops,
        Site::LogSlow,
        Site::SnapshotSlow,
        Site::StepSmall,
        Site::TurnSmall,
    ];

    /// The name that the command line uses.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Its effect.
    pub fn sentence(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Site::BatchInputs => ("batch.inputs", "the driver takes one input at a time"),
            Site::BatchCommands => ("batch.commands", "every log record has a sync of its own"),
            Site::RequestsFew => ("requests.few", "a connection may have very few requests"),
            Site::UndurableSmall => {
                ("undurable.small", "clients wait when a few hundred bytes are not durable")
            }
            Site::SnapshotOften => ("snapshot.often", "a snapshot every one to five transactions"),
            Site::SnapshotSlices => ("snapshot.slices", "snapshots are written in tiny pieces"),
            Site::EpochShort => ("epoch.short", "an epoch has room for few transactions"),
            Site::RecentSmall => {
                ("recent.small", "the transactions that a learner lacks are rarely in memory")
            }
            Site::BulkSmall => ("bulk.small", "a learner catches up in tiny pieces"),
            Site::WindowSmall => ("window.small", "a link holds a kilobyte under way"),
            Site::SegmentSmall => ("segment.small", "a log segment holds 4 kilobytes"),
            Site::SegmentTiny => ("segment.tiny", "almost every batch begins a log segment"),
            Site::SyncSnap => ("sync.snap", "a learner is sent a snapshot where the log would do"),
            Site::TimerSlack => ("timer.slack", "a deadline in four comes late"),
            Site::WordsLate => {
                ("words.late", "one message in four that synchronizes a learner stalls its link")
            }
            Site::ClientHops => (
                "client.hops",
                "one client in four loses its connection after an answer to a handshake or \
                 setWatches, or after an event",
            ),
            Site::LogSlow => (
                "log.slow",
                "the log worker pauses after each batch, so that many proposals are not committed",
            ),
            Site::SnapshotSlow => (
                "snapshot.slow",
                "the snapshot worker pauses after each chunk, so that many nodes change meanwhile",
            ),
            Site::StepSmall => {
                ("step.small", "a step applies and answers little, and leaves the rest")
            }
            Site::TurnSmall => ("turn.small", "the driver's turn ends after little work"),
        }
    }

    /// Whether its setting has a draw of its own.
    pub(crate) fn is_drawn(self) -> bool {
        !matches!(
            self,
            Site::SegmentTiny
                | Site::SyncSnap
                | Site::TimerSlack
                | Site::WordsLate
                | Site::ClientHops
                | Site::LogSlow
                | Site::SnapshotSlow
                | Site::StepSmall
                | Site::TurnSmall
        )
    }
}

impl Choice {
    /// Parses `off` or `only=a,b`, where a name may be a group (`batch`).
    ///
    /// # Errors
    /// Names what matches no site.
    pub fn parse(text: &str) -> Result<Choice, String> {
        if text.is_empty() {
            return Ok(Choice::Drawn);
        }
        if text == "off" {
            return Ok(Choice::Only(Vec::new()));
        }
        let names = text.strip_prefix("only=").ok_or("it is none of off, list, only=NAMES")?;
        let mut sites = Vec::new();
        for name in names.split(',') {
            let begins = |site: &Site| {
                site.name().strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            };
            let found = Site::ALL.into_iter().filter(|site| site.name() == name || begins(site));
            let before = sites.len();
            sites.extend(found);
            if sites.len() == before {
                return Err(format!("no site is called {name:?}; `--buggify list` shows all"));
            }
        }
        Ok(Choice::Only(sites))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::seed::Seeds;
    use crate::replay::schedule::{setting, setting_names};
    use crate::world::options::{Options, Pinned, Profile};

    fn drawn(seed: u64, choice: &str) -> Options {
        let buggify = Choice::parse(choice).expect("valid");
        let pinned = Pinned { buggify, ..Pinned::default() };
        Options::draw(Seeds::new(seed), Profile::Swarm, &pinned)
    }

    #[test]
    fn sites_have_unique_names_and_change_one_setting_each() {
        for site in Site::ALL {
            let only = |name: &str| Choice::parse(&format!("only={name}"));
            assert_eq!(only(site.name()), Ok(Choice::Only(vec![site])));
            let (off, on) = (drawn(7, "off"), drawn(7, &format!("only={}", site.name())));
            let differs = |name: &&str| setting(&off, name) != setting(&on, name);
            assert_eq!(setting_names().iter().filter(|name| differs(name)).count(), 1, "{site:?}");
        }
        assert_eq!(
            Choice::parse("only=batch"),
            Ok(Choice::Only(vec![Site::BatchInputs, Site::BatchCommands]))
        );
        assert!(Choice::parse("only=bat").is_err() && Choice::parse("batch").is_err());
    }

    fn shows_snapshots(options: &Options) -> bool {
        options.server.limits.prefer_snapshots
    }

    fn has_slow_log(options: &Options) -> bool {
        options.server.log_pause_us > 0
    }

    #[test]
    fn undrawn_sites_are_active_in_a_quarter_of_the_runs() {
        let count = |is: fn(&Options) -> bool| (0..400).filter(|s| is(&drawn(*s, ""))).count();
        let local = count(|options| !options.local.servers.is_empty());
        let rarely = count(|options| shows_snapshots(options) && options.local.servers.is_empty());
        let often = count(|options| shows_snapshots(options) && !options.local.servers.is_empty());
        assert!((local * 2 / 5..local * 3 / 5).contains(&often), "{often} of {local}");
        let rest = 400 - local;
        assert!((rest / 6..rest / 3).contains(&rarely), "{rarely} of {rest}");
        for runs in [
            count(|options| options.server.timer_slack_us > 0),
            count(|options| options.peers.words_late_ms > 0),
            count(|options| options.workload.hops),
            count(|options| options.server.snapshot_pause_us > 0),
        ] {
            assert!((70..130).contains(&runs), "{runs}");
        }
        assert!(count(|options| options.server.segment_bytes == 64) > 10);
        assert!(count(has_slow_log) > 40);
        assert_eq!(count(|o| has_slow_log(o) && o.server.batch_commands < usize::MAX), 0);
    }
}
