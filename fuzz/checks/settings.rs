//! Settings of a standalone server and of its driver, chosen by an input, with small limits so that
//! they are reached.

use std::time::Duration;

use zabkeeper_core::driver::{ClientLimits, TurnLimits};
use zabkeeper_core::{AuthOptions, Config, ServerId, TreeOptions, Voters};

use super::source::Source;

/// The digest of `super:s`, in the form of the configuration.
const SUPER: &str = "super:BDYfsKZtexvW+zRgsJ2N0pMNlLY=";

/// Settings of the core, of its driver for clients, and of the driver's turns.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) clients: ClientLimits,
    pub(crate) turn: TurnLimits,
}

/// Any settings.
pub(crate) fn any(source: &mut Source<'_>) -> Settings {
    let mut settings = modelled(source);
    let Settings { config, clients, .. } = &mut settings;
    let choice = source.byte();
    if choice & 3 == 3 {
        config.auth.required_schemes = vec!["digest".to_owned()];
    }
    config.auth.x509 = choice & 4 != 0;
    config.auth.ensemble = choice & 8 != 0;
    config.sessions.local = choice & 16 != 0;
    config.sessions.upgrade = choice & 32 != 0;
    if choice & 64 != 0 {
        clients.connections = Some(3);
        clients.max_frame = 300;
    }
    if choice & 128 != 0 {
        clients.throttle_max_requests = Some(3);
        clients.op_wait_max = Some(Duration::from_secs(1));
    }
    settings
}

/// Settings that the reference model supports.
pub(crate) fn modelled(source: &mut Source<'_>) -> Settings {
    let id = ServerId(1);
    let tick = Duration::from_secs(2);
    let choice = source.byte();
    let tree = TreeOptions {
        extended_types: choice & 1 != 0,
        enforce_quota: choice & 2 != 0,
        container_check_ms: 1000,
        container_max_per_minute: 600,
        container_never_used_ms: if choice & 4 != 0 { 5000 } else { 0 },
    };
    let config = Config::new(id, Voters::new([id]), tick).expect("a tick, and a voter");
    let mut config = config.with_tree(tree).expect("a low id, and a pace");
    config.auth = AuthOptions {
        super_digest: (choice & 8 != 0).then(|| SUPER.to_owned()),
        skip_acl: choice & 0x30 == 0x30,
        ..AuthOptions::default()
    };
    let (mut clients, mut turn) = (ClientLimits::default(), TurnLimits::default());
    if choice & 0x40 != 0 {
        (clients.output_bytes, clients.event_bytes) = (200, 400);
    }
    if choice & 0x80 != 0 {
        turn = TurnLimits { inputs: 3, units: 30 };
    }
    let choice = source.byte();
    if choice & 1 != 0 {
        config.limits.snapshot_txns = 2 + u32::from(choice >> 4);
        config.limits.snapshot_slice_bytes = 64;
        config.limits.snapshots_kept = 1;
    }
    if choice & 2 != 0 {
        config.limits.requests_per_conn = 3;
    }
    if choice & 4 != 0 {
        config.limits.undurable_bytes = 300;
    }
    if choice & 8 != 0 {
        config.limits.epoch_txns = 8;
    }
    if choice & 0x20 != 0 {
        config.limits.step_units = 20;
    }
    if choice & 0x10 != 0 {
        clients.outstanding = 2;
    }
    Settings { config, clients, turn }
}
