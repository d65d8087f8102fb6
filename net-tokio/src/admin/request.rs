//! Requests of the admin server, and their responses.
//!
//! Owns the URLs, the methods, and the form of responses. Must not wait for anything but the
//! serving thread and the requester.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc;
use futures::sink::SinkExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use zabkeeper_core::SessionId;
use zabkeeper_core::driver::admin::{
    AdminAnswer, AdminCommand, AdminCursor, AdminQuestion, AdminReply, AdminRow,
};
use zabkeeper_core::driver::four_letter::environment;
use zabkeeper_core::driver::metrics::{LineValue, Number};

use super::ask::{Asker, Facts};
use super::history::History;
use super::json::{Object, Rows};
use crate::config::AdminOptions;
use crate::facts;

/// The content of a response.
pub(super) type Body = BoxBody<Bytes, io::Error>;

pub(super) const JSON: &str = "application/json";
pub(super) const HTML: &str = "text/html;charset=utf-8";
const TEXT: &str = "text/plain;charset=utf-8";

/// The methods of every URL.
const METHODS: &str = "GET, HEAD, OPTIONS";

/// Answers requests.
pub(super) struct Responder {
    options: AdminOptions,
    facts: Facts,
    asker: Asker,
    history: History,
}

impl Responder {
    pub(super) fn new(options: AdminOptions, facts: Facts, asker: Asker) -> Responder {
        Responder { options, facts, asker, history: History::default() }
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    pub(super) async fn ask(&self, question: AdminQuestion) -> Option<AdminReply> {
        self.asker.ask(question).await
    }

    /// Takes samples for the charts, for ever.
    pub(super) async fn record(&self) {
        self.history.record(&self.asker).await;
    }

    pub(super) fn options(&self) -> &AdminOptions {
        &self.options
    }

    /// Answers a request of this peer.
    pub(super) async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        from: SocketAddr,
    ) -> Response<Body> {
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => return allow(StatusCode::OK),
            // ADMIN-01.
            Method::TRACE => return empty(StatusCode::FORBIDDEN),
            _ => return allow(StatusCode::METHOD_NOT_ALLOWED),
        }
        let path = request.uri().path();
        match path.strip_prefix(&*self.options.url) {
            Some("" | "/") => text(StatusCode::OK, HTML, self.links()),
            Some(name) if name.starts_with('/') => {
                let trace_mask = parameter(request.uri().query().unwrap_or_default(), "traceMask");
                self.command(&name[1..], trace_mask).await
            }
            _ => match path {
                "/live" => text(StatusCode::OK, TEXT, "live\n".to_owned()),
                "/ready" => self.ready().await,
                _ => match self.page(&request, from).await {
                    Some(response) => response,
                    None => text(StatusCode::NOT_FOUND, TEXT, format!("there is no {path}\n")),
                },
            },
        }
    }

    /// The list of all commands.
    fn links(&self) -> String {
        let url = &self.options.url;
        let link = |command: AdminCommand| {
            let name = command.name();
            format!("<a href=\"{url}/{name}\">{name}</a>\n<br/>\n")
        };
        AdminCommand::all().map(link).collect()
    }

    /// Answers a command.
    async fn command(self: Arc<Self>, name: &str, trace_mask: Option<String>) -> Response<Body> {
        let Some(command) = AdminCommand::parse(name) else {
            return error(name, &format!("Unknown command: {name}"));
        };
        let mut mask = 0;
        if command == AdminCommand::SetTraceMask {
            let what = "setTraceMask requires long traceMask argument";
            match trace_mask.as_deref().map(|text| (text, text.parse())) {
                Some((_, Ok(number))) => mask = number,
                Some((text, Err(_))) => {
                    return error(command.name(), &format!("{what}, got {text}"));
                }
                None => return error(command.name(), what),
            }
        }
        let facts = self.facts.collect(command, mask).await;
        let reply = self.asker.ask(AdminQuestion::Command(command, facts)).await;
        if let Some(AdminReply::Error(why)) = reply {
            return error(command.name(), &why.to_string());
        }
        let Some(AdminReply::Answer(answer, cursor)) = reply else { return no_answer() };
        let mut object = Object::new();
        if let AdminAnswer::Monitor(lines) = &answer {
            lines.iter().for_each(|(name, value)| match value {
                LineValue::Number(Number::Integer(number)) => object.field(name, number),
                LineValue::Number(Number::Float(number)) => object.field(name, number),
                LineValue::Text(text) => object.field(name, text),
            });
        } else {
            object.fields(&answer);
        }
        self.add_facts(command, &mut object);
        match cursor {
            None => {
                finish(&mut object, command.name(), None);
                body(StatusCode::OK, JSON, full(object.take()))
            }
            Some(cursor) => self.stream(command, object, cursor),
        }
    }

    /// Adds the fields that only the process knows.
    fn add_facts(&self, command: AdminCommand, object: &mut Object) {
        if command == AdminCommand::Environment {
            for (name, value) in environment(&self.facts.options, &facts::environment()) {
                object.field(name, &value);
            }
        } else if command == AdminCommand::SystemProperties {
            for (name, value) in &self.options.properties {
                object.field(name, &if is_secret(name) { HIDDEN } else { value });
            }
        } else if command == AdminCommand::InitialConfiguration {
            let text = self.options.file_text.as_deref().map(without_secrets);
            object.field("initial_configuration", &text);
        }
    }

    /// An answer whose rows come in parts: each is asked for when the requester has taken the one
    /// before.
    fn stream(
        self: Arc<Self>,
        command: AdminCommand,
        mut object: Object,
        cursor: AdminCursor,
    ) -> Response<Body> {
        let (mut sender, parts) = mpsc::channel(0);
        tokio::spawn(async move {
            let mut sections = Sections::new(command, &mut object);
            let mut next = Some(cursor);
            while let Some(cursor) = next {
                let Some(AdminReply::Rows(rows, cursor)) =
                    self.asker.ask(AdminQuestion::Rows(cursor)).await
                else {
                    // The requester sees that the answer is incomplete.
                    let error = io::Error::other("the server does not answer");
                    let _gone = sender.send(Err(error)).await;
                    return;
                };
                rows.into_iter().for_each(|row| sections.add(&mut object, row));
                next = cursor;
                let part = object.take();
                if !part.is_empty() && sender.send(Ok(Bytes::from(part))).await.is_err() {
                    return;
                }
            }
            sections.end(&mut object);
            finish(&mut object, command.name(), None);
            let _gone = sender.send(Ok(Bytes::from(object.take()))).await;
        });
        let frames = parts.map(|part| part.map(Frame::data));
        body(StatusCode::OK, JSON, BodyExt::boxed(StreamBody::new(frames)))
    }

    /// Are clients served? A follower and an observer know of a leader then.
    async fn ready(&self) -> Response<Body> {
        let question = AdminQuestion::Command(AdminCommand::Ruok, Default::default());
        let reply = self.asker.ask(question).await;
        if let Some(AdminReply::Error(why)) = reply {
            return text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n"));
        }
        let Some(AdminReply::Answer(..)) = reply else { return no_answer() };
        text(StatusCode::OK, TEXT, "ready\n".to_owned())
    }
}

