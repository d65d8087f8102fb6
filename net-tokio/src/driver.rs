//! The driver as the settings demand it.
//!
//! Owns the translation of settings into the driver's options. Must not act on the driver.

use std::sync::Arc;

use zabkeeper_core::Instant;
use zabkeeper_core::driver::{Driver, PeerOptions, TurnLimits};

use crate::config::{Ensemble, Settings};
use crate::facts;

/// A driver without connections; `ensemble` is the core's ensemble id.
pub(crate) fn new(settings: &Settings, ensemble: u64, seed: u64, now: Instant) -> Driver {
    let config = Arc::new(settings.core.clone());
    let limits = settings.limits.clone();
    let turn = TurnLimits::default();
    let peers = peer_options(settings, ensemble);
    Driver::new(config, limits, peers, turn, seed, now)
        .with_four_letter(facts::options(settings))
        .with_members(settings.ensemble.as_ref().map(Ensemble::addresses).unwrap_or_default())
}

/// The driver's options for the ensemble.
fn peer_options(settings: &Settings, ensemble_id: u64) -> PeerOptions {
    let mut options = PeerOptions::new(settings.limits.max_frame);
    options.ensemble = ensemble_id;
    if let Some(ensemble) = &settings.ensemble {
        options.connect_timeout = ensemble.connect_timeout;
        options.secrets = ensemble.secrets.clone();
        options.demands_secret = ensemble.demands_secret;
    }
    options
}
