//! `zabkeeper explain`: asks the admin server of a running server why something has happened.
//!
//! Owns the question's way over HTTP and the form of the answer. Must not answer: the server does.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;
use zabkeeper_core::WallMs;
use zabkeeper_core::driver::four_letter::date;

use crate::args::ExplainCommand;

/// Time for the server to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Bytes of an answer at most.
const MOST: u64 = 16 << 20;

/// Asks, and returns what is to be printed.
///
/// # Errors
/// What went wrong, and what to do.
pub(crate) fn explain(command: &ExplainCommand) -> Result<String, String> {
    let ExplainCommand { admin, question, id } = command;
    let id = id.as_ref().map_or_else(String::new, |id| format!("&id={id}"));
    let url = format!("/api/explain?question={question}{id}");
    let (status, content) = get(admin, &url).map_err(|error| {
        format!(
            "cannot ask {admin}: {error}; name the address of an admin server (admin.serverPort) \
             with --admin HOST:PORT"
        )
    })?;
    let answer: Value = serde_json::from_str(&content).map_err(|_| {
        format!("{admin} has answered with {status}, and no JSON: is it another server?")
    })?;
    if let Some(error) = answer["error"].as_str() {
        return Err(format!("{admin} says: {error}"));
    }
    Ok(text(&answer))
}

/// The answer, and the records behind it.
fn text(answer: &Value) -> String {
    let mut text = format!("{}\n", answer["answer"].as_str().unwrap_or_default());
    for line in answer["lines"].as_array().into_iter().flatten() {
        let at = date::text(WallMs(line["at_ms"].as_i64().unwrap_or_default()));
        let (kind, what) = (line["kind"].as_str(), line["text"].as_str());
        let (kind, what) = (kind.unwrap_or_default(), what.unwrap_or_default());
        let _infallible = writeln!(text, "  {at}  {kind}: {what}");
    }
    text
}

/// Status and content of the answer to a request.
fn get(server: &str, url: &str) -> io::Result<(String, String)> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return exchange(stream, server, url),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn exchange(mut stream: TcpStream, server: &str, url: &str) -> io::Result<(String, String)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {url} HTTP/1.0\r\nHost: {server}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(MOST).read_to_string(&mut answer)?;
    let parts = answer.split_once("\r\n\r\n");
    let (head, content) = parts.ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), content.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stand_below_the_answer_with_their_time() {
        let answer = serde_json::json!({
            "answer": "this server follows server 3",
            "lines": [{ "at_ms": 0, "kind": "role", "text": "looks for a leader" }],
        });
        assert_eq!(
            text(&answer),
            "this server follows server 3\n  Thu Jan 01 00:00:00 UTC 1970  role: looks for a leader\n"
        );
    }
}
