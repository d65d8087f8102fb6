//! Keys for authentication, node types and local sessions, and read-only mode (CONF-12, 35,
//! 36, 47, 53, 54, 55).
//!
//! Owns these keys. Must not define defaults, except those of a few switches: the core does.

use zabkeeper_core::{AuthOptions, Config, DigestAlg, SessionOptions, TreeOptions};

use super::properties::{BadSetting, Properties};
use super::{TRUE_FALSE, fit};

/// Sets the options of container and TTL nodes and of quotas.
pub(super) fn with_tree(keys: &mut Properties, core: Config) -> Result<Config, BadSetting> {
    let given = keys.entry("extendedTypesEnabled").cloned();
    match (core.with_tree(tree(keys)?), given) {
        (Ok(core), _) => Ok(core),
        // DATA-21: with all numbers in range, extended types are the only possible error.
        (Err(error), Some(entry)) => Err(keys.refuse(&entry, &error.what)),
        (Err(error), None) => Err(BadSetting::new(error.to_string())),
    }
}

fn tree(keys: &mut Properties) -> Result<TreeOptions, BadSetting> {
    let mut tree = TreeOptions::default();
    tree.extended_types =
        keys.switch("extendedTypesEnabled", TRUE_FALSE)?.unwrap_or(tree.extended_types);
    tree.enforce_quota = keys.switch("enforceQuota", TRUE_FALSE)?.unwrap_or(tree.enforce_quota);
    let ms = "milliseconds, such as 60000";
    let most = i64::from(i32::MAX);
    tree.container_check_ms = keys
        .number("znode.container.checkIntervalMs", 1..=most, ms)?
        .map_or(tree.container_check_ms, fit);
    tree.container_max_per_minute = keys
        .number("znode.container.maxPerMinute", 1..=most, "a number of nodes, such as 10000")?
        .map_or(tree.container_max_per_minute, fit);
    tree.container_never_used_ms = keys
        .number(
            "znode.container.maxNeverUsedIntervalMs",
            0..=i64::MAX,
            "milliseconds, or 0 for never",
        )?
        .map_or(tree.container_never_used_ms, fit);
    Ok(tree)
}

/// Reads the authentication options.
pub(super) fn auth(keys: &mut Properties) -> Result<AuthOptions, BadSetting> {
    let super_digest = keys.entry("DigestAuthenticationProvider.superDigest").cloned();
    let hint = "user:digest, as DigestAuthenticationProvider of ZooKeeper prints it";
    let digest = keys.text("DigestAuthenticationProvider.superDigest", hint)?;
    if let Some(entry) = super_digest.filter(|entry| !entry.value.contains(':')) {
        return Err(keys.refuse(&entry, &format!("use {hint}")));
    }
    let enabled = keys.switch("DigestAuthenticationProvider.enabled", TRUE_FALSE)?;
    let subject = "the subject of a certificate";
    let mut auth = AuthOptions {
        super_digest: digest,
        digest_disabled: enabled == Some(false),
        digest_alg: digest_alg(keys)?,
        x509_super_user: keys.text("X509AuthenticationProvider.superUser", subject)?,
        // As in ZooKeeper, `secureClientPort` enables the x509 scheme in ACLs.
        x509: keys.entry("secureClientPort").is_some(),
        ensemble_names: keys.list("ensembleAuthName").map_or_else(Vec::new, |(_, names)| names),
        skip_acl: keys.switch("skipACL", ["yes", "no"])?.unwrap_or(false),
        ..AuthOptions::default()
    };
    offer(keys, &mut auth);
    auth.required_schemes = required_schemes(keys, &auth)?;
    Ok(auth)
}

/// Enables the schemes whose ZooKeeper class an `authProvider.N` key names.
fn offer(keys: &mut Properties, auth: &mut AuthOptions) {
    for entry in keys.take_prefixed("authProvider.") {
        match entry.value.rsplit('.').next() {
            Some("EnsembleAuthenticationProvider") => auth.ensemble = true,
            Some("KeyAuthenticationProvider") => auth.key = true,
            Some("X509AuthenticationProvider") => auth.x509 = true,
            // These schemes are always available.
            Some("DigestAuthenticationProvider" | "IPAuthenticationProvider") => {}
            Some("SASLAuthenticationProvider") => {
                keys.warn_without_effect(
                    &entry,
                    "has no effect yet: SASL comes with a later version",
                );
            }
            Some(_) | None => {
                keys.warn_without_effect(&entry, "has no effect: a class of Java cannot be loaded")
            }
        }
    }
}

