//! What the page of the admin server asks for, as JSON.
//!
//! Owns its URLs and the form of their answers. Must not decide who may see what: the core does,
//! by the list of `/` and of each node.

use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use zabkeeper_core::driver::admin::{
    AdminCommand, AdminQuestion, AdminReply, AdminRow, PrivateQuestion,
};
use zabkeeper_core::driver::explain::Question;
use zabkeeper_core::wire::{Acl, Perms};
use zabkeeper_core::{ErrorCode, NodeShown, Refused, Requester, SessionId};

use super::request::{Body, HTML, JSON, Responder, body, full, no_answer, parameter};

/// The page itself.
const PAGE: &str = include_str!("page.html");

/// Nothing comes from elsewhere, nothing goes elsewhere, and no other page may frame this one.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Sessions with the most requests that are shown.
const BUSIEST: usize = 20;

/// Parts of a list of watches that are shown.
const PARTS: usize = 4;

impl Responder {
    /// Answers what the page asks for; `None` if this is no URL of the page.
    pub(super) async fn page(
        &self,
        request: &Request<Incoming>,
        from: SocketAddr,
    ) -> Option<Response<Body>> {
        let query = request.uri().query().unwrap_or_default();
        let name = match request.uri().path() {
            "/" => return Some(page()),
            path => path.strip_prefix("/api/")?,
        };
        let requester = || requester(request.headers(), from);
        Some(match name {
            "overview" => self.overview().await,
            "history" => {
                let after = parameter(query, "after").and_then(|text| text.parse().ok());
                answer(&self.history().after(after.unwrap_or(i64::MIN)))
            }
            "events" => {
                let after = parameter(query, "after").and_then(|text| text.parse().ok());
                self.events(after.unwrap_or(0)).await
            }
            "explain" => match question(query) {
                Some(question) => self.explain(question).await,
                None => bad("question is leader, serving, or session with an id such as 0x1"),
            },
            "sessions" => {
                let after = parameter(query, "after").and_then(|text| session(&text));
                self.sessions(requester(), after).await
            }
            "top" => self.top(requester()).await,
            "watches" => self.watches(requester()).await,
            "tree" => {
                let path = parameter(query, "path").unwrap_or_else(|| "/".to_owned());
                let question = PrivateQuestion::Node(path.clone(), parameter(query, "after"));
                self.node(requester(), path, question).await
            }
            _ => return None,
        })
    }

    async fn overview(&self) -> Response<Body> {
        let Some(AdminReply::Overview(overview)) = self.ask(AdminQuestion::Overview).await else {
            return no_answer();
        };
        let Ok(mut value) = serde_json::to_value(&overview) else { return no_answer() };
        let disk = self.facts().collect(AdminCommand::Dirs, 0).await.disk;
        let snapshot = self.facts().collect(AdminCommand::LastSnapshot, 0).await.snapshot_at;
        let now = u64::try_from(overview.now_ms / 1_000).unwrap_or(0);
        value["snapshot"]["age_s"] =
            if snapshot == 0 { Value::Null } else { now.saturating_sub(snapshot).into() };
        value["disk"] = json!({
            "data_bytes": disk.snapshots,
            "log_bytes": disk.log,
            "free_bytes": self.facts().free_bytes(),
        });
        answer(&value)
    }

    async fn events(&self, after: u64) -> Response<Body> {
        let reply = self.ask(AdminQuestion::Events(after)).await;
        let Some(AdminReply::Events(events, last)) = reply else { return no_answer() };
        answer(&json!({ "events": events, "next": last }))
    }

    async fn explain(&self, question: Question) -> Response<Body> {
        let reply = self.ask(AdminQuestion::Explain(question)).await;
        let Some(AdminReply::Explained(explained)) = reply else { return no_answer() };
        answer(&explained)
    }