/// The fields of an answer whose values come row by row, in order.
struct Sections {
    left: std::vec::IntoIter<(&'static str, Rows)>,
    rows: Rows,
    name: &'static str,
    any: bool,
    /// When sessions expire: the rows come by session, and the field is by time.
    expiries: BTreeMap<u64, Vec<SessionId>>,
}

/// The field of each kind of row.
const CONNECTIONS: &str = "connections";
const EXPIRIES: &str = "expiry_time_to_session_ids";
const EPHEMERALS: &str = "session_id_to_ephemeral_paths";

impl Sections {
    fn new(command: AdminCommand, object: &mut Object) -> Sections {
        let groups = || Rows::Groups(None);
        let sections = if command == AdminCommand::Dump {
            vec![(EXPIRIES, groups()), (EPHEMERALS, groups())]
        } else if command == AdminCommand::Watches {
            vec![("session_id_to_watched_paths", groups())]
        } else if command == AdminCommand::WatchesByPath {
            vec![("path_to_session_ids", groups())]
        } else {
            vec![(CONNECTIONS, Rows::List), ("secure_connections", Rows::List)]
        };
        let mut left = sections.into_iter();
        let (name, rows) = left.next().expect("each command has one");
        object.begin(name, &rows);
        Sections { left, rows, name, any: false, expiries: BTreeMap::new() }
    }

