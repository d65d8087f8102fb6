//! The members of an ensemble: `server.N` lines and the keys that apply to an ensemble only.
//!
//! Owns which of them are refused; `groups` owns `group.N` and `weight.N`, and the core the grammar
//! of a server line. Must not resolve names nor open sockets.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use zabkeeper_core::driver::MemberAddresses;
use zabkeeper_core::peer::secret::Secrets;
use zabkeeper_core::{EnsembleConfig, Member, Members, ServerId, Voters, Zxid};

use super::properties::{BadSetting, Entry, Place, Properties};
use super::{fit, groups};

/// The servers of the ensemble, and how this server connects to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ensemble {
    /// All members, this server included, sorted by id.
    pub(crate) members: Vec<Member>,
    /// All members, and which of them are a quorum: `group.N` and `weight.N`.
    pub(crate) voters: Voters,
    /// `quorumListenOnAllIPs`: listen on every address instead of the host of this server's line.
    pub(crate) listen_everywhere: bool,
    /// `cnxTimeout`: time for one attempt to connect to one address.
    pub(crate) connect_timeout: Duration,
    /// `quorum.secretFile`: the file with the ensemble's shared secret, with which servers
    /// authenticate each other.
    pub(crate) secret_file: Option<SecretFile>,
    /// `quorum.secretRequired`: are servers without the secret refused?
    pub(crate) demands_secret: bool,
    /// `oraclePath`: the file that says whether this server may go on without the other voter.
    pub(crate) oracle: Option<PathBuf>,
    /// The secrets in the file; none until it is read.
    pub(crate) secrets: Secrets,
    /// `electionPortBindRetry`: number of retries, one second apart, when an address cannot be
    /// bound; `None` means no limit.
    pub(crate) bind_retries: Option<u32>,
    /// `observerMasterPort`: where participants accept observers while they follow a leader.
    pub(crate) observer_port: Option<u16>,
}

/// The file with the secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SecretFile {
    pub(crate) path: PathBuf,
    /// The entry of `quorum.secretFile`, for errors.
    entry: Entry,
}

/// Default of `cnxTimeout`. ZooKeeper's is 5 s; TCP retransmits a lost SYN after 1 s, so 2 s
/// suffice.
const CONNECT_TIME_MS: i64 = 2_000;

/// Default of `electionPortBindRetry`, as in ZooKeeper.
const BIND_RETRIES: u32 = 3;

/// Parses one `server.N` line.
fn read_member(keys: &Properties, entry: &Entry) -> Result<Member, BadSetting> {
    let refuse = |what: &str| keys.refuse(entry, what);
    let id = Member::parse_id(&entry.key["server.".len()..]).map_err(refuse)?;
    Member::parse(id, &entry.value).map_err(refuse)
}

/// Reads all `server.N` lines, sorted by id.
pub(super) fn read_members(
    keys: &mut Properties,
    standalone: bool,
    multi_address: bool,
) -> Result<Vec<Member>, BadSetting> {
    let mut members: Vec<Member> = Vec::new();
    for entry in keys.take_prefixed("server.") {
        let member = read_member(keys, &entry)?;
        if member.addresses.len() > 1 && !multi_address {
            let what = "several addresses need multiAddress.enabled=true";
            return Err(keys.refuse(&entry, what));
        }
        if let Some(twin) = members.iter().find(|other| other.id == member.id) {
            let what = format!("a second line for server {}", twin.id);
            return Err(keys.refuse(&entry, &what));
        }
        members.push(member);
    }
    members.sort_by_key(|member| member.id);
    let participants = members.iter().filter(|member| !member.observes).count();
    // As in ZooKeeper. One participant alone is a standalone server, which accepts no observers.
    if standalone && members.len() > participants && participants < 2 {
        let what = format!(
            "observers need an ensemble of at least two participants, and {participants} of the \
             {} server lines is one: add server lines, or remove :observer",
            members.len()
        );
        return Err(BadSetting::new(format!("server.N: {what}")));
    }
    Ok(members)
}