    async fn sessions(&self, requester: Requester, after: Option<SessionId>) -> Response<Body> {
        let question = AdminQuestion::Private(requester, PrivateQuestion::Sessions(after));
        let reply = self.ask(question).await;
        let Some(AdminReply::Sessions(sessions, more)) = reply else { return refuse(reply) };
        let last = sessions.last().filter(|_| more).map(|last| last.id.clone());
        answer(&json!({ "sessions": sessions, "next": last }))
    }

    /// The sessions connected to this server that have sent most requests.
    async fn top(&self, requester: Requester) -> Response<Body> {
        let question = AdminQuestion::Private(requester, PrivateQuestion::Authorize);
        let reply = self.ask(question).await;
        let Some(AdminReply::Authorized) = reply else { return refuse(reply) };
        let question = AdminQuestion::Command(AdminCommand::Connections, Default::default());
        let reply = self.ask(question).await;
        let Some(AdminReply::Answer(_, mut cursor)) = reply else { return refuse(reply) };
        let mut busiest: Vec<(u64, SessionId)> = Vec::new();
        while let Some(at) = cursor {
            let Some(AdminReply::Rows(rows, next)) = self.ask(AdminQuestion::Rows(at)).await else {
                return no_answer();
            };
            cursor = next;
            for row in rows {
                let AdminRow::Connection(connection) = row else { continue };
                let session = connection.session.map(|of| SessionId(of.session_id));
                busiest.extend(session.map(|session| (connection.packets_received, session)));
            }
            busiest.sort_unstable_by(|one, other| other.cmp(one));
            busiest.truncate(BUSIEST);
        }
        let sessions = busiest
            .iter()
            .map(|(requests, session)| json!({ "id": session.to_string(), "requests": requests }));
        answer(
            &json!({ "paths": [], "sessions": sessions.collect::<Vec<_>>(), "interval_s": null }),
        )
    }

    async fn watches(&self, requester: Requester) -> Response<Body> {
        let question = AdminQuestion::Private(requester, PrivateQuestion::Authorize);
        let reply = self.ask(question).await;
        let Some(AdminReply::Authorized) = reply else { return refuse(reply) };
        let question = AdminQuestion::Command(AdminCommand::WatchesByPath, Default::default());
        let reply = self.ask(question).await;
        let Some(AdminReply::Answer(_, mut cursor)) = reply else { return refuse(reply) };
        let mut watches: Vec<(String, Vec<String>)> = Vec::new();
        for _ in 0..PARTS {
            let Some(at) = cursor else { break };
            let Some(AdminReply::Rows(rows, next)) = self.ask(AdminQuestion::Rows(at)).await else {
                return no_answer();
            };
            cursor = next;
            for row in rows {
                let AdminRow::Watcher(path, session) = row else { continue };
                match watches.last_mut().filter(|(last, _)| *last == path) {
                    Some((_, sessions)) => sessions.push(session.to_string()),
                    None => watches.push((path, vec![session.to_string()])),
                }
            }
        }
        let watches: Vec<Value> = watches
            .into_iter()
            .map(|(path, sessions)| json!({ "path": path, "sessions": sessions }))
            .collect();
        answer(&json!({ "watches": watches, "next": null, "truncated": cursor.is_some() }))
    }

    async fn node(
        &self,
        requester: Requester,
        path: String,
        question: PrivateQuestion,
    ) -> Response<Body> {
        let reply = self.ask(AdminQuestion::Private(requester, question)).await;
        if let Some(AdminReply::NodeError(code)) = &reply {
            return if *code == ErrorCode::NoNode {
                let what = format!("there is no node {path}");
                error(StatusCode::NOT_FOUND, &what, "see whether it has been deleted")
            } else {
                let what = format!("the list of {path} does not permit you to read it");
                let what_to_do = "ask as an identity that may read it, or as a superuser";
                error(StatusCode::FORBIDDEN, &what, what_to_do)
            };
        }
        let Some(AdminReply::Node(node, more)) = reply else { return refuse(reply) };
        answer(&node_value(&path, &node, more))
    }
}