fn digest_alg(keys: &mut Properties) -> Result<DigestAlg, BadSetting> {
    let Some(entry) = keys.take("DigestAuthenticationProvider.digestAlg") else {
        return Ok(DigestAlg::default());
    };
    // Java accepts `SHA-1` with and without its hyphen, in any case.
    match entry.value.to_ascii_uppercase().replace('-', "").as_str() {
        "SHA1" | "SHA" => Ok(DigestAlg::Sha1),
        "SHA256" => Ok(DigestAlg::Sha256),
        "SHA512" => Ok(DigestAlg::Sha512),
        "MD5" => Ok(DigestAlg::Md5),
        _ => Err(keys.refuse(&entry, "use SHA1, SHA-256, SHA-512 or MD5")),
    }
}

/// Reads the schemes of which clients must use one. As in ZooKeeper, an unavailable scheme is an
/// error, and `enforce.auth.schemes` has no effect without `enforce.auth.enabled`.
fn required_schemes(keys: &mut Properties, auth: &AuthOptions) -> Result<Vec<String>, BadSetting> {
    let switch = keys.entry("enforce.auth.enabled").cloned();
    let enabled = keys.switch("enforce.auth.enabled", TRUE_FALSE)?.unwrap_or(false);
    let schemes = keys.list("enforce.auth.schemes");
    let Some(switch) = switch.filter(|_| enabled) else {
        return Ok(Vec::new());
    };
    let Some((entry, schemes)) = schemes.filter(|(_, schemes)| !schemes.is_empty()) else {
        return Err(keys.refuse(&switch, "say which: add enforce.auth.schemes=digest"));
    };
    let offered = [
        ("digest", !auth.digest_disabled),
        ("ensemble", auth.ensemble),
        ("ip", true),
        ("key", auth.key),
    ];
    let offered = offered.into_iter().filter(|(_, is)| *is).map(|(scheme, _)| scheme);
    let offered: Vec<&str> = offered.collect();
    if let Some(scheme) = schemes.iter().find(|scheme| !offered.contains(&scheme.as_str())) {
        let what = format!("there is no scheme {scheme} here; use {}", offered.join(", "));
        return Err(keys.refuse(&entry, &what));
    }
    Ok(schemes)
}

/// Reads the options of local sessions. As in ZooKeeper, a standalone server has no local sessions.
pub(super) fn sessions(
    keys: &mut Properties,
    in_ensemble: bool,
) -> Result<SessionOptions, BadSetting> {
    let entry = keys.entry("localSessionsEnabled").cloned();
    let local = keys.switch("localSessionsEnabled", TRUE_FALSE)?.unwrap_or(false);
    let upgrade = keys.switch("localSessionsUpgradingEnabled", TRUE_FALSE)?.unwrap_or(false);
    if let Some(entry) = entry.filter(|_| local && !in_ensemble) {
        keys.warn_without_effect(
            &entry,
            "has no effect: all sessions of a server on its own are global",
        );
        return Ok(SessionOptions::default());
    }
    Ok(SessionOptions { local, upgrade })
}

/// Reads whether the server serves read-only clients while it finds no leader (CONF-53).
pub(super) fn read_only_mode(
    keys: &mut Properties,
    in_ensemble: bool,
    sessions: SessionOptions,
) -> Result<bool, BadSetting> {
    const KEY: &str = "readonlymode.enabled";
    let entry = keys.entry(KEY).cloned();
    let is_on = keys.switch(KEY, TRUE_FALSE)?.unwrap_or(false);
    if let Some(entry) = entry.filter(|_| is_on) {
        if !in_ensemble {
            keys.warn_without_effect(&entry, "has no effect on a server on its own");
        } else if !sessions.local {
            let what = "serves nobody: sessions of a read-only server are local; add \
                        localSessionsEnabled=true";
            keys.warn(&entry, what);
        }
    }
    Ok(is_on)
}