/// Reads the keys that apply to an ensemble only; `None` for a standalone server, which ignores
/// them.
pub(super) fn ensemble(
    keys: &mut Properties,
    id: ServerId,
    members: Vec<Member>,
    standalone: bool,
) -> Result<Option<Ensemble>, BadSetting> {
    if members.is_empty() || standalone && members.len() < 2 {
        return Ok(None);
    }
    let voters = groups::voters(keys, &members)?;
    if let Some(entry) = keys.take("peerType") {
        let Some(observes) = Member::observes(&entry.value) else {
            return Err(keys.refuse(&entry, "the type is participant or observer"));
        };
        let line = members.iter().find(|member| member.id == id);
        if line.is_some_and(|member| member.observes != observes) {
            keys.warn(&entry, "differs from the server line, which applies");
        }
    }
    let hint = "milliseconds, such as 5000";
    let connect_ms = keys.number("cnxTimeout", 1..=3_600_000, hint)?.unwrap_or(CONNECT_TIME_MS);
    let hint = "a number of times, or 0 for ever";
    let retries = keys.number("electionPortBindRetry", 0..=i64::from(u32::MAX), hint)?;
    let hint = "a port, such as 2191, the same on all servers, or 0 for none";
    let observer_port = keys.number("observerMasterPort", 0..=65_535, hint)?;
    let secret_file = secret_file(keys)?;
    let required = keys.switch("quorum.secretRequired", super::TRUE_FALSE)?;
    let oracle = oracle(keys, &voters)?;
    Ok(Some(Ensemble {
        members,
        voters,
        demands_secret: required.unwrap_or(secret_file.is_some()),
        secret_file,
        oracle,
        secrets: Secrets::default(),
        listen_everywhere: keys
            .take("quorumListenOnAllIPs")
            .is_some_and(|entry| entry.value.eq_ignore_ascii_case("true")),
        connect_timeout: Duration::from_millis(fit(connect_ms)),
        bind_retries: match retries {
            None => Some(BIND_RETRIES),
            Some(0) => None,
            Some(times) => Some(fit(times)),
        },
        observer_port: observer_port.filter(|port| *port > 0).map(fit),
    }))
}

/// The oracle's file. ZooKeeper ignores groups beside an oracle.
fn oracle(keys: &mut Properties, voters: &Voters) -> Result<Option<PathBuf>, BadSetting> {
    let entry = keys.entry("oraclePath").cloned();
    let path = keys.text("oraclePath", "a file that holds 1 or 0")?;
    if let Some(entry) = entry.filter(|_| voters.has_groups()) {
        return Err(keys.refuse(&entry, "an oracle has no effect on groups; remove one of the two"));
    }
    Ok(path.map(PathBuf::from))
}

fn secret_file(keys: &mut Properties) -> Result<Option<SecretFile>, BadSetting> {
    let entry = keys.entry("quorum.secretFile").cloned();
    let path = keys.text("quorum.secretFile", "a file with the secret, the same on all servers")?;
    let required = keys.entry("quorum.secretRequired").cloned();
    if let (None, Some(required)) = (&path, required)
        && required.value == "true"
    {
        let what = "there is no secret to require: name its file, as \
            quorum.secretFile=/etc/zabkeeper/secret";
        return Err(keys.refuse(&required, what));
    }
    Ok(path.zip(entry).map(|(path, entry)| SecretFile { path: path.into(), entry }))
}

impl SecretFile {
    /// Reads the secrets.
    ///
    /// # Errors
    /// The file is unreadable, accessible to users other than its owner, or holds no valid secret.
    pub(super) fn read(&self, zoo_cfg: &str) -> Result<Secrets, BadSetting> {
        let path = self.path.display();
        let read = || -> io::Result<(u32, String)> {
            let mut file = std::fs::File::open(&self.path)?;
            let mode = mode(&file.metadata()?);
            let mut text = String::new();
            // Bounds the memory; every valid file is smaller.
            file.by_ref().take(1 << 16).read_to_string(&mut text)?;
            Ok((mode, text))
        };
        let secrets = match read() {
            Err(error) => Err(format!("cannot be read: {error}")),
            Ok((mode, _)) if mode & 0o077 != 0 => Err(format!(
                "others than its owner can reach it (mode {mode:04o}): chmod 600 {path}"
            )),
            Ok((_, text)) => Secrets::parse(&text),
        };
        secrets.map_err(|what| {
            let Entry { key, place, .. } = &self.entry;
            let place = match place {
                Place::Line(line) | Place::Dynamic(line) => format!("{zoo_cfg}:{line}"),
                Place::Flag(variable) => (*variable).to_owned(),
            };
            BadSetting::new(format!("{place}: {key}: {path}: {what}"))
        })
    }
}

#[cfg(unix)]
fn mode(file: &std::fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    file.permissions().mode() & 0o7777
}

impl Ensemble {
    /// The addresses of all members, for reports.
    pub(crate) fn addresses(&self) -> BTreeMap<ServerId, MemberAddresses> {
        self.members.iter().map(MemberAddresses::of).collect()
    }

    /// The content of `/zookeeper/config` (DATA-27, QV-04): members, groups, weights. Membership
    /// does not change, so the version is 0.
    pub(crate) fn text(&self) -> String {
        let lines: String = self.members.iter().map(|member| format!("{member}\n")).collect();
        lines + &self.voters.group_lines() + "version=0"
    }

    /// The configuration with which a reconfigurable ensemble begins.
    ///
    /// # Errors
    /// Two servers share an address.
    pub(super) fn initial(&self, version: Zxid) -> Result<EnsembleConfig, BadSetting> {
        EnsembleConfig::with_voters(version, self.members.clone(), self.voters.clone())
            .map_err(BadSetting::new)
    }

    /// All members with their roles.
    pub(crate) fn roles(&self) -> Members {
        let observers = self.members.iter().filter(|member| member.observes);
        Members::new(self.voters.clone()).with_observers(observers.map(|member| member.id))
    }

    /// The member with this id.
    pub(crate) fn member(&self, id: ServerId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }
}