    fn add(&mut self, object: &mut Object, row: AdminRow) {
        match row {
            AdminRow::Expiry(at, session) => {
                return self.expiries.entry(at).or_default().push(session);
            }
            AdminRow::Connection(connection) => object.item(!self.any, &connection),
            AdminRow::Ephemeral(session, path) => {
                if self.name == EXPIRIES {
                    self.next(object);
                }
                object.member(&mut self.rows, &session.0.to_string(), &path);
            }
            AdminRow::Watch(session, path) => {
                object.member(&mut self.rows, &session.0.to_string(), &path);
            }
            AdminRow::Watcher(path, session) => object.member(&mut self.rows, &path, &session.0),
        }
        self.any = true;
    }

    /// Ends the field, and begins the next one if there is one.
    fn next(&mut self, object: &mut Object) -> bool {
        for (at, sessions) in std::mem::take(&mut self.expiries) {
            for session in sessions {
                object.member(&mut self.rows, &at.to_string(), &session.0);
                self.any = true;
            }
        }
        object.end(&self.rows, self.any);
        let Some((name, rows)) = self.left.next() else { return false };
        object.begin(name, &rows);
        (self.name, self.rows, self.any) = (name, rows, false);
        true
    }

    fn end(mut self, object: &mut Object) {
        while self.next(object) {}
    }
}

/// Ends an answer with the two fields that all have.
fn finish(object: &mut Object, command: &str, error: Option<&str>) {
    object.field("command", &command);
    object.field("error", &error);
    object.finish();
}

/// An error of a command. As in ZooKeeper its status is 200 (ADMIN-02).
fn error(command: &str, what: &str) -> Response<Body> {
    let mut object = Object::new();
    finish(&mut object, command, Some(what));
    body(StatusCode::OK, JSON, full(object.take()))
}

pub(super) fn no_answer() -> Response<Body> {
    let what = "the thread that serves clients has not answered in time\n".to_owned();
    text(StatusCode::SERVICE_UNAVAILABLE, TEXT, what)
}

/// What stands in place of a secret.
const HIDDEN: &str = "(hidden)";

/// Is the value of this key a secret, or does it help to guess one?
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["password", "passwd", "secret", "superdigest"].iter().any(|part| key.contains(part))
}

/// The lines of a configuration file, without the values that are secrets.
fn without_secrets(text: &str) -> String {
    let line = |line: &str| match line.split_once(['=', ':']) {
        Some((key, _)) if is_secret(key) => format!("{key}={HIDDEN}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The value of a parameter of a query.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| decoded(value))
}

/// A value without its escapes, `%2F` and `+`; what is no escape stays.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let escaped = others.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let escaped = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        (bytes, rest) = match (first, escaped) {
            (b'%', Some(byte)) => (with(bytes, byte), &others[2..]),
            (b'+', _) => (with(bytes, b' '), others),
            (other, _) => (with(bytes, *other), others),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn with(mut bytes: Vec<u8>, byte: u8) -> Vec<u8> {
    bytes.push(byte);
    bytes
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn text(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    body(status, kind, full(text))
}

fn empty(status: StatusCode) -> Response<Body> {
    text(status, TEXT, String::new())
}

fn allow(status: StatusCode) -> Response<Body> {
    let mut response = empty(status);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
    response
}

pub(super) fn body(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