fn node_value(path: &str, node: &NodeShown, more: bool) -> Value {
    let stat = &node.stat;
    let length = usize::try_from(stat.data_length).unwrap_or(0);
    let data = node.data.as_deref();
    json!({
        "path": path,
        "data_text": data.and_then(|data| str::from_utf8(data).ok()),
        "data_base64": data.map(|data| BASE64_STANDARD.encode(data)),
        "data_length": length,
        "truncated": data.is_some_and(|data| data.len() < length),
        "stat": {
            "czxid": stat.czxid.to_string(),
            "mzxid": stat.mzxid.to_string(),
            "pzxid": stat.pzxid.to_string(),
            "ctime_ms": stat.ctime,
            "mtime_ms": stat.mtime,
            "version": stat.version,
            "cversion": stat.cversion,
            "aversion": stat.aversion,
            "ephemeral_owner": stat.ephemeral_owner.to_string(),
            "num_children": stat.num_children,
        },
        "acl": node.acl.iter().map(acl_value).collect::<Vec<_>>(),
        "children": node.children,
        "next": node.children.last().filter(|_| more),
    })
}

fn acl_value(acl: &Acl) -> Value {
    let letters = [
        ('c', Perms::CREATE),
        ('d', Perms::DELETE),
        ('r', Perms::READ),
        ('w', Perms::WRITE),
        ('a', Perms::ADMIN),
    ];
    let granted = letters.iter().filter(|(_, perm)| acl.perms.0 & perm.0 != 0);
    let perms: String = granted.map(|(letter, _)| *letter).collect();
    json!({ "perms": perms, "scheme": acl.scheme, "id": acl.id })
}

/// Who asks, from the header `Authorization: SCHEME [DATA]` (ADMIN-03).
fn requester(headers: &HeaderMap, from: SocketAddr) -> Requester {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.map(|text| {
        let mut words = text.split(' ');
        let scheme = words.next().unwrap_or_default().to_owned();
        (scheme, words.next().map(|data| data.as_bytes().to_vec()))
    });
    Requester { shown, address: from.ip().to_canonical() }
}

fn question(query: &str) -> Option<Question> {
    match parameter(query, "question")?.as_str() {
        "leader" => Some(Question::Leader),
        "serving" => Some(Question::Serving),
        "session" => parameter(query, "id").and_then(|id| session(&id)).map(Question::Session),
        _ => None,
    }
}

/// A session as `0x…`, or as a decimal number.
fn session(text: &str) -> Option<SessionId> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
        None => text.parse().ok(),
    }
    .map(SessionId)
}

fn page() -> Response<Body> {
    let mut response = body(StatusCode::OK, HTML, full(PAGE));
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn answer(value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => body(StatusCode::OK, JSON, full(text)),
        Err(error) => bad(&error.to_string()),
    }
}

fn bad(what: &str) -> Response<Body> {
    error(StatusCode::BAD_REQUEST, what, "correct the request")
}

/// A reply that is not the one that the question asks for.
fn refuse(reply: Option<AdminReply>) -> Response<Body> {
    if let Some(AdminReply::Error(why)) = reply {
        let what_to_do = "ask again once this server serves clients";
        return error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string(), what_to_do);
    }
    let Some(AdminReply::Refused(refused)) = reply else { return no_answer() };
    let (status, what, what_to_do) = match refused {
        Refused::NothingShown => (
            StatusCode::UNAUTHORIZED,
            "Auth info is missing for the command",
            "send the header Authorization: SCHEME DATA, such as digest user:password",
        ),
        Refused::NotAuthenticated => (
            StatusCode::UNAUTHORIZED,
            "Not authenticated",
            "use a scheme that this server offers, such as digest user:password",
        ),
        Refused::NotAuthorized => (
            StatusCode::FORBIDDEN,
            "Not authorized",
            "ask as the superuser (DigestAuthenticationProvider.superDigest), or give the identity \
             every permission in the list of /",
        ),
    };
    error(status, what, what_to_do)
}

fn error(status: StatusCode, what: &str, what_to_do: &str) -> Response<Body> {
    let text = json!({ "error": what, "what_to_do": what_to_do }).to_string();
    body(status, JSON, full(text))
}
